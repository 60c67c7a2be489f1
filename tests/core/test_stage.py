"""One identity: what decides an output, what does not, and what is said of another in its place."""

import dataclasses
import subprocess
import sys
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import manifests
from gsf.behaviour.collect import CollectConfig
from gsf.core.errors import UserError
from gsf.core.files import atomic_directory, locked
from gsf.core.options import Extendable, Incidental, Input, Role, roles
from gsf.core.stage import Identity, kinds, read_manifest
from gsf.data.importers import ImportConfig
from gsf.data.materialise import MaterialiseConfig
from gsf.gvf.fit import FitConfig
from gsf.gvf.label import LabelConfig
from gsf.learn.train import TrainConfig
from gsf.studies.similar import SimilarConfig

STAGES: dict[str, Any] = {
    "policy": CollectConfig(game="coinrun"),
    "recording": CollectConfig(game="coinrun", player="random"),
    "dataset": MaterialiseConfig("coinrun", Path("out")),
    "imported": ImportConfig("folder", Path("out")),
    "gvf": FitConfig(Path("data"), Path("out"), estimator="td"),
    "labels": LabelConfig(Path("gvf"), Path("out")),
    "run": TrainConfig(dataset=Path("data"), out=Path("out"), method="gsf-reward").resolved(),
    "similar": SimilarConfig("coinrun", Path("policy"), Path("out")),
}
# An output is the same wherever it lies and whatever it was made on; this is said at the field.
PLACES = {"out", "threads", "device", "dataset", "gvf", "labels", "policy", "recording", "source"}


def identity(kind: str, config: Any) -> Identity:
    return Identity.of({"imported": "dataset"}.get(kind, kind), config, {"from": "a digest"})


def other(value: Any) -> Any:
    """A value of the same type that differs."""
    if dataclasses.is_dataclass(value):
        name = dataclasses.fields(value)[-1].name
        return {**vars(value), name: other(getattr(value, name))}
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value / 2 if isinstance(value, float) and value else value + 1
    if isinstance(value, tuple):
        return (*value, "another")
    return Path("elsewhere") if isinstance(value, Path) or value is None else f"{value}-other"


@pytest.mark.parametrize(
    ("kind", "option"),
    [(kind, f.name) for kind, config in STAGES.items() for f in dataclasses.fields(config)],
)
def test_an_incidental_option_changes_no_digest_and_any_other_does(kind: str, option: str):
    config = STAGES[kind]
    changed = object.__new__(type(config))  # unchecked: not every combination makes sense
    for name, value in vars(config).items():
        object.__setattr__(changed, name, other(value) if name == option else value)
    same = identity(kind, config).digest() == identity(kind, changed).digest()
    aside = roles(type(config)).get(option) in (Role.INCIDENTAL, Role.INPUT)
    assert same == aside
    # Of labels it says what they are made of, not where that lies.
    assert aside or option not in PLACES or (kind, option) == ("labels", "source")


@pytest.mark.parametrize("kind", STAGES)
def test_every_path_has_a_role(kind: str):
    config = type(STAGES[kind])
    hints = typing.get_type_hints(config, include_extras=True)
    paths = {name for name, hint in hints.items() if "pathlib" in str(hint)}
    assert paths <= set(roles(config))


def test_every_kind_is_declared_beside_its_options_and_read_without_torch():
    kinds_of = {"dataset", "gvf", "labels", "policy", "recording", "report", "run", "similar"}
    code = f"import sys; from gsf.core.stage import kinds; assert {kinds_of} <= set(kinds())"
    code += "; assert not {'torch', 'matplotlib', 'procgen'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@dataclass(frozen=True)
class Toy:
    out: Incidental[Path]
    data: Input[Path]
    colour: str = "red"
    size: int = 1
    steps: Extendable[int] = 10


def toy(out: Path, inputs: dict[str, str] | None = None, **options: Any) -> Identity:
    return Identity.of("tuning", Toy(out, Path("data"), **options), inputs or {"data": "abc"})


def test_an_output_written_aside_is_whole_once_it_is_there(tmp_path: Path):
    out = tmp_path / "out"
    assert not toy(out).is_done(out)
    with atomic_directory(out) as aside:
        toy(out).write(aside, "content", extra=1)
    assert toy(out).is_done(out)
    manifest = read_manifest(out, "tuning")
    assert (manifest["extra"], manifest["inputs"]) == (1, {"data": "abc"})
    assert manifest["digest"] == toy(out).digest("content") != toy(out).digest("other content")


def test_an_output_made_in_place_is_begun_then_done(tmp_path: Path):
    out = tmp_path / "out"
    with locked(out):
        toy(out).begin(out, game="maze")
        assert not toy(out).is_done(out)
        with pytest.raises(UserError, match="is not finished"):
            read_manifest(out, "tuning")
        assert read_manifest(out, "tuning", whole=False)["game"] == "maze"
        toy(out).finish(out, step=10)
    assert toy(out).is_done(out)
    toy(out).begin(out)  # changes nothing of what is done
    assert toy(out).is_done(out)


def test_a_finished_output_may_be_given_more_of_an_extendable_option(tmp_path: Path):
    out = tmp_path / "out"
    toy(out).begin(out)
    toy(out).finish(out)
    longer = toy(out, steps=20)
    assert not longer.is_done(out)
    longer.begin(out)
    assert not (out / "DONE").exists()
    assert read_manifest(out, "tuning", whole=False)["config"]["steps"] == 20
    assert not toy(out, steps=5).is_done(out)  # how long is open while it is made
    longer.finish(out)
    with pytest.raises(UserError, match="--steps 20, not 10"):
        toy(out).is_done(out)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"colour": "blue", "size": 2}, "holds a tuning with --colour red, not blue"),
        ({"inputs": {"data": "xyz"}}, "holds a tuning made from another data"),
        ({"inputs": {"data": "abc", "labels": "new"}}, "holds a tuning made from another labels"),
    ],
)
def test_the_most_telling_difference_is_named(tmp_path: Path, asked: dict[str, Any], said: str):
    out = tmp_path / "out"
    toy(out).begin(out)
    with pytest.raises(UserError, match=f"{said}; remove it or choose another --out"):
        toy(out, **asked).is_done(out)


def test_what_a_kill_leaves_behind_is_nothing_and_anything_else_is_refused(tmp_path: Path):
    out = tmp_path / "out"
    out.mkdir()
    (out / ".lock").touch()
    (out / ".manifest.json.1.partial").write_text("{")
    assert not toy(out).is_done(out)
    with atomic_directory(out) as aside:
        toy(out).write(aside)
    assert toy(out).is_done(out)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").touch()
    with pytest.raises(UserError, match="exists and is not a tuning"):
        toy(mine).is_done(mine)


def test_another_kind_or_format_is_named(tmp_path: Path):
    manifests.write("labels", tmp_path)
    with pytest.raises(UserError, match="holds labels, not a run"):
        read_manifest(tmp_path, "run")
    manifests.change(tmp_path, format=99)
    with pytest.raises(
        UserError, match=f"format 99; this gsf reads format {kinds()['labels'].format}"
    ):
        read_manifest(tmp_path, "labels")
