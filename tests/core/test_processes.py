"""Nothing that lies in the current folder is imported, by gsf or by what it starts."""

import subprocess
import sys
from pathlib import Path

import pytest

import mines
from gsf.core import registry
from gsf.sweep.workers import run_all
from own_code import CUMULANT
from toys import toys

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


def test_nor_do_the_workers_of_a_sweep_whose_code_of_ones_own_runs(mined, monkeypatch, forget):
    count = f"with open({str(mined / 'ran')!r}, 'a') as file:\n    file.write('!')\n"
    (mined / "mine.py").write_text(CUMULANT + count)
    monkeypatch.chdir(mined)
    registry.allow([Path("mine.py")])
    assert not run_all(toys(mined, "well", "well"), workers=2)
    assert (mined / "ran").read_text() == "!!!"  # here, and in two workers
