"""A command line into options: the groups of help, and what tyro says of what it cannot read."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import pytest
import tyro

from gsf import cli
from gsf.core.command_line import as_file, parse
from gsf.core.errors import UserError
from gsf.core.options import Count, Group, Options, docs_of, hints_of
from gsf.learn.options import TrainConfig
from gsf.sweep.options import RunConfig

MOST = 16  # options under a heading


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
    assert sorted(names) == sorted({*hints_of(config)} - {"parts", "options"})
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


@pytest.fixture
def file(tmp_path):
    """Options as a JSON file; returns the words that name it."""

    def write(options):
        path = tmp_path / "options.json"
        path.write_text(options if isinstance(options, str) else json.dumps(options))
        return ["--config", str(path)]

    return write


def test_a_file_sets_options_which_the_command_line_overrules(file):
    words = file({"preset": "smoke", "out": "a", "grad_steps": 7, "cql": {"alpha": 2.0}})
    config = parse("train", TrainConfig, ["data", "--grad-steps", "9", "--cql.no-double", *words])
    assert (config.out, config.grad_steps, config.batch) == (Path("a"), 9, 32)
    assert config.parts == {"cql": {"alpha": 2.0, "double": False}}
    assert parse("train", TrainConfig, ["data", *words, "--preset", "paper"]).batch == 1024


def test_what_is_printed_can_be_given_back(file):
    words = ["data", "--out", "a", "--method", "gsf-reward", "--gsf.tau", "0.2", "--on", "bc"]
    config = parse("train", TrainConfig, words).resolved()
    printed = json.loads(json.dumps(as_file(config)))
    assert (printed["method"], printed["gsf"]["tau"]) == ("gsf-reward", 0.2)
    assert printed["bc"] == {"teacher": None}
    assert parse("train", TrainConfig, file(printed)).resolved() == config


def test_options_of_a_sweep_have_their_owners_name(file):
    words = ["--methods", "bc", "gsf-reward", "--train.grad-steps", "9", "--gsf.tau=0.2"]
    words += ["--evaluate.modes", "greedy", "sampled", "--fit.no-diagnose"]
    config = parse("run", RunConfig, words)
    assert config.options == {
        "train.grad_steps": 9,
        "gsf.tau": 0.2,
        "evaluate.modes": ["greedy", "sampled"],
        "fit.diagnose": False,
    }
    nested = {"methods": ["bc", "gsf-reward"], "train": {"grad_steps": 9, "lr": 0.1}}
    given = parse("run", RunConfig, [*file(nested), "--train.lr", "1e-3"])
    assert given.methods == ("bc", "gsf-reward")
    assert given.options == {"train.grad_steps": 9, "train.lr": 0.001}


def test_a_sweep_that_is_printed_can_be_given_back(file):
    words = [
        "--preset",
        "smoke",
        "--methods",
        "bc",
        "gsf-reward+label.n_bins=3",
        "--cql.alpha",
        "2",
    ]
    config = parse("run", RunConfig, words).resolved()
    printed = as_file(config)
    assert (printed["train"]["grad_steps"], printed["cql"]["alpha"]) == (20, 2.0)
    assert not {"seed", "dataset", "out"} & printed["train"].keys()
    assert parse("run", RunConfig, file(printed)).resolved() == config
    tuned = as_file(parse("run", RunConfig, [*words, "--tune", "9"]).resolved())
    assert ("train" in tuned, tuned["cql"], "fit" in tuned) == (False, {"alpha": 2.0}, True)


@pytest.mark.parametrize(
    ("verb", "config", "options", "message"),
    [
        (
            "train",
            TrainConfig,
            {"grad_step": 3},
            "unknown option 'grad_step'; did you mean grad_",
        ),
        ("train", TrainConfig, {"gsf": {"tau": 3}}, "method cql has no gsf to take options"),
        ("train", TrainConfig, {"cql": {"alpah": 3}}, "unknown option cql.'alpah'"),
        ("train", TrainConfig, {"grad_steps": "3"}, "grad_steps' must be <class 'int'>, got '3'"),
        ("train", TrainConfig, {"lr": -1}, "--lr must be above 0"),
        ("run", RunConfig, {"sedes": 3}, "unknown option 'sedes'; did you mean seeds?"),
        ("run", RunConfig, {"trian": {"lr": 3}}, "did you mean train?"),
        ("run", RunConfig, {"train": {"lrr": 3}}, "train has no option lrr; did you mean lr?"),
        ("run", RunConfig, {"train": {"seed": 3}}, "gsf run itself decides seed"),
        ("run", RunConfig, "{", "is not JSON"),
        ("run", RunConfig, "[]", "is not a JSON object of options"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(file, verb, config, options, message):
    with pytest.raises(UserError, match=re.escape(message)):
        parse(verb, config, [*(["a", "--out", "b"] * (verb == "train")), *file(options)]).resolved()


def test_a_verb_without_presets_takes_no_file(file):
    with pytest.raises(UserError, match="gsf data list takes no --config"):
        parse("data list", Options, file({}))
