"""The code of docs/extending.md runs, and does what the page says."""

import re
from pathlib import Path

import pytest

from gsf import cli
from gsf.data.dataset import Batch, Dataset
from gsf.learn.context import Context, Spec

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text()
SMALL = {
    "train": ["--grad-steps", "2", "--batch", "8"],
    "fit": ["--no-diagnose", "--allow-small-levels"],
    "label": ["--allow-small-levels"],
}


def test_every_block_runs(dataset, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        name = re.match(r"# (\w+\.py)\n", block)
        (tmp_path / name[1]).write_text(block)
    commands = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.S)).splitlines()
    assert len(commands) >= 12
    for command in commands:
        verb, *rest = command.removeprefix("gsf ").split()
        words = [str(dataset.path) if word == "DATASET" else word for word in rest]
        if verb == "train" and "--encoder" not in words:
            words += ["--encoder", "impala_small"]
        code = cli.main([verb, *words, *SMALL.get(verb, [])])
        assert code == 0, (command, capsys.readouterr())
    assert "BROKEN" not in capsys.readouterr().out


@pytest.mark.parametrize("registry", ["bases", "losses"])
def test_entry_points_are_named_as_the_page_says(registry):
    from gsf.learn import bases, losses

    assert {"bases": bases, "losses": losses}[registry]._registry.group == f"gsf.{registry}"
    assert f"`gsf.{registry}`" in PAGE


@pytest.mark.parametrize("thing", [Spec, Context, Batch, Dataset], ids=lambda x: x.__name__)
def test_the_tables_of_fields_are_complete(thing, dataset):
    table = re.search(rf"### `{thing.__name__}`\n(.*?)\n##", PAGE, re.S)[1]
    rows = re.findall(r"(?m)^\| (`.*?`) \|", table)
    shown = [name for row in rows for name in re.findall(r"`(\w+)", row)]
    there = {*vars(thing), *getattr(thing, "__dataclass_fields__", ())}
    there |= {*vars(dataset)} if thing is Dataset else set()
    assert sorted(shown) == sorted(name for name in there if not name.startswith("_"))
