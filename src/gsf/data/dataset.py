"""Transitions on disk, opened: batches, windows and episodes, however much larger than memory.

format.py says what the files are. A batch never crosses an episode, and a transition whose
next observation was never shown has has_next False and its own observation in next_obs.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gsf.core.errors import UserError
from gsf.core.stage import check_files
from gsf.data.format import (
    CHECKSUMS,
    Array,
    check_columns,
    dtypes,
    episode_starts,
    map_array,
    read_facts,
)
from gsf.data.format import DatasetWriter as DatasetWriter
from gsf.data.frames import Frames, verify_frames

if TYPE_CHECKING:  # torch is imported where a batch is made, so that verifying needs none
    import torch


@dataclass(frozen=True, eq=False)
class Batch:
    """n transitions as torch tensors; windows have the same fields as [n, length, ...]."""

    obs: torch.Tensor  # uint8 [n,H,W,C]
    action: torch.Tensor  # int64 [n], as level and index
    reward: torch.Tensor  # float32 [n], raw
    next_obs: torch.Tensor  # uint8 [n,H,W,C]; obs again where has_next is False
    terminated: torch.Tensor  # bool [n], as truncated and has_next
    truncated: torch.Tensor
    has_next: torch.Tensor
    level: torch.Tensor  # 0..n_levels-1
    index: torch.Tensor  # rows of the dataset

    def map(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
        return Batch(**{f.name: change(getattr(self, f.name)) for f in fields(self)})

    def to(self, device: torch.device | str) -> Batch:
        """Without waiting for it, where the memory is pinned."""
        return self.map(lambda x: x.to(device, non_blocking=True))


class Dataset:
    """An opened dataset: its columns are read-only numpy arrays on disk, in row order.

    batch = Dataset.open("dataset").sample(256, np.random.default_rng(0))
    """

    def __init__(
        self,
        path: Path,
        manifest: Mapping[str, Any],
        columns: Mapping[str, Array],
        obs: Frames,
        prefetch: mmap.mmap | None,
    ) -> None:
        self.path, self.manifest, self.obs = path, manifest, obs
        self.name: str = manifest["name"]
        self.digest: str = manifest["digest"]
        self.levels: list[Any] = list(manifest["levels"])
        self.n_levels = len(self.levels)
        self.n_actions: int = manifest["n_actions"]
        self.obs_shape: tuple[int, ...] = tuple(manifest["obs_shape"])
        self.action, self.reward, self.level = (columns[k] for k in ("action", "reward", "level"))
        self.episode, self.t, self.frame = (columns[k] for k in ("episode", "t", "frame"))
        self.terminated, self.truncated = columns["terminated"], columns["truncated"]
        self.has_next = columns["has_next"]
        self.behaviour_prob = columns.get("behaviour_prob")  # of the logged action, if known
        self._prefetch_map = prefetch
        self._starts = episode_starts(self.episode)
        self._stops = np.append(self._starts[1:], len(self))

    @classmethod
    def open(cls, path: Path | str, larger_than_memory: bool | None = None) -> Dataset:
        """Columns are checked now, a frame when it is first read; `verify_dataset` checks all.

        `larger_than_memory` says how pages are read; by default the sizes decide.
        """
        path = Path(path)
        manifest = read_facts(path)
        n, n_frames = manifest["n"], manifest["n_frames"]
        columns = {
            k: map_array(path / f"{k}.npy", dtype, (n,))[0]
            for k, dtype in dtypes(x.removesuffix(".npy") for x in manifest["files"]).items()
        }
        shape = (n_frames, *manifest["obs_shape"])
        obs, pages = map_array(path / "obs.npy", "uint8", shape)
        check_files(path, manifest)
        check_columns(path, columns, n_frames, manifest["n_actions"], len(manifest["levels"]))
        if larger_than_memory is None:
            larger_than_memory = obs.nbytes > _memory() / 2
        if larger_than_memory:  # reading ahead would throw out pages that a later batch needs
            pages.madvise(mmap.MADV_RANDOM)
        checksums, _ = map_array(path / CHECKSUMS, "uint64", (n_frames,))
        frames = Frames(path / "obs.npy", obs, checksums)
        return cls(path, manifest, columns, frames, pages if larger_than_memory else None)

    def __len__(self) -> int:
        return len(self.action)

    def sample(self, n: int, rng: np.random.Generator, n_levels: int | None = None) -> Batch:
        """Transitions drawn uniformly with replacement; with n_levels, from that many levels."""
        if n_levels is None:
            return self.gather(rng.integers(len(self), size=n))
        if n_levels < 1:
            raise UserError(f"a batch needs at least one level, got n_levels={n_levels}.")
        rows, first = self._rows_by_level
        present = np.flatnonzero(np.diff(first))
        chosen = rng.choice(present, size=min(n_levels, len(present)), replace=False)
        counts = first[chosen + 1] - first[chosen]
        which, offset = _draw(counts, n, rng)
        return self.gather(rows[first[chosen[which]] + offset])

    def gather(self, index: npt.ArrayLike) -> Batch:
        """The given rows."""
        import torch

        index = np.asarray(index, dtype=np.int64).copy()  # a tensor cannot be asked for a copy
        frame, has_next = self.frame[index], self.has_next[index]
        if self._prefetch_map is not None:
            self._prefetch(frame, 2)
        obs, next_obs = self.obs.pairs(frame, has_next)
        return Batch(
            obs=torch.from_numpy(obs),
            action=torch.from_numpy(self.action[index].astype(np.int64)),
            reward=torch.from_numpy(self.reward[index]),
            next_obs=torch.from_numpy(next_obs),
            terminated=torch.from_numpy(self.terminated[index]),
            truncated=torch.from_numpy(self.truncated[index]),
            has_next=torch.from_numpy(has_next),
            level=torch.from_numpy(self.level[index].astype(np.int64)),
            index=torch.from_numpy(index),
        )

    def observations(self, index: npt.ArrayLike) -> torch.Tensor:
        """Observations alone, uint8 [n,H,W,C], of the given rows."""
        import torch

        frame = self.frame[np.asarray(index, dtype=np.int64)]
        if self._prefetch_map is not None:
            self._prefetch(frame, 1)
        return torch.from_numpy(self.obs.take(frame))

    def windows(self, n: int, length: int, rng: np.random.Generator) -> Batch:
        """n runs of `length` consecutive rows inside one episode, uniform over possible starts."""
        counts = np.maximum(self._stops - self._starts - length + 1, 0)
        if length < 1 or not counts.any():
            raise UserError(f"no episode of {self.path} has {length} steps; ask for less.")
        which, offset = _draw(counts, n, rng)
        return self.gather((self._starts[which] + offset)[:, None] + np.arange(length))

    def ahead(self, index: npt.ArrayLike, n: int) -> tuple[Array, Array]:
        """Each of the m rows and the n - 1 rows after it, [m, n], and which of these are there.
        Behind the end of an episode its last row is repeated, and is not there."""
        index, steps = np.asarray(index, np.int64), np.arange(n)
        left = np.minimum(self.rows_left[index], n)[:, None]
        return index[:, None] + np.minimum(steps, left - 1), steps < left

    def episodes(self, level: int | None = None) -> list[tuple[int, int]]:
        """(start, stop) rows of every episode, or of those of one level (0..n_levels-1)."""
        keep = slice(None) if level is None else self.level[self._starts] == level
        return list(zip(self._starts[keep].tolist(), self._stops[keep].tolist(), strict=True))

    @cached_property
    def rows_left(self) -> npt.NDArray[np.int64]:
        """Rows from each one to the last of its episode, both included."""
        stop = np.repeat(self._stops, self._stops - self._starts)
        stop -= np.arange(len(self))
        return stop

    @cached_property
    def _rows_by_level(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Rows sorted by level, and where each level starts among them [n_levels + 1]."""
        counts = np.bincount(self.level, minlength=self.n_levels)
        return np.argsort(self.level, kind="stable"), np.concatenate([[0], np.cumsum(counts)])

    def _prefetch(self, frame: npt.NDArray[np.int64], n_frames: int) -> None:
        """Asks for all pages of a batch at once: page faults would read them one by one."""
        assert self._prefetch_map is not None
        size = int(np.prod(self.obs_shape))
        header = len(self._prefetch_map) - self.obs.nbytes
        for first in (header + frame.ravel() * size).tolist():
            into_page = first % mmap.PAGESIZE
            length = into_page + n_frames * size  # madvise itself stops at the end of the file
            self._prefetch_map.madvise(mmap.MADV_WILLNEED, first - into_page, length)


def _memory() -> float:
    """Bytes of the machine; infinite where a system takes no advice about pages."""
    if not (hasattr(os, "sysconf") and hasattr(mmap.mmap, "madvise")):
        return float("inf")
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _draw(
    counts: npt.NDArray[np.int64], n: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """n uniform draws from groups of `counts` members: the group and the index in it."""
    ends = np.cumsum(counts)
    draw = rng.integers(ends[-1], size=n)
    which = np.searchsorted(ends, draw, side="right")
    return which, draw - (ends - counts)[which]


def verify_dataset(path: Path) -> dict[str, Any]:
    """Checks every column and every frame; damage is an error that names what it hit."""
    Dataset.open(path)
    verify_frames(Path(path))
    return read_facts(path)
