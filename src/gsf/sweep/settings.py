"""Options of a sweep by their one name, owner.option; the owner is a stage, a base or a loss."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from gsf.core.errors import UserError, did_you_mean
from gsf.core.schema import parse_json
from gsf.data.materialise import MaterialiseConfig
from gsf.evaluation.options import EvaluateConfig
from gsf.gvf.options import FitConfig, LabelConfig
from gsf.learn.options import TrainConfig

STAGES: dict[str, Any] = {
    "materialise": MaterialiseConfig,
    "fit": FitConfig,
    "label": LabelConfig,
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
}
# Options of a stage that follow from what is swept.
GIVEN = {
    "materialise": ("recording", "out"),
    "fit": ("dataset", "out", "cumulant", "seed"),
    "label": ("gvf", "out", "dataset", "seed"),
    "train": ("dataset", "out", "labels", "method", "name", "seed", "parts"),
    "evaluate": ("agent", "out", "game", "dataset", "env", "held_out"),
}


def parse(word: str) -> tuple[str, Any]:
    """The name and the value of `owner.option=value`."""
    name, given, text = word.partition("=")
    owner, _, option = name.partition(".")
    if not (given and owner and option):
        raise UserError(f"{word} is not owner.option=value.")
    try:
        return name, parse_json(text)
    except ValueError:
        return name, text


def options_of(owner: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of one owner, by their own names."""
    before = f"{owner}."
    return {x.removeprefix(before): options[x] for x in options if x.startswith(before)}


def check(name: str, where: str, known: Mapping[str, Any]) -> None:
    """One sentence unless it is an option of one of the `known` owners, name -> options."""
    owner, _, option = name.partition(".")
    if owner not in known:
        meant = did_you_mean(owner, known)
        raise UserError(f"{where}: {meant}choose an owner among {', '.join(known)}.")
    if option in GIVEN.get(owner, ()):
        raise UserError(f"{where}: gsf run itself decides {option}; leave it out.")
    options = [field.name for field in fields(known[owner])]
    if option not in options:
        meant = did_you_mean(option, options)
        raise UserError(
            f"{where}: {owner} has no option {option}; {meant}there are {', '.join(options)}."
        )
