"""A command line into options: the groups of help, and what tyro says of what it cannot read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import pytest
import tyro

from gsf import cli
from gsf.core.command_line import parse
from gsf.core.errors import UserError
from gsf.core.options import Count, Group, Options, docs_of, hints_of

MOST = 15  # options under a heading


@pytest.fixture
def shown(capsys, monkeypatch):
    """The help of a verb: heading -> its options as they are written there."""
    monkeypatch.setenv("COLUMNS", "80")

    def help_of(verb, config, *argv):
        with pytest.raises(SystemExit):
            parse(verb, config, [*argv, "--help"])
        groups, lines = {}, capsys.readouterr().out.splitlines()
        assert max(len(x) for x in lines if x.startswith((" ", "│"))) <= 80
        for line in lines:
            if heading := re.match(r"[╭─ ]+(positional arguments|([\w-]+ )*options)\W*$", line):
                under = groups.setdefault(heading[1], [])
            elif option := re.match(r"[│ ] \[?(--[\w.-]+|[A-Z_]+)\b", line):
                under.append(option[1])
        return groups

    return help_of


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_option_stands_under_one_heading_among_few_and_explains_itself(shown, verb):
    config = cli.config_of(cli.VERBS[verb])
    groups = shown(verb, config)
    names = [x.lstrip("-").replace("-", "_").lower() for group in groups.values() for x in group]
    assert sorted(names) == sorted({*hints_of(config)} - {"parts"})
    assert max(map(len, groups.values())) <= MOST
    headings = [f"{group.value} options" for group in Group]
    titled = [x for x in groups if x not in ("positional arguments", "options")]
    assert titled == [x for x in headings if x in titled]


@dataclass(frozen=True)
class Part(Options):
    alpha: Annotated[float, Group.PPO] = 1.0
    """Its weight."""
    fast: bool = True


@dataclass(frozen=True, kw_only=True)
class Small(Options):
    """What it is for."""

    last: Annotated[int, Group.RARE] = 3
    """What nobody asks for,
    on two lines."""


@dataclass(frozen=True, kw_only=True)
class Config(Small):
    """What it does."""

    out: Path
    """Where."""
    many: tuple[int, ...] = ()
    width: Annotated[Count, Group.PLANNING] = 1
    """How wide."""
    depth: int | None = None
    """How deep."""
    parts: Annotated[Mapping[str, Any], tyro.conf.Suppress] = field(default_factory=dict)

    @classmethod
    def owners(cls, given):
        return {"a_part": Part}

    @classmethod
    def owned(cls, options):
        return {"parts": options}


def test_a_heading_holds_until_the_next_one_of_its_class_and_owners_have_their_own(shown):
    assert shown("small", Config) == {
        "options": ["--out", "--many"],
        "a-part options": ["--a-part.alpha", "--a-part.fast"],
        "planning options": ["--width", "--depth"],
        "rarely needed options": ["--last"],
    }
    assert docs_of(Config)["last"] == "What nobody asks for, on two lines."


def test_of_an_owner_only_what_is_given_is_taken():
    words = ["--out", "x", "--depth", "2", "--last", "4"]
    plain = Config(out=Path("x"), depth=2, last=4)
    assert parse("small", Config, words) == plain
    for more, options in [
        (["--a-part.alpha", "3"], {"alpha": 3.0}),
        (["--a_part.alpha=1"], {"alpha": 1.0}),
        (["--a-part.no-fast"], {"fast": False}),
    ]:
        read = parse("small", Config, [*words, *more])
        assert read == replace(plain, parts={"a_part": options})
    with pytest.raises(UserError, match=r"unknown option --a-part.alhpa; did you mean --a-part.al"):
        parse("small", Config, [*words, "--a-part.alhpa", "3"])
