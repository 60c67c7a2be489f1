"""A command line into options: tyro reads them, presets are their defaults, errors one sentence."""

import dataclasses
import inspect
import itertools
from collections.abc import Mapping
from copy import copy
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_type_hints

import tyro

from gsf.core import refusals
from gsf.core.errors import UserError, did_you_mean
from gsf.core.options import Group, docs_of, groups_of, hints_of, range_of, to_json, typed
from gsf.core.presets import PRESETS, preset_values
from gsf.core.schema import parse_json

_GROUP, _OWNER = "group_", "owner_"  # names of such fields begin so
GENEROUS = 10**5  # help shows no range whose end is that far off


def parse(verb: str, config: Any, argv: list[str]) -> Any:
    """The options of a verb; --preset and --config come first because they set defaults."""
    _refuse_empty(argv)
    argv, preset = take_option(argv, "--preset", f"one of {', '.join(PRESETS)}")
    argv, path = take_option(argv, "--config", "a JSON file, as --show-config prints it")
    having = [known for known, verbs in PRESETS.items() if verb in verbs]
    for option in [x for x, given in (("--preset", preset), ("--config", path)) if given]:
        if not having:
            raise UserError(f"gsf {verb} takes no {option}; leave it out.")
    chosen, of_owners, in_file = _read(verb, Path(path), config) if path else ({}, {}, {})
    given = in_file | _words(argv)
    chosen = preset_values(verb, preset or chosen.pop("preset", None)) | chosen
    owners = config.owners(given) if hasattr(config, "owners") else {}
    about = inspect.cleandoc(config.__doc__ or "")
    if having:
        about += f"\n\n--preset {{{','.join(having)}}} replaces the defaults shown below"
        about += f" (shown: {preset})." if preset else "."
        about += " --config FILE has options as JSON, which those of the command line overrule;"
        about += " --show-config prints all that would be done in this form, and does nothing."
    asked = "help" in given
    shown = _shown(config, chosen, owners, explained=asked)

    def refuse(sentence: str) -> NoReturn:
        raise UserError(_unknown(verb, argv, config, owners) or sentence)

    with refusals.heard(verb, argv, refuse):
        read = tyro.cli(
            shown,
            prog=f"gsf {verb}",
            description=about,
            args=argv,
            config=(tyro.conf.PositionalMetavarFromFieldName, *[tyro.conf.DisallowNone] * asked),
        )
    values, those = _taken(read, owners, _words(argv))
    merged = {x: of_owners.get(x, {}) | those.get(x, {}) for x in (*of_owners, *those)}
    return config(**values, **(config.owned(merged) if merged else {}))


def _read(
    verb: str, path: Path, config: Any
) -> tuple[dict[str, Any], dict[str, dict[str, Any]], dict[str, tuple[str, ...]]]:
    """A file of options: those of a config, those of owners, and all as words of a command line."""
    if not path.is_file():
        raise UserError(f"there is no file {path} to take options from.")
    try:
        found = parse_json(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}).") from None
    if not isinstance(found, dict):
        raise UserError(f"{path} is not a JSON object of options.")
    plain = get_type_hints(config)
    hints = {x: plain[x] for x, hint in hints_of(config).items() if not _is_suppressed(hint)}
    values, of_owners = dict[str, Any](), dict[str, dict[str, Any]]()
    words = dict[str, tuple[str, ...]]()
    for name, value in found.items():
        if isinstance(value, dict) and hasattr(config, "owners") and name not in hints:
            of_owners[name] = value
            words |= {f"{name}.{x}": _as_words(inner) for x, inner in value.items()}
        elif name in hints or name == "preset":
            values[name] = typed(hints.get(name, str), value, f"{path}: {name}")
            words[name] = _as_words(value)
        else:
            more = did_you_mean(name, hints) or f"`gsf {verb} --help` explains all options."
            raise UserError(f"{path}: unknown option {name!r}; {more.strip()}")
    return values, of_owners, words


def _as_words(value: Any) -> tuple[str, ...]:
    return () if value is None else tuple(map(str, value if isinstance(value, list) else [value]))


def as_file(config: Any) -> dict[str, Any]:
    """What --config takes and --show-config prints."""
    values: dict[str, Any] = to_json(config)
    for name, hint in hints_of(config.__class__).items():
        for key, value in values.pop(name).items() if _is_suppressed(hint) else ():
            owner, option, inner = key.partition(".")
            if option:
                values.setdefault(owner, {})[inner] = value
            else:
                values[owner] = value
    return values


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


def _words(argv: list[str]) -> dict[str, tuple[str, ...]]:
    """Options of the command line as they are called in Python, with the words behind each."""
    found: dict[str, tuple[str, ...]] = {}
    name = ""
    for word in argv:
        if word.startswith("--") or word == "-h":
            option, given, value = word.partition("=")
            name = _python_name("help" if word == "-h" else option.removeprefix("--"))
            found[name] = (value,) if given else ()
        elif name:
            found[name] += (word,)
    return found


def _python_name(option: str) -> str:
    return option.replace("-", "_")


def _shown(
    config: Any, chosen: Mapping[str, Any], owners: Mapping[str, Any], explained: bool
) -> Any:
    """The options as tyro reads and shows them: those of each group are a dataclass of their own,
    and so are those of each owner.

    Nothing is checked before there is a config.
    """
    groups, fields = groups_of(config), _fields(config, chosen, explained)
    root = [x for x in fields if groups[x[0]] is None]
    for number, (owner, kind) in enumerate(owners.items()):
        own: Any = _made(_fields(kind, {}, explained, owned=True))
        titled: Any = Annotated[own, tyro.conf.arg(name=owner, help="")]
        root.append((f"{_OWNER}{number}", titled, dataclasses.field()))
    for group in Group:
        if inside := [x for x in fields if groups[x[0]] is group]:
            titled = Annotated[_made(inside), tyro.conf.arg(name=group.value, help="")]
            omitted: Any = tyro.conf.OmitArgPrefixes
            root.append((f"{_GROUP}{group.name}", omitted[titled], dataclasses.field()))
    return _made(root)


def _fields(
    config: Any, chosen: Mapping[str, Any], explained: bool, owned: bool = False
) -> list[Any]:
    """The fields of such a dataclass, with the chosen values as defaults."""
    docs, fields = docs_of(config) if explained else {}, list[Any]()
    for field in dataclasses.fields(config):
        name, hint = field.name, hints_of(config)[field.name]
        if _is_suppressed(hint):
            continue
        if owned and _is_needed(field):  # given by whoever names the owner, who refuses it
            fields.append((name, str | None, dataclasses.field(default=None)))
        else:
            value = partial(chosen.get, name)
            made = dataclasses.field(default_factory=value) if name in chosen else copy(field)
            fields.append((name, Annotated[hint, _explained(field, hint, docs.get(name))], made))
    return fields


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is field.default_factory  # both are MISSING


def _is_suppressed(hint: Any) -> bool:
    """In Python alone, not on the command line."""
    return tyro.conf.Suppress in getattr(hint, "__metadata__", ())


def _made(fields: list[Any]) -> Any:
    made = dataclasses.make_dataclass("Options", fields, frozen=True, kw_only=True)
    made.__doc__ = ""
    return made


def _taken(
    read: Any, owners: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What tyro has read: the options of a config, and those of owners, if they were given."""
    values, names = dict[str, Any](), list(owners)
    of_owners: dict[str, dict[str, Any]] = {}
    for field in dataclasses.fields(read):
        value = getattr(read, field.name)
        if not dataclasses.is_dataclass(value):
            values[field.name] = value
            continue
        inside = {x.name: getattr(value, x.name) for x in dataclasses.fields(value)}
        if field.name.startswith(_GROUP):
            values |= inside
            continue
        owner = names[int(field.name.removeprefix(_OWNER))]
        flags = {x.replace(".no_", ".") for x in given} | given.keys()
        its = {k: to_json(x) for k, x in inside.items() if _python_name(f"{owner}.{k}") in flags}
        if its:
            of_owners[owner] = its
    return values, of_owners


def _explained(field: dataclasses.Field[Any], hint: Any, doc: str | None) -> Any:
    """What help says of an option. A default of None or "" is shown as `optional`."""
    known = range_of(hint)
    ends = [str(known)] if known is not None and known.high < GENEROUS else []

    def hinted(default: str) -> str:
        value = "optional" if default in ("None", "") else f"default: {default}"
        return f"({'; '.join(['required' if _is_needed(field) else value, *ends])})"

    return tyro.conf.arg(help=doc, help_behavior_hint=hinted)


def _unknown(verb: str, argv: list[str], config: Any, owners: Mapping[str, Any]) -> str:
    """Unknown options come first: what is missing may be one of them, misspelt. "": none."""
    known = _flags(config, "--")
    for owner, kind in owners.items():
        known += _flags(kind, f"--{owner}.")
    given = [word.partition("=")[0] for word in argv if word.startswith("--") and word != "--"]
    unknown = [word for word in given if _python_name(word) not in map(_python_name, known)]
    if not unknown:
        return ""
    more = f"`gsf {verb} --help` explains all options."
    if "." in unknown[0] and hasattr(config, "method"):  # shown with a method alone
        method = take_option(argv, "--method", "")[1] or config.method
        more = f"`gsf {verb} --method {method} --help` lists those of {method}."
    meant = did_you_mean(unknown[0].replace("_", "-"), known)
    return f"unknown option {unknown[0]}; {meant}{more}"


def _flags(config: Any, before: str) -> list[str]:
    names = [name for name, hint in hints_of(config).items() if not _is_suppressed(hint)]
    return [f"{before}{no}{x}".replace("_", "-") for x in names for no in ("", "no-")]
