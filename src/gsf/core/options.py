"""Options: frozen dataclasses, the role of each option, and their way to JSON and back.

A value is spelled once, as a field's default beside its use. A field's type says what the option
means for the output's identity: `x: int` decides the content, `x: Incidental[int]` cannot change
it, `x: Input[Path]` says where something lies whose digest decides, of `x: Extendable[int]` a
finished output may be given more.
"""

import dataclasses
import enum
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


def roles(config: Any) -> dict[str, Role]:
    """Options of a config that do more or less than decide the content."""
    hints = typing.get_type_hints(config, include_extras=True)
    return {
        name: mark
        for name, hint in hints.items()
        for mark in getattr(hint, "__metadata__", ())
        if isinstance(mark, Role)
    }


def require_positive(config: Any, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and not value > 0:
            raise UserError(f"--{name.replace('_', '-')} must be positive, got {value}.")


def require_seed(seed: int) -> None:
    if seed < 0:
        raise UserError(f"--seed must not be negative, got {seed}.")


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
    hints = typing.get_type_hints(config)
    unknown = sorted(set(data) - {f.name for f in dataclasses.fields(config)})  # type: ignore[arg-type]
    if unknown:
        raise UserError(f"unknown option {where}{unknown[0]!r} for {config.__name__}.")
    return config(**{k: _typed(hints[k], value, f"{where}{k}") for k, value in data.items()})


def _typed(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        for option in arguments:
            try:
                return _typed(option, value, where)
            except UserError:
                continue
    elif origin is Literal:
        if value in arguments:
            return value
    elif origin is tuple and isinstance(value, list | tuple):
        return tuple(_typed(arguments[0], item, where) for item in value)
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
