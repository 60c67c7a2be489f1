"""What tyro cannot read is one sentence, for as long as its private module is as it was."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from gsf.core import refusals
from gsf.core.command_line import parse
from gsf.core.errors import UserError
from gsf.core.options import Options

CHANGED = "tyro has changed its private events: mend core/refusals.py, or lower tyro's upper bound"
USED = {
    "MissingArgs": {"missing_arguments"},
    "InvalidChoice": {"argument", "value", "choices"},
    "BadValue": {"argument"},
    "UnrecognizedArgs": {"tokens"},
    "InstantiationFailure": {"message", "argument"},
}


@dataclass(frozen=True)
class Config(Options):
    """What it does."""

    out: Path
    n: int = 1
    kind: Literal["mc", "td"] = "mc"
    fast: bool = False


def test_tyros_private_events_are_as_they_were():
    assert hasattr(refusals._events, "on_parse_error"), CHANGED
    for name, attributes in USED.items():
        event = getattr(refusals._events, name, None)
        assert event is not None, f"{CHANGED}: no {name}"
        fields = {x.name for x in dataclasses.fields(event)}
        assert attributes <= fields, f"{CHANGED}: {name} has {fields}"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "gsf small needs --out; `gsf small --help` explains all options."),
        (["--out", "a", "b"], "'b' is one word too many; "),
        (["--out"], "--out needs a value; "),
        (["--out", "a", "--n", "many"], "--n must be a whole number, got 'many'."),
        (["--out", "a", "--kind", "tdd"], "--kind 'tdd': did you mean td? choose one of mc, td."),
        (["--out", "a", "--fast=x"], "--fast takes no value, but 'x' was given; "),
    ],
)
def test_each_kind_of_mistake_has_a_sentence(argv, sentence):
    with pytest.raises(UserError) as refused:
        parse("small", Config, argv)
    assert str(refused.value).startswith(sentence), CHANGED


def test_a_tyro_without_them_says_it_in_a_box_and_exits_as_before(monkeypatch, capsys):
    monkeypatch.setattr(refusals, "_events", None)
    with pytest.raises(SystemExit) as stopped:
        parse("small", Config, ["--out", "a", "--n", "many"])
    assert stopped.value.code == 2
    assert "--n" in capsys.readouterr().err
