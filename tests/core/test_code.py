"""gsf's own code as an input: an edit in place gives no stale results, other words do no harm."""

import contextlib
import importlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
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


def test_suites_decide_what_is_played_and_nothing_else():
    for module in ("gsf.gvf.label", "gsf.evaluation.rollout"):  # both import them
        found = {*decided_by(module)}
        assert not any(x.startswith("gsf/suites") for x in found)
        played = {*decided_by(module, "gsf.suites.grids")}
        assert {"gsf/suites/grids.py", "gsf/suites/__init__.py"} == played - found


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


COMMANDS = r"""
data:    materialise grid5_looks-best --transitions 256 --out data
dressed: materialise grid5_looks-best --transitions 64 --looks 2 --first-look 20 --out dressed
fit:     fit data --estimator td --preset smoke --grad-steps 2 --batch 4 --out fit
labels:  label fit --n-bins 3 --allow-small-levels --out labels
oracle:  label fit --n-bins 3 --allow-small-levels --source oracle --out oracle
run:     train data --method gsf-reward+curl --labels labels --encoder patches --out run \
         --preset smoke --grad-steps 2 --batch 4
returns: evaluate run --n-seen 2 --n-validation 0 --n-unseen 2 --modes greedy
judged:  evaluate run --held-out dressed --no-fqe
played:  collect --game grid5_looks --player best --transitions 16 --n-envs 1 --out played \
         --n-levels 1
"""
CHAIN = {
    line.split(":")[0]: line.split()[1:]
    for line in COMMANDS.replace("\\\n", "").splitlines()
    if line
}
AGENT, LABELS = ("run", "returns", "judged"), ("labels", "oracle")
GRIDS = ("oracle", "returns", "played")


class Copy:
    """A copy of gsf that can be edited in place, with an output of every stage."""

    def __init__(self, home: Path) -> None:
        self.home = home
        shutil.copytree(SOURCE, home / "gsf", ignore=shutil.ignore_patterns("[!g]*.gsfrec", "*.pt"))

    def run(self, *commands: list[str]) -> list[tuple[int, str]]:
        """Exit code and words of each, all in one process: most of the time goes to imports."""
        _, said = forked(lambda: self._run(commands))
        *parts, rest = (" ".join(words.split()) for words in said.split("\0"))
        assert not rest, rest
        return [(int(status), words) for words, status in zip(parts[::2], parts[1::2], strict=True)]

    def _run(self, commands: Sequence[list[str]]) -> None:
        for name in [x for x in sys.modules if x.partition(".")[0] == "gsf"]:
            del sys.modules[name]
        sys.path.insert(0, str(self.home))
        os.chdir(self.home)
        main = importlib.import_module("gsf.cli").main
        for command in commands:
            status = main(command) or 0
            sys.stderr.flush()
            print(end=f"\0{status}\0", flush=True)

    @contextlib.contextmanager
    def edited(self, file: str, old: str, new: str) -> Iterator[None]:
        path = self.home / "gsf" / file
        text = path.read_text()
        assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
        path.write_text(text.replace(old, new))
        try:
            yield
        finally:
            path.write_text(text)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Copy:
    copy = Copy(tmp_path_factory.mktemp("copy"))
    for status, said in copy.run(*CHAIN.values()):
        assert status == 0, said
    return copy


@pytest.mark.parametrize(
    ("file", "old", "new", "outputs"),
    [
        ("learn/bases/cql.py", "return losses[0] + losses[1]", "return losses[0]", AGENT),
        ("learn/learner.py", "self.n_updates += 1", "self.n_updates += 2", ("run",)),
        ("learn/losses/curl.py", "/ self.config.tau", "* self.config.tau", ("run",)),
        ("nets/encoders/patches.py", "orthogonal=True", "orthogonal=False", AGENT),
        ("equations.py", "return td + alpha * conservative", "return td - conservative", AGENT),
        ("equations.py", "twice_rank * n_bins //", "twice_rank //", ("fit", "run", *LABELS)),
        ("gvf/cumulants/reward.py", "return chunk.reward", "return 9 * chunk.reward", ("fit",)),
        ("gvf/td.py", '"gvf/target": y.mean()', '"gvf/target": y.sum()', ("fit", "judged")),
        ("gvf/label.py", "config.n_bins < 128", "config.n_bins < 1", LABELS),
        ("suites/grids.py", "np.where(terminated, self._scale, 0.0)", "self._scale", GRIDS),
        ("suites/looks.py", "SHIFT = 40", "SHIFT = 80", ("dressed",)),
        ("behaviour/record.py", "return 1 - self._config.skill", "return 0", ("played",)),
        ("evaluation/rollout.py", "m = len(levels)", "m = 1", ("returns",)),
        ("evaluation/judging.py", "truncated)[stops - 1]", "truncated)[stops - 2]", ("judged",)),
    ],
)
def test_an_edit_in_place_is_not_answered_with_what_was_made_before(made, file, old, new, outputs):
    accepted = [[*CHAIN[name], "--accept-code-change"] for name in outputs]
    with made.edited(file, old, new):
        found = made.run(*(CHAIN[name] for name in outputs), *accepted, CHAIN["data"])
    assert [status for status, _ in found[len(outputs) :]] == [0] * (len(outputs) + 1)
    for status, said in found[: len(outputs)]:
        assert status == 2
        assert f"made before gsf/{file}" in said
        assert "was edited; remove it, choose another --out, or add --accept-code-change" in said


def test_other_words_do_no_harm_and_what_goes_on_notes_other_code(made):
    longer = ["--accept-code-change", "--grad-steps", "3"]
    with made.edited("learn/bases/cql.py", "CQL: Q-learning in which", "CQL: learning in which"):
        assert [status for status, _ in made.run(*CHAIN.values())] == [0] * len(CHAIN)
    with made.edited("learn/bases/cql.py", "return losses[0] + losses[1]", "return losses[1]"):
        (refused, _), (status, said) = made.run(
            [*CHAIN["run"], *longer[1:]], [*CHAIN["run"], *longer]
        )
    assert (refused, status) == (2, 0), said
    made_with = read_manifest(made.home / "run", "run")
    assert made_with["code_changed"] == ["gsf/learn/bases/cql.py"]
