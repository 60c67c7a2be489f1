"""The code of docs/extending.md runs, and does what the page says."""

import re
from pathlib import Path

import pytest

from gsf import cli

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text()
SMALL = ["--encoder", "impala_small", "--grad-steps", "2", "--batch", "8"]


def test_every_block_runs(dataset, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        if name := re.match(r"# (\w+\.py)\n", block):  # the others are tested in their rooms
            (tmp_path / name[1]).write_text(block)
    commands = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.S)).splitlines()
    assert len(commands) >= 6
    for command in commands:
        verb, *rest = command.removeprefix("gsf ").split()
        words = [str(dataset.path) if word == "DATASET" else word for word in rest]
        code = cli.main([verb, *words, *(SMALL if verb == "train" else [])])
        assert code == 0, (command, capsys.readouterr())
    assert "BROKEN" not in capsys.readouterr().out


@pytest.mark.parametrize("registry", ["bases", "losses"])
def test_entry_points_are_named_as_the_page_says(registry):
    from gsf.learn import bases, losses

    assert {"bases": bases, "losses": losses}[registry]._registry.group == f"gsf.{registry}"
    assert f"`gsf.{registry}`" in PAGE
