"""Settings as users write them, owner.option=value; the owner is a stage, a base or a loss."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

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


class Setting(NamedTuple):
    owner: str
    option: str
    value: Any


def parse(word: str) -> Setting:
    key, given, text = word.partition("=")
    owner, _, option = key.partition(".")
    if not (given and owner and option):
        raise UserError(f"--set {word} is not owner.option=value.")
    try:
        return Setting(owner, option, parse_json(text))
    except ValueError:
        return Setting(owner, option, text)


def check(word: str, where: str, known: Mapping[str, Any]) -> None:
    """One sentence unless the word sets an option of one of the `known` owners, name -> options."""
    owner, option, _ = parse(word)
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
