"""Cumulants c(o_t, a_t): what a GVF adds up about the future (the paper's section 4.1).

A cumulant is one file here with one function decorated with @cumulant, named like the file, from a
`Chunk` of transitions to [n] or [n, d]; the decorator says what of the resulting GVF is ranked.
Your own, in a file of yours: docs/extending.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from gsf.core.errors import UserError
from gsf.core.logs import progress
from gsf.core.registry import Registry, guarded
from gsf.data.dataset import Dataset

Array = npt.NDArray[Any]
Rank = Literal["value", "l1", "components", "logged"]

CHUNK_ROWS = 4096  # 50 MB of Procgen frames


@dataclass(frozen=True)
class Chunk:
    """Transitions as a cumulant sees them, numpy columns read when asked for.

    No next observation: c is a function of (o_t, a_t) and of what was logged with them.
    """

    dataset: Dataset
    rows: Array  # int64 [n]
    seed: int = 0  # for a cumulant with fixed random parts: the same draw in every chunk
    device: str = "cpu"

    @property
    def n_actions(self) -> int:
        return self.dataset.n_actions

    @property
    def obs(self) -> Array:
        """uint8 [n,H,W,C]."""
        obs: Array = self.dataset.observations(self.rows).numpy()
        return obs

    @property
    def action(self) -> Array:
        return np.asarray(self.dataset.action[self.rows], np.int64)

    @property
    def reward(self) -> Array:
        """As logged: neither scaled nor clipped."""
        return np.asarray(self.dataset.reward[self.rows], np.float32)

    @property
    def level(self) -> Array:
        """Position 0..m-1 in `dataset.levels`."""
        return np.asarray(self.dataset.level[self.rows], np.int64)

    @property
    def t(self) -> Array:
        return np.asarray(self.dataset.t[self.rows], np.int64)

    @property
    def terminated(self) -> Array:
        return np.asarray(self.dataset.terminated[self.rows], bool)


@dataclass(frozen=True)
class Cumulant:
    """What `@cumulant` makes of a function."""

    name: str
    function: Callable[[Chunk], Array]
    rank: Rank
    centred: bool  # the mean over each level is subtracted
    random: bool  # depends on Chunk.seed

    def __call__(self, chunk: Chunk) -> Array:
        return self.function(chunk)


def cumulant(
    *, rank: Rank = "value", centred: bool = False, random: bool = False
) -> Callable[[Callable[[Chunk], Array]], Cumulant]:
    """Makes a cumulant, named like the function, of `Chunk` of n transitions -> [n] or [n, d].

    rank: what of the GVF is ranked: `value` itself (d = 1), the `l1` norm over components, each of
    the `components` on its own (d labels per observation), or the `logged` action's (d = |A|).
    centred: subtract each level's mean.  random: the function uses `chunk.seed`.

        @cumulant()
        def danger(chunk):
            return chunk.reward < 0
    """
    if rank not in get_args(Rank):
        raise UserError(f"rank={rank!r} of a cumulant must be one of {', '.join(get_args(Rank))}.")
    return lambda function: Cumulant(function.__name__, function, rank, centred, random)


_registry: Registry[Cumulant] = Registry("cumulant", __name__, lambda x: isinstance(x, Cumulant))
names, find = _registry.names, _registry.find
owns = _registry.owns


def evaluate(
    cumulant: Cumulant, dataset: Dataset, rows: Array, seed: int = 0, device: str = "cpu"
) -> Array:
    """c of the given rows, float32 [n, d], checked, and centred per level if the cumulant asks."""
    parts = []
    with progress(f"cumulant {cumulant.name}", len(rows), "transitions") as advance:
        for start in range(0, len(rows), CHUNK_ROWS):
            chunk = Chunk(dataset, rows[start : start + CHUNK_ROWS], seed, device)
            parts.append(_checked(cumulant, chunk))
            advance(start + len(chunk.rows))
    c = np.concatenate(parts) if parts else np.zeros((0, 1), np.float32)
    return _centre(c, dataset.level[rows]) if cumulant.centred else c


def _checked(cumulant: Cumulant, chunk: Chunk) -> Array:
    what = f"cumulant {cumulant.name!r}"
    c = guarded(lambda: np.asarray(cumulant(chunk), np.float32), what)
    if c.ndim not in (1, 2) or len(c) != len(chunk.rows):
        raise UserError(
            f"cumulant {cumulant.name!r} returned shape {list(c.shape)} for {len(chunk.rows)} "
            "transitions; return [n] or [n, d]."
        )
    c = c.reshape(len(c), -1)
    bad = np.flatnonzero(~np.isfinite(c).all(1))
    if len(bad):
        level = chunk.dataset.levels[int(chunk.level[bad[0]])]
        raise UserError(
            f"cumulant {cumulant.name!r} is NaN or infinite at transition {chunk.rows[bad[0]]} "
            f"(level {level}); every transition needs a finite one."
        )
    return c


def _centre(c: Array, level: Array) -> Array:
    """c [n, d] minus the mean of its level."""
    count = np.maximum(np.bincount(level), 1)
    for column in c.T:  # a view: one component at a time keeps the copies small
        column -= (np.bincount(level, weights=column) / count)[level].astype(np.float32)
    return c


def ranked(value: Array, rank: Rank, action: Array) -> Array:
    """What is ranked of a GVF: value [n, d] -> [n], or [n, d] for `components`."""
    n, d = value.shape
    if rank == "components":
        return value
    if rank == "l1":
        norm: Array = np.abs(value).sum(1)
        return norm
    if rank == "logged":
        if len(action) and action.max() >= d:
            raise UserError(f"rank logged needs one component per action, the cumulant has {d}.")
        chosen: Array = value[np.arange(n), action]
        return chosen
    if d != 1:
        raise UserError(f"a cumulant of {d} components needs --rank l1, components or logged.")
    return value[:, 0]
