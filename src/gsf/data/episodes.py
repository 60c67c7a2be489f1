"""A user's own episodes, as every format is read: outlines of all first, then one by one.

What must hold of each, whatever its format, is checked here.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gsf.core.errors import UserError
from gsf.core.schema import LEVELS, misfit
from gsf.data.format import Array
from gsf.suites import MOST_REWARD


@dataclass(frozen=True)
class Outline:
    """What is known of an episode before its frames are read."""

    where: str  # names it in messages
    context: Any
    n_steps: int
    n_frames: int  # n_steps, or one more: the observation after the last step
    first_t: int = 0


@dataclass(frozen=True)
class Episode:
    obs: Array  # uint8 [n_frames,H,W,C]
    action: Array  # int [n_steps], as reward
    reward: Array
    terminated: bool  # at its last step
    truncated: bool
    behaviour_prob: Array | None = None  # [n_steps], of all episodes or of none


@dataclass(frozen=True)
class Source:
    """Where episodes come from: the outlines of all, then the episodes in the same order."""

    name: str
    root: Path
    files: Sequence[Path]  # under root
    obs_shape: tuple[int, ...]
    n_actions: int
    outlines: Sequence[Outline]
    episodes: Callable[[], Iterator[Episode]]
    levels: Sequence[Any] = ()  # contexts declared in this order, if any were
    played: Mapping[str, Any] = field(default_factory=dict)  # difficulty, actions: the suite's


def check_episode(outline: Outline, episode: Episode, source: Source) -> None:
    where = outline.where
    if episode.obs.dtype != np.uint8 or episode.obs.shape[1:] != source.obs_shape:
        raise UserError(
            f"{where} has {episode.obs.dtype} observations of shape {episode.obs.shape[1:]}; "
            f"the source declares uint8 {source.obs_shape}."
        )
    if len(episode.obs) != outline.n_frames:
        raise UserError(f"{where} has {len(episode.obs)} observations, not {outline.n_frames}.")
    check_steps(where, episode.action, episode.reward, source.n_actions)
    if len(episode.action) != outline.n_steps:
        raise UserError(f"{where} has {len(episode.action)} actions, not {outline.n_steps}.")


def check_steps(where: str, action: Array, reward: Array, n_actions: int | None) -> None:
    if action.ndim != 1 or action.dtype.kind not in "iu":  # a time span is an np.integer, too
        raise UserError(
            f"{where} has {action.dtype} actions of shape {action.shape}; "
            "gsf needs one whole number a step."
        )
    if len(action) == 0:
        raise UserError(f"{where} has no steps; remove it.")
    if reward.shape != action.shape or reward.dtype.kind not in "fiu":
        raise UserError(
            f"{where} has {reward.dtype} rewards of shape {reward.shape} for {len(action)} "
            "actions; gsf needs one number a step."
        )
    kept = np.abs(reward.astype(np.float64)) <= MOST_REWARD
    if not kept.all():
        step = int(kept.argmin())
        raise UserError(
            f"{where} has reward {reward[step]} at step {step}, which is not finite or beyond "
            f"{MOST_REWARD:.2g}."
        )
    if action.min() < 0:
        raise UserError(f"{where} has a negative action, {action.min()}; actions count from 0.")
    if n_actions is not None and action.max() >= n_actions:
        raise UserError(f"{where} has action {action.max()}, but there are {n_actions} actions.")


def one_value(values: Any, where: str, key: str) -> Any:
    """The context in a value, or in an array of equal values, as a type that JSON has."""
    values = np.asarray(values)
    if values.dtype.kind not in "biufSUO" or values.size == 0 or (values != values.flat[0]).any():
        raise UserError(f"{where} has no single {key!r}; a context is one value an episode.")
    value = values.flat[0]
    value = value.item() if isinstance(value, np.generic) else value
    value = value.decode() if isinstance(value, bytes) else value
    if misfit([value], LEVELS):
        raise UserError(
            f"{where} has {value!r} for {key!r}; a context is a finite number of 64 bits or text."
        )
    return value


def end_flag(values: Any, n_steps: int, where: str, key: str) -> bool:
    """Whether an episode ended that way. values: one flag, or one a step; the last counts."""
    flags = np.asarray(values)
    shaped = flags.size == 1 or flags.shape == (n_steps,)
    if not shaped or flags.dtype.kind not in "biuf" or not np.isin(flags, (0, 1)).all():
        raise UserError(f"{where} has no clear {key!r}; give one flag, or one a step.")
    flags = flags.reshape(-1)
    if flags[:-1].any():
        raise UserError(f"{where} goes on after it was {key}, at step {int(flags.argmax())}.")
    return bool(flags[-1])


@contextlib.contextmanager
def readable(path: Path, wrong: str) -> Iterator[None]:
    """Libraries raise many kinds of errors at files that are damaged: one sentence for all."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path} {wrong}: {reason}.") from None
