"""gsf's own code as an input: an edit in place gives no stale results, other words do no harm."""

import importlib
import os
import shutil
import sys
from pathlib import Path

import pytest

import gsf
from forked import forked
from gsf.core import code
from gsf.core.code import decided_by
from gsf.core.stage import read_manifest
from gsf.learn import bases
from gsf.learn.bases.cql import CQL

SOURCE = Path(gsf.__file__).parent

MODULE = '''
"""What it is."""
import math

FACTOR = 2


def used(x):
    """Twice."""
    return FACTOR * x  # a comment


def asked(x):
    return used(x)


def other(x):
    return math.sin(x)


class Mine:
    colour = "purple"
'''


@pytest.mark.parametrize(
    ("old", "new", "whole", "asked"),
    [
        ('"""Twice."""', '"""Two times."""', False, False),
        ("  # a comment", "", False, False),
        ("\n\n\n", "\n\n", False, False),
        ("purple", "green", False, False),
        ("math.sin", "math.cos", True, False),
        ("FACTOR = 2", "FACTOR = 3", True, True),
        ("FACTOR * x", "FACTOR * x + 1", True, True),
        ("return used(x)", "return -used(x)", True, True),
    ],
)
def test_what_counts_as_another_code(old, new, whole, asked):
    sources = MODULE.encode(), MODULE.replace(old, new).encode()
    for function, differs in (("", whole), ("asked", asked)):
        digests = {code._read(source, function)[0] for source in sources}
        assert (len(digests) == 2) == differs, function


def test_what_decides_a_run_of_cql():
    found = {*decided_by("gsf.learn.train", CQL)}
    assert {"gsf/learn/bases/cql.py", "gsf/learn/learner.py", "gsf/nets/heads.py"} <= found
    assert {"gsf/equations.py:cql_loss", "gsf/data/dataset.py"} <= found
    assert not any(x.startswith(("gsf/core", "gsf/suites", "gsf/reporting")) for x in found)
    assert not {x for x in found if "iql" in x or "curl" in x or "vpn" in x}


def test_what_only_a_type_checker_imports_does_not_decide():
    text = b"if TYPE_CHECKING:\n    from gsf.nets import heads\nfrom gsf.nets import augment\n"
    assert code._read(text, "")[1] == ["gsf.nets", "gsf.nets.augment"]


def test_of_a_users_file_what_it_imports_even_when_the_file_is_gone(tmp_path, forget):
    file = tmp_path / "mine.py"
    file.write_text(
        "from gsf.learn.bases.cql import CQL\n\n\nclass Mine(CQL):\n    name = 'mine'\n"
    )
    mine = bases.find(f"{file}:Mine").value
    file.unlink()
    found = decided_by(mine)
    assert {"gsf/learn/bases/cql.py", "gsf/equations.py:cql_loss"} <= {*found}
    assert not any("mine" in name for name in found)


@pytest.fixture
def run_copy(tmp_path, dataset):
    """Runs `gsf train` with a copy of gsf that can be edited in place."""
    home = tmp_path / "copy"
    shutil.copytree(SOURCE, home / "gsf", ignore=shutil.ignore_patterns("shipped"))

    def gsf_of_the_copy(command):
        for name in [x for x in sys.modules if x.partition(".")[0] == "gsf"]:
            del sys.modules[name]
        sys.path.insert(0, str(home))
        os.chdir(tmp_path)
        return importlib.import_module("gsf.cli").main(command)

    def run(*more):
        command = ["train", str(dataset.path), "--out", "run"]
        command += ["--method", "cql", "--preset", "smoke", "--grad-steps", "2", "--batch", "4"]
        command += more
        code, said = forked(lambda: gsf_of_the_copy(command))
        return code, " ".join(said.split())

    def edit(file, old, new):
        path = home / "gsf" / file
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))

    return run, edit, tmp_path / "run"


def test_an_edit_in_place_is_not_answered_with_an_old_run(run_copy):
    run, edit, out = run_copy
    assert run()[0] == 0
    edit("learn/bases/cql.py", "CQL: Q-learning in which", "CQL: learning in which")  # words
    assert "is done already" in run()[1]
    edit("learn/bases/cql.py", "return losses[0] + losses[1]", "return 1000 * losses[0]")
    for more in ([], ["--grad-steps", "3"]):
        status, said = run(*more)
        assert status == 2
        assert "holds a run made before gsf/learn/bases/cql.py was edited" in said
        assert "--accept-code-change" in said
    accepted = "--accept-code-change"
    assert "is done already" in run(accepted)[1]
    assert run(accepted, "--grad-steps", "3")[0] == 0
    assert read_manifest(out, "run")["code_changed"] == ["gsf/learn/bases/cql.py"]
