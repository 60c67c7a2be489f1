"""A command line into options: tyro reads them, presets are their defaults, errors one sentence."""

import copy
import dataclasses
import itertools
import typing
from typing import Annotated, Any, NoReturn

import tyro
from tyro._errors import (
    BadValue,
    InstantiationFailure,
    InvalidChoice,
    MissingArgs,
    ParseErrorEvent,
    UnrecognizedArgs,
    on_parse_error,
)

from gsf.core.errors import UserError, did_you_mean
from gsf.core.options import Range, hints_of, range_of
from gsf.core.presets import PRESETS, preset_values

HELP = frozenset({"-h", "--help"})
GENEROUS = 10**5  # whoever comes to such an end knows: help leaves it out


def parse(verb: str, config: Any, argv: list[str]) -> Any:
    """The options of a verb; --preset comes first because it sets their defaults."""
    _refuse_empty(argv)
    argv, preset = take_option(argv, "--preset", f"one of {', '.join(PRESETS)}")
    if preset and not any(verb in verbs for verbs in PRESETS.values()):
        raise UserError(f"gsf {verb} has no presets; leave --preset out.")
    if hasattr(config, "for_command_line"):  # options that depend on another option
        config = config.for_command_line(argv)
    about = (config.__doc__ or "").strip()
    having = [known for known, verbs in PRESETS.items() if verb in verbs]
    if having:
        about += f"\n\n--preset {{{','.join(having)}}} replaces the defaults shown below"
        about += f" (shown: {preset})." if preset else "."
    if HELP & {*argv}:
        config = _with_ranges(config)
    default = _defaults(config, preset_values(verb, preset))

    def refuse(event: ParseErrorEvent) -> NoReturn:
        raise UserError(_sentence(event, verb, argv, config))

    with on_parse_error(refuse):
        return tyro.cli(config, prog=f"gsf {verb}", description=about, args=argv, default=default)


def _refuse_empty(argv: list[str]) -> None:
    """An empty path would be the current directory: not what `--out $MISSPELT` asks for."""
    for before, word in itertools.pairwise(["", *argv]):
        option = word.partition("=")[0] if "=" in word else before
        if not word or (word.startswith("--") and word.endswith("=")):
            what = option if option.startswith("--") else "a word"
            raise UserError(f"{what} is empty: is a variable of your shell not set?")


def take_option(argv: list[str], option: str, what: str) -> tuple[list[str], str | None]:
    """argv without `option VALUE` (or `option=VALUE`), and the value."""
    for at, word in enumerate(argv):
        if word.startswith(f"{option}="):
            return argv[:at] + argv[at + 1 :], word.split("=", 1)[1]
        if word == option:
            if at + 1 == len(argv):
                raise UserError(f"{option} needs a value: {what}.")
            return argv[:at] + argv[at + 2 :], argv[at + 1]
    return argv, None


def _defaults(config: Any, chosen: dict[str, Any]) -> Any:
    """An instance for tyro to take defaults from; required options, still missing, go unchecked."""
    instance = object.__new__(config)
    for field in dataclasses.fields(config):
        value = chosen.get(field.name, field.default)
        if value is dataclasses.MISSING:
            make = field.default_factory
            value = make() if callable(make) else tyro.MISSING
        object.__setattr__(instance, field.name, value)
    return instance


def _with_ranges(config: Any) -> Any:
    """The same options; their help says which values there are, and of None what it is for."""
    shown = []
    for field in dataclasses.fields(config):
        hint, made = hints_of(config)[field.name], copy.copy(field)
        if inner := _inside(hint):
            made.default_factory = inner = _with_ranges(inner)
            marks = getattr(hint, "__metadata__", ())
            hint = Annotated[inner, *marks] if marks else inner
        else:
            known = range_of(hint)
            known = known if known is not None and known.high < GENEROUS else None
            if known is not None or field.default is None:
                hint = Annotated[hint, tyro.conf.arg(help_behavior_hint=_hint(known))]
        shown.append((field.name, hint, made))
    with_ranges: Any = dataclasses.make_dataclass(
        config.__name__, shown, bases=(config,), frozen=True, kw_only=True
    )
    with_ranges.__doc__ = config.__doc__
    return with_ranges


def _inside(hint: Any) -> Any:
    """The options that an option is made of, as those of a base or a loss."""
    kind = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    return kind if dataclasses.is_dataclass(kind) else None


def _hint(known: Range | None) -> Any:
    """A default of None says nothing: the option's own words do."""

    def hint(default: str) -> str:
        said = ["optional" if default == "None" else f"default: {default}"]
        return f"({'; '.join(said + [str(known)] * (known is not None))})"

    return hint


def _sentence(event: ParseErrorEvent, verb: str, argv: list[str], config: Any) -> str:
    """Unknown options come first: what is missing may be one of them, misspelt."""
    more = f"`gsf {verb} --help` explains all options."
    if unknown := _unknown_words(argv, config):
        if "." in unknown[0]:  # of a base or a loss, which help shows with a method alone
            method = take_option(argv, "--method", "")[1] or getattr(config, "method", "NAME")
            more = f"`gsf {verb} --method {method} --help` lists those of {method}."
        meant = did_you_mean(unknown[0].replace("_", "-"), _known_words(config))
        return f"unknown option {unknown[0]}; {meant}{more}"
    if isinstance(event, UnrecognizedArgs):
        word = event.tokens[0]
        flags = [x.partition("=")[0] for x in argv if x.startswith("--") and x.endswith(f"={word}")]
        if flags:
            return f"{flags[0]} takes no value, but {word!r} was given; {more}"
        return f"{word!r} is one word too many; {more}"
    if isinstance(event, MissingArgs):
        missing = [_name(x.arg) for x in event.missing_arguments]
        return f"gsf {verb} needs {' and '.join(missing)}; {more}"
    if isinstance(event, InvalidChoice):
        meant = did_you_mean(event.value, event.choices)
        known = ", ".join(event.choices)
        return f"{_name(event.argument)} {event.value!r}: {meant}choose one of {known}."
    if isinstance(event, BadValue):
        return f"{_name(event.argument)} needs a value; {more}"
    if isinstance(event, InstantiationFailure):
        who = "" if event.argument is None else f"{_name(event.argument)} "
        for kind, wanted in (("int()", "a whole number"), ("to float", "a number")):
            if kind in event.message:
                return f"{who}must be {wanted}, got {event.message.partition(': ')[2]}."
        return f"{who}cannot be read: {' '.join(event.message.split())}; {more}"
    return f"these options of gsf {verb} cannot be read ({type(event).__name__}); {more}"


def _unknown_words(argv: list[str], config: Any) -> list[str]:
    given = [word.partition("=")[0] for word in argv if word.startswith("--") and word != "--"]
    known = _known_words(config)
    return [word for word in given if word.replace("_", "-") not in known]


def _known_words(config: Any, where: str = "") -> list[str]:
    words = []
    for name, hint in hints_of(config).items():
        marks = getattr(hint, "__metadata__", ())
        if tyro.conf.Suppress in marks:
            continue
        inside = f"{where}{name}".replace("_", "-")
        if inner := _inside(hint):
            unprefixed = any(getattr(mark, "name", None) == "" for mark in marks)
            words += _known_words(inner, where if unprefixed else f"{inside}.")
            continue
        *outer, last = inside.split(".")
        words += [f"--{inside}", f"--{'.'.join([*outer, f'no-{last}'])}"]
    return words


def _name(argument: Any) -> str:
    """As a user writes it: --lr, or DATASET for one without dashes."""
    lowered = argument.lowered
    if argument.is_positional():
        return str(lowered.name_or_flags[0]).upper()
    return str(lowered.name_or_flags[0])
