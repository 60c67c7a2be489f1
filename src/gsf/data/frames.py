"""A dataset's frames, however many more than memory holds, each checked when it is first read."""

from __future__ import annotations

import os
import warnings
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gsf.core.logs import progress
from gsf.core.sealed import damaged
from gsf.data.format import CHECKSUMS, Array, frame_checksums, map_array, read_facts

if TYPE_CHECKING:  # at run time only where it is needed: a second that `gsf --help` does not take
    import torch

_CHECKED_AT_ONCE = 256


class Frames:
    """obs.npy as an array, each frame checked when it is first read."""

    def __init__(self, path: Path, array: Array, checksums: Array) -> None:
        self._path, self._array, self._checksums = path, array, checksums
        self._checked = np.zeros(len(array), bool)
        self.shape, self.dtype, self.nbytes = array.shape, array.dtype, array.nbytes

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, key: Any) -> Array:
        self.check(np.arange(len(self))[key[0] if isinstance(key, tuple) else key])
        found: Array = self._array[key]
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found = self[:]
        if copy is False and dtype not in (None, found.dtype):
            raise ValueError(f"frames are {found.dtype}: as {dtype} they must be copied.")
        return found.astype(dtype or found.dtype, copy=bool(copy))

    def take(self, frame: Array) -> Array:
        self.check(frame)
        return np.take(self._array, frame, axis=0)

    def pairs(self, frame: Array, has_next: Array) -> tuple[Array, Array]:
        """Frames and those after them, or themselves where there is none; views of one copy.

        Neighbours on disk are read in one go.
        """
        import torch

        if len(self) == 1:
            return self.take(frame), self.take(frame)
        self.check(frame)
        self.check(frame + has_next)
        first = np.minimum(frame, len(self) - 2)
        found = self._neighbours.index_select(0, torch.from_numpy(first.reshape(-1)))
        pairs = found.numpy().reshape(*frame.shape, 2, *self.shape[1:])
        obs, next_obs = pairs[..., 0, :, :, :], pairs[..., 1, :, :, :]
        obs[frame > first] = next_obs[frame > first]  # the very last frame
        next_obs[~has_next] = obs[~has_next]
        return obs, next_obs

    @cached_property
    def _neighbours(self) -> torch.Tensor:
        """Every frame with the one after it as one row, overlapping: nothing is copied.

        torch gathers such rows about 1.3 times as fast as numpy.
        """
        import torch

        size = self._array[0].nbytes
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the map is for reading only, and nobody writes
            flat = torch.from_numpy(self._array.reshape(-1))
        return flat.as_strided((len(self) - 1, 2 * size), (size, 1))

    def check(self, frame: Array) -> None:
        """Damage in any of these frames is an error; each is looked at once."""
        frame = np.asarray(frame).reshape(-1)
        new = np.unique(frame[~self._checked[frame]])
        for first in range(0, len(new), _CHECKED_AT_ONCE):
            part = new[first : first + _CHECKED_AT_ONCE]
            wrong = frame_checksums(self._array[part]) != self._checksums[part]
            if wrong.any():
                raise damaged(self._path, f"frame {part[wrong.argmax()]} fails its checksum")
            self._checked[part] = True


def verify_frames(path: Path) -> None:
    manifest = read_facts(path)
    shape = (manifest["n_frames"], *manifest["obs_shape"])
    obs, _ = map_array(path / "obs.npy", "uint8", shape)
    checksums, _ = map_array(path / CHECKSUMS, "uint64", shape[:1])
    size, wrong = obs[0].nbytes, list[int]()
    # By reading, not through the map, so that memory stays small and the disk reads ahead.
    with open(path / "obs.npy", "rb") as file, progress(f"verify {path.name}", len(obs)) as advance:
        file.seek(-obs.nbytes, os.SEEK_END)
        for start in range(0, len(obs), _CHECKED_AT_ONCE):
            n = min(_CHECKED_AT_ONCE, len(obs) - start)
            frames = np.frombuffer(file.read(n * size), np.uint8).reshape(n, size)
            differs = frame_checksums(frames) != checksums[start : start + n]
            wrong += (start + np.flatnonzero(differs)).tolist()
            advance(start + n)
    if wrong:
        shown = ", ".join(map(str, wrong[:10])) + (", ..." if len(wrong) > 10 else "")
        raise damaged(path / "obs.npy", f"{len(wrong)} of its frames fail their checksum: {shown}")
