"""Nothing that lies in the current folder is imported, by gsf or by what it starts."""

import subprocess
import sys
from pathlib import Path

import pytest

import mines
from chains import write_chain
from own_code import BASE

GSF = Path(sys.executable).with_name("gsf")
EVERY_HELP = """
from gsf.cli import VERBS, main
for verb in VERBS:
    try:
        main([*verb.split(), "--help"])
    except SystemExit as stop:
        assert not stop.code
"""


@pytest.fixture
def mined(tmp_path):
    mines.lay(tmp_path)
    yield tmp_path
    assert not mines.gone_off(tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        [GSF, "data", "list"],
        [sys.executable, "-m", "gsf", "--version"],
        [sys.executable, "-P", "-c", EVERY_HELP],
    ],
    ids=["gsf", "python -m gsf", "help"],
)
def test_gsf_imports_nothing_from_the_current_folder(mined, command):
    subprocess.run(command, cwd=mined, check=True, capture_output=True)


def test_nor_do_the_workers_of_a_sweep_whose_code_of_ones_own_runs(mined):
    write_chain(mined / "data")
    (mined / "mine.py").write_text(BASE)
    command = [GSF, "run", "--datasets", "data", "--out", "out"]
    command += ["--methods", "mine.py:Imitate", "--seeds", "2", "--workers", "2", "--no-report"]
    command += ["--train.grad-steps", "1", "--train.batch", "4", "--train.encoder", "impala_small"]
    subprocess.run(command, cwd=mined, check=True, capture_output=True)
    assert len(list(mined.glob("out/*/imitate/seed*/DONE"))) == 2
