"""Options: frozen dataclasses, the role and range of each option, and their way to JSON and back.

A field's type says what the option means for the output's identity: `x: int` decides the content,
`x: Incidental[int]` cannot change it, `x: Input[Path]` says where something lies whose digest
decides, of `x: Extendable[int]` a finished output may be given more. It also says which values
there are, `lr: Annotated[float, above(0, 10)]`, and under which heading help shows it: `Group.PPO`.
"""

import ast
import contextlib
import dataclasses
import enum
import functools
import inspect
import itertools
import numbers
import textwrap
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from gsf.core.errors import UserError

T = TypeVar("T")


class Role(enum.Enum):
    INCIDENTAL = "where, how fast, how often to save, what to print"
    INPUT = "where an input lies"
    EXTENDABLE = "how long"


Incidental = Annotated[T, Role.INCIDENTAL]
Input = Annotated[T, Role.INPUT]
Extendable = Annotated[T, Role.EXTENDABLE]


class Group(enum.Enum):
    """Headings of help, in its order: of an option, and of those below it in the same class.

    Options before the first heading are what everybody needs; they come first of all.
    """

    DATA = "data"
    SIZE = "size and time"
    LEVELS = "level and action"
    METHOD = "method"
    LEARNING = "learning"
    TD = "td"
    PPO = "PPO"
    PLANNING = "planning"
    TUNING = "tuning"
    HELD_OUT = "held-out data"
    COMPARISON = "comparison"
    PICTURE = "picture"
    MACHINE = "machine"
    CLUSTER = "cluster"
    OUTPUT = "output and logging"
    RARE = "rarely needed"


def groups_of(config: Any) -> dict[str, Group | None]:
    """The heading of each option; None: it has none."""
    hints, groups = hints_of(config), dict[str, Group | None]()
    for part in reversed(config.__mro__):
        group = None
        for name in vars(part).get("__annotations__", {}):
            marks = getattr(hints.get(name), "__metadata__", ())
            group = next((x for x in marks if isinstance(x, Group)), group)
            groups[name] = group
    return {name: groups[name] for name in hints}


def docs_of(config: Any) -> dict[str, str]:
    """What is written below each option, in one line."""
    docs = {}
    for part in reversed(config.__mro__):
        with contextlib.suppress(OSError, TypeError):  # one that is in no file
            (found,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
            for field, below in itertools.pairwise(getattr(found, "body", ())):
                if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                    docs[ast.unparse(field.target)] = " ".join(
                        ast.literal_eval(below.value).split()
                    )
    return docs


def roles(config: Any) -> dict[str, Role]:
    """Options with a role of their own; all others decide the content."""
    hints = typing.get_type_hints(config, include_extras=True)
    return {
        name: mark
        for name, hint in hints.items()
        for mark in getattr(hint, "__metadata__", ())
        if isinstance(mark, Role)
    }


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers from low to high; an open end is not among them."""

    low: float
    high: float
    low_open: bool = False
    high_open: bool = False

    def __contains__(self, x: float) -> bool:  # never NaN
        return (self.low < x if self.low_open else self.low <= x) and (
            x < self.high if self.high_open else x <= self.high
        )

    def __str__(self) -> str:
        if not self.low_open and not self.high_open:
            return f"between {self.low:,} and {self.high:,}"
        low, high = (
            "above" if self.low_open else "at least",
            "below" if self.high_open else "at most",
        )
        return f"{low} {self.low:,} and {high} {self.high:,}"


def between(low: float, high: float) -> Range:
    return Range(low, high)


def above(low: float, high: float) -> Range:
    """Without the lower end."""
    return Range(low, high, low_open=True)


def inside(low: float, high: float) -> Range:
    """Without both ends."""
    return Range(low, high, low_open=True, high_open=True)


class Some:
    """In the type of a tuple: it must not be empty."""


Count = Annotated[int, between(1, 10**12)]
Seed = Annotated[int, between(0, 2**31 - 1)]
Threads = Annotated[int, between(1, 1024)]
BatchSize = Annotated[int, between(1, 2**20)]
Share = Annotated[float, between(0, 1)]
Rate = Annotated[float, above(0, 1)]
StepSize = Annotated[float, above(0, 10)]
Weight = Annotated[float, between(0, 10**6)]
Precision = Literal["float32", "bf16"]
PrecisionOrAuto = Literal["float32", "bf16", "auto"]
Device = Literal["auto", "cpu", "cuda", "mps"]
Temperature = Annotated[float, between(10**-3, 10**3)]


class Options:
    """Options of a stage. Their values are checked whenever some are made."""

    def __post_init__(self) -> None:
        check(self)


@dataclasses.dataclass(frozen=True)
class CodedOptions(Options):
    """Options of a stage whose output also depends on gsf's own code (core/code.py)."""

    accept_code_change: Annotated[Incidental[bool], Group.RARE] = dataclasses.field(
        default=False, kw_only=True
    )
    """Keep, or go on with, what was made before gsf's own code was edited."""


def check(config: Any, where: str = "") -> None:
    """Refuses an option outside of its range; `where` (`loss.`) stands before its name."""
    for name, hint in hints_of(config.__class__).items():
        _check(hint, getattr(config, name), f"--{where}{name}".replace("_", "-"))


@functools.cache
def hints_of(config: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(config, include_extras=True)
    return {f.name: hints[f.name] for f in dataclasses.fields(config)}


def _check(hint: Any, value: Any, option: str) -> None:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        for mark in hint.__metadata__:
            if isinstance(mark, Range):
                whole = arguments[0] is int
                kind: Any = numbers.Integral if whole else numbers.Real
                if isinstance(value, bool) or not isinstance(value, kind):
                    what = "a whole number" if whole else "a number"
                    raise UserError(f"{option} must be {what}, got {value!r}.")
                if value not in mark:
                    raise UserError(f"{option} must be {mark}, got {value!r}.")
            elif isinstance(mark, Some) and not value:
                raise UserError(f"{option} needs at least one value.")
        _check(arguments[0], value, option)
    elif origin in (typing.Union, types.UnionType):
        if value is not None:
            for arm in arguments:
                _check(arm, value, option)
    elif origin is tuple:
        for item in value:
            _check(arguments[0], item, option)


def range_of(hint: Any) -> Range | None:
    """The range in a field's type."""
    for part in typing.get_args(hint):
        found = part if isinstance(part, Range) else range_of(part)
        if found is not None:
            return found
    return None


def to_json(config: Any) -> Any:
    """Plain JSON values of a (nested) dataclass."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {f.name: to_json(getattr(config, f.name)) for f in dataclasses.fields(config)}
    if isinstance(config, list | tuple):
        return [to_json(item) for item in config]
    if isinstance(config, Mapping):
        return {str(key): to_json(value) for key, value in config.items()}
    return str(config) if isinstance(config, Path) else config


def from_json(config: type[T], data: Mapping[str, Any], where: str = "") -> T:
    """The dataclass that `to_json` wrote; an unknown key or a wrong type is named."""
    if not isinstance(data, Mapping):
        raise UserError(f"options of {config.__name__} are {data!r}, not a mapping.")
    hints = typing.get_type_hints(config)
    unknown = sorted(set(data) - {f.name for f in dataclasses.fields(config)})  # type: ignore[arg-type]
    if unknown:
        raise UserError(f"unknown option {where}{unknown[0]!r} for {config.__name__}.")
    return config(**{k: typed(hints[k], value, f"{where}{k}") for k, value in data.items()})


def typed(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        for option in arguments:
            try:
                return typed(option, value, where)
            except UserError:
                continue
    elif origin is Literal:
        if value in arguments:
            return value
    elif origin is Mapping and isinstance(value, Mapping):
        return dict(value)
    elif origin is tuple and isinstance(value, list | tuple):
        return tuple(typed(arguments[0], item, where) for item in value)
    elif hint is Any:
        return value
    elif dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return from_json(hint, value, where + ".")  # type: ignore[arg-type]
    elif hint is Path and isinstance(value, str):
        return Path(value)
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif isinstance(hint, type) and type(value) is hint:
        return value
    raise UserError(f"option {where!r} must be {hint}, got {value!r}.")
