"""Options: frozen dataclasses, their presets, and their way to JSON and back.

A value is spelled once, as a field's default beside its use; a preset lists only what differs.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from gsf.games import GAMES
from gsf.runs import UserError

T = TypeVar("T")
Preset = Literal["smoke", "laptop", "study", "paper"]

# preset -> verb -> option -> value. Whatever is not named keeps the default beside its use.
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {
        "run": {"preset": "smoke", "out": Path("results/smoke"), "games": ("coinrun",)},
        "collect": {
            "frames": 20_480,
            "transitions": 20_480,
            "n_envs": 16,
            "n_steps": 64,
            "minibatches": 8,
        },
        "materialise": {"transitions": 20_000},
        "fit": {"estimator": "mc", "diagnose": False, "allow_small_levels": True},
        "label": {"allow_small_levels": True},
        "train": {"encoder": "impala_small", "grad_steps": 20, "batch": 32, "checkpoint_every": 10},
        "evaluate": {"n_seen": 8, "n_validation": 4, "n_test": 8},
    },
    "laptop": {
        "run": {"preset": "laptop", "out": Path("results/laptop"), "games": ("coinrun",)},
        "collect": {"frames": 2_000_000, "transitions": 500_000},
        "materialise": {"transitions": 100_000},
        "fit": {"estimator": "mc", "allow_small_levels": True},
        "label": {"allow_small_levels": True},
        "train": {"encoder": "impala_small", "grad_steps": 700, "checkpoint_every": 100},
        "evaluate": {"n_seen": 64, "n_validation": 0, "n_test": 64},
    },
    "study": {
        "run": {"preset": "study", "out": Path("results/study"), "seeds": 3},
        "collect": {"frames": 2_000_000, "transitions": 500_000},
        "fit": {  # Deviation: in few steps a value must travel far (docs/results.md)
            "estimator": "td",
            "grad_steps": 5_000,
            "encoder": "impala_small",
            "lr": 1e-3,
            "target_rate": 0.05,
        },
        "train": {"encoder": "impala_small", "grad_steps": 5_000, "keep": 10},
    },
    "paper": {
        "run": {
            "preset": "paper",
            "out": Path("results/paper"),
            "games": tuple(GAMES),
            "seeds": 5,
            "methods": ("all",),
        },
        "materialise": {"transitions": 5_000_000},
        "collect": {
            "frames": 25_000_000,
            "transitions": 5_000_000,
            "encoder": "impala",
            "n_steps": 256,
            "minibatches": 8,
            "epochs": 3,
        },
        "fit": {"estimator": "td", "grad_steps": 100_000, "encoder": "impala", "q": True},
        "train": {
            "encoder": "impala",
            "grad_steps": 1_000_000,
            "batch": 1024,
            "update": "alternating",
            "checkpoint_every": 5_000,
            "keep": 10,
        },
    },
}


def preset_values(verb: str, preset: str | None) -> dict[str, Any]:
    """What a preset sets of a verb's options."""
    if preset is not None and preset not in PRESETS:
        raise UserError(f"unknown preset {preset!r}; choose one of {', '.join(PRESETS)}.")
    return PRESETS[preset].get(verb, {}) if preset else {}


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
