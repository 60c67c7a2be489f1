"""Cumulants c(o_t, a_t): what a GVF adds up about the future (the paper's section 4.1).

A cumulant is one decorated function from a `Chunk` of transitions to [n] or [n, d]; its
registration says what of the resulting GVF is ranked. Add your own: docs/cumulants.md.
"""

import functools
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gsf.core.errors import UserError
from gsf.core.files import digest, digest_file
from gsf.core.logs import progress
from gsf.data.dataset import Dataset
from gsf.nets.encoders import Encoder
from gsf.nets.runtime import seeded

Array = npt.NDArray[Any]
Rank = Literal["value", "l1", "components", "logged"]

CHUNK_ROWS = 4096  # 50 MB of Procgen frames
ENCODER_BATCH = 512
# Components of `successor`. All 256 would give a TD head of 51,200 outputs for 200 levels and 5 GB
# of cumulants for 5M transitions; 32 random projections keep the L1 norm's order up to ~1/sqrt(32).
N_FEATURES = 32
SUCCESSOR = 1  # stream of random numbers, beside the seed


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
    name: str
    function: Callable[[Chunk], Array]
    rank: Rank
    centred: bool  # the mean over each level is subtracted
    random: bool  # depends on Chunk.seed
    file: Path | None = field(default=None, compare=False)  # where a user's own came from

    def identity(self) -> dict[str, str]:
        """A fit's input digests: a user's code may change under one name, ours has a version."""
        if self.file is not None:
            return {"cumulant": digest_file(self.file)}
        if self.name in _BUILT_IN:
            return {}
        try:
            return {"cumulant": digest(inspect.getsource(self.function))}
        except OSError:  # typed at a prompt
            return {"cumulant": digest(self.name)}


_REGISTRY: dict[str, Cumulant] = {}
Decorator = Callable[[Callable[[Chunk], Array]], Callable[[Chunk], Array]]


def cumulant(*, rank: Rank = "value", centred: bool = False, random: bool = False) -> Decorator:
    """Registers a function under its own name.

    rank: what of the GVF is ranked: `value` itself (d = 1), the `l1` norm over components, each of
    the `components` on its own (d labels per observation), or the `logged` action's (d = |A|).
    centred: subtract each level's mean.  random: the function uses `chunk.seed`.
    """
    if rank not in get_args(Rank):
        raise UserError(f"rank={rank!r} of a cumulant must be one of {', '.join(get_args(Rank))}.")

    def register(function: Callable[[Chunk], Array]) -> Callable[[Chunk], Array]:
        name = function.__name__
        if name in _BUILT_IN and function.__module__ != __name__:
            raise UserError(f"cumulant {name!r} is built in; give yours another name.")
        _REGISTRY[name] = Cumulant(name, function, rank, centred, random)
        return function

    return register


_BUILT_IN = ("reward", "successor", "action")


@cumulant(rank="value")
def reward(chunk: Chunk) -> Array:
    return chunk.reward


@cumulant(rank="l1", centred=True, random=True)
def successor(chunk: Chunk) -> Array:
    """Features of o_t from a network that is never trained: no collapse, no leak from o'."""
    # The last layer is random, so its first outputs are a random projection like any others.
    obs = torch.from_numpy(chunk.obs)
    return random_features(obs, chunk.seed, chunk.device)[:, :N_FEATURES].numpy()


@cumulant(rank="components")
def action(chunk: Chunk) -> Array:
    return np.eye(chunk.n_actions, dtype=np.float32)[chunk.action]


def random_features(obs: Tensor, seed: int, device: str = "cpu") -> Tensor:
    """obs [n,H,W,C] -> [n,256], z of an `impala_small` with random weights fixed by the seed."""
    encoder = _random_encoder(tuple(obs.shape[1:]), seed, device)
    with torch.no_grad():
        return torch.cat([encoder(x.to(device)).cpu() for x in torch.split(obs, ENCODER_BATCH)])


@functools.lru_cache(maxsize=2)
def _random_encoder(obs_shape: tuple[int, ...], seed: int, device: str) -> Encoder:
    # A stream of its own: an agent of the same seed must not start as this very network.
    with seeded(np.random.default_rng([seed, SUCCESSOR])):
        return Encoder(obs_shape, "impala_small").to(device).eval()


def names() -> list[str]:
    return list(_REGISTRY)


def find(name: str) -> Cumulant:
    """A registered cumulant, or `file.py:name` from a file of the user's, which is run."""
    path, colon, function = name.rpartition(":")
    if colon:
        return _from_file(Path(path), function)
    if name not in _REGISTRY:
        raise UserError(
            f"unknown cumulant {name!r}; choose one of {', '.join(names())} or your own as "
            "file.py:name."
        )
    return _REGISTRY[name]


def _from_file(path: Path, name: str) -> Cumulant:
    spec = importlib.util.spec_from_file_location(f"gsf_user_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise UserError(f"no Python file {path} to take the cumulant {name!r} from.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except UserError:
        raise
    except Exception as error:  # whatever the user's code may raise
        raise UserError(f"{path} could not be run ({type(error).__name__}: {error}).") from error
    found = _REGISTRY.get(name)
    if found is None or found.function is not getattr(module, name, None):
        raise UserError(f"{path} has no function {name!r} decorated with @cumulant.")
    return Cumulant(name, found.function, found.rank, found.centred, found.random, path)


def evaluate(
    cumulant: Cumulant, dataset: Dataset, rows: Array, seed: int = 0, device: str = "cpu"
) -> Array:
    """c of the given rows, float32 [n, d], checked, and centred per level if registered so."""
    parts = []
    with progress(f"cumulant {cumulant.name}", len(rows), "transitions") as advance:
        for start in range(0, len(rows), CHUNK_ROWS):
            chunk = Chunk(dataset, rows[start : start + CHUNK_ROWS], seed, device)
            parts.append(_checked(cumulant, chunk))
            advance(start + len(chunk.rows))
    c = np.concatenate(parts) if parts else np.zeros((0, 1), np.float32)
    return _centre(c, dataset.level[rows]) if cumulant.centred else c


def _checked(cumulant: Cumulant, chunk: Chunk) -> Array:
    c = np.asarray(cumulant.function(chunk), np.float32)
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
