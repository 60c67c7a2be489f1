"""The README's commands and code do what it says."""

import re
import runpy
import sys
from pathlib import Path

from gsf import cli
from gsf.core.presets import PRESETS
from gsf.sweep.options import RunConfig

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_commands_and_the_code_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    commands = re.search(r"```sh\n(.*?)```", README, re.S)[1].splitlines()
    assert len(commands) == 7
    for command in commands:
        assert command.startswith("gsf ")
        assert cli.main(command.split()[1:]) == 0, capsys.readouterr()
    assert (tmp_path / "play.gif").is_file()
    assert (tmp_path / "report" / "report.html").is_file()
    (tmp_path / "code.py").write_text(re.search(r"```python\n(.*?)```", README, re.S)[1])
    runpy.run_path("code.py")
    assert "torch.Size([256, 64, 64, 3])" in capsys.readouterr().out


def test_every_verb_is_in_the_table():
    for verb in cli.VERBS:
        assert f"`gsf {verb.split()[0]}`" in README, verb


def test_the_table_of_presets_is_what_the_presets_are():
    for preset, verbs in PRESETS.items():
        row = next(line for line in README.splitlines() if line.startswith(f"| `{preset}` |"))
        steps = verbs["train"]["grad_steps"]
        assert f"{steps:,} x" in row or f"{steps // 1_000_000}M x" in row
        assert verbs["train"]["encoder"] in row


def test_pages_and_help_say_the_same_minutes():
    said = re.search(r"make run .*: (\d+) minutes", README)[1]
    assert f"about {said} minutes" in (ROOT / "docs" / "quickstart.md").read_text()
    source = Path(sys.modules[RunConfig.__module__].__file__).read_text()
    assert f"laptop ({said} minutes)" in source
