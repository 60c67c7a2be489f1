"""A dataset's files: what is where, how they are written whole, what must hold when they are read.

A directory: manifest.json, obs.npy uint8 [n_frames,H,W,C] with every frame once, checksum.npy
uint64 [n_frames], one of each frame, and one <column>.npy [n] each. Row i's observation is
obs[frame[i]]; its next one is obs[frame[i] + 1] iff has_next[i]. Rows of an episode are contiguous
and in time order. No torch in here: replaying a recording into a dataset has to stay small.
"""

import contextlib
import io
import json
import mmap
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import xxhash

from gsf.core.errors import UserError
from gsf.core.files import atomic_directory, digest, digest_file
from gsf.core.stage import Identity, check_facts, read_manifest

COLUMN_DTYPES = {
    "action": "int32",
    "reward": "float32",  # raw
    "level": "int32",  # position in the manifest's list of levels
    "episode": "int32",  # unique over the whole dataset
    "t": "int32",
    "terminated": "bool",
    "truncated": "bool",
    "has_next": "bool",
    "frame": "int64",  # row of obs.npy
}
OPTIONAL_DTYPES = {"behaviour_prob": "float32"}  # of the logged action, by who logged it
CHECKSUMS = "checksum.npy"
Array = npt.NDArray[Any]
Rows = Mapping[str, npt.ArrayLike]
_HEADER_BYTES = 128  # of a .npy file with one axis of any length
_SYNC_BYTES = 1 << 27
_sync_data = getattr(os, "fdatasync", os.fsync)  # Linux has the faster one


class DatasetWriter:
    """Builds a dataset aside; it appears at `path` whole after `finish`, or not at all.

    Frames come in regions written side by side (an env slot, an episode): region r holds
    region_frames[r] frames and starts where region r - 1 ends (`first_frame[r]`).
    """

    def __init__(
        self,
        path: Path,
        *,
        name: str,
        obs_shape: Sequence[int],
        n_actions: int,
        levels: Sequence[Any],
        region_frames: Sequence[int],
    ) -> None:
        self.path = Path(path)
        self.obs_shape = tuple(int(size) for size in obs_shape)
        self.first_frame = np.concatenate([[0], np.cumsum(region_frames, dtype=np.int64)])
        self.n_frames = int(self.first_frame[-1])
        self._facts: dict[str, Any] = {
            "name": name,
            "obs_shape": list(self.obs_shape),
            "n_actions": int(n_actions),
            "levels": [x.item() if isinstance(x, np.generic) else x for x in levels],
        }
        check_facts(self.path, self._facts)
        self._n_actions, self._n_levels = int(n_actions), len(self._facts["levels"])
        self._frame_bytes = int(np.prod(self.obs_shape))
        self._next = self.first_frame[:-1].copy()  # where each region goes on
        self._finished, self._unsynced = False, 0

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._directory = stack.enter_context(atomic_directory(self.path))
            needed = self.n_frames * self._frame_bytes
            free = shutil.disk_usage(self._directory).free
            if needed > free:
                raise UserError(
                    f"{self.path} needs {needed / 1e9:.2f} GB but its disk has {free / 1e9:.2f} GB "
                    "free; make room, choose another --out or take fewer transitions."
                )
            file = stack.enter_context(open(self._directory / "obs.npy", "wb", buffering=0))
            shape = (self.n_frames, *self.obs_shape)
            np.lib.format.write_array_header_1_0(  # type: ignore[no-untyped-call]
                file, {"descr": "|u1", "fortran_order": False, "shape": shape}
            )
            self._header, self._descriptor = file.tell(), file.fileno()
            file.truncate(self._header + needed)
            self._checksums = np.zeros(self.n_frames, np.uint64)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and not self._finished:
            with self._stack:
                raise RuntimeError("finish() was not called")
        self._stack.__exit__(kind, error, trace)

    def append(self, region: int, frames: Array) -> None:
        """The next frames [k,H,W,C] of a region."""
        if frames.dtype != np.uint8 or frames.shape[1:] != self.obs_shape:
            raise ValueError(
                f"{frames.dtype} {frames.shape[1:]} frames, not uint8 {self.obs_shape}"
            )
        if self._next[region] + len(frames) > self.first_frame[region + 1]:
            raise ValueError(f"more frames than declared for region {region}")
        first = int(self._next[region])
        self._checksums[first : first + len(frames)] = frame_checksums(frames)
        data = np.ascontiguousarray(frames).reshape(-1).data
        offset = self._header + first * self._frame_bytes
        self._next[region] += len(frames)
        os.lseek(self._descriptor, offset, os.SEEK_SET)
        while data:  # the kernel may write less than asked, at most 2 GB
            written = os.write(self._descriptor, data)
            data = data[written:]
            self._unsynced += written
        if self._unsynced > _SYNC_BYTES:  # else the disk idles now and finish() waits for it all
            _sync_data(self._descriptor)
            self._unsynced = 0

    def finish(
        self, columns: Rows | Iterable[Rows], identity: Identity | None = None, **facts: Any
    ) -> dict[str, Any]:
        """Writes the columns, whole or in pieces of whole episodes, and returns the manifest.

        `identity`: of the stage that makes the dataset; without one its content says all.
        """
        if not np.array_equal(self._next, self.first_frame[1:]):
            raise ValueError("fewer frames than declared")
        totals = self._write_columns([columns] if isinstance(columns, Mapping) else columns)
        np.save(self._directory / CHECKSUMS, self._checksums, allow_pickle=False)
        files = {
            name: digest_file(self._directory / name)
            for name in (CHECKSUMS, *(f"{x}.npy" for x in dtypes(totals.pop("columns"))))
        }
        regions = np.stack([self.first_frame[:-1], self.first_frame[1:]], axis=1).tolist()
        identity = identity or Identity("dataset")
        manifest = identity.write(
            self._directory,
            digest(json.dumps([regions, files, self._facts])),
            **self._facts,
            n_frames=self.n_frames,
            regions=regions,
            files=files,
            **{**totals, **facts},
        )
        self._finished = True
        return manifest

    def _write_columns(self, pieces: Iterable[Rows]) -> dict[str, Any]:
        """Piece after piece, so that memory does not grow; the headers come last, with n."""
        n, episodes, returns = 0, 0, list[float]()
        files: dict[str, Any] = {}
        with contextlib.ExitStack() as stack:
            for piece in pieces:
                arrays = _typed(piece)
                check_columns(self.path, arrays, self.n_frames, self._n_actions, self._n_levels, n)
                if not files:
                    for column in arrays:
                        opened = open(self._directory / f"{column}.npy", "wb")  # noqa: SIM115
                        files[column] = stack.enter_context(opened)
                        opened.seek(_HEADER_BYTES)
                for column, file in files.items():
                    file.write(np.ascontiguousarray(arrays[column]).data)
                n += len(arrays["action"])
                starts = episode_starts(arrays["episode"])
                episodes += len(starts)
                returns += _whole_returns(arrays, starts)
            for column, file in files.items():
                file.seek(0)
                file.write(_npy_header(dtypes(files)[column], n))
        mean_return = float(np.mean(returns)) if returns else None
        return {"n": n, "episodes": episodes, "mean_return": mean_return, "columns": list(files)}


def dtypes(present: Iterable[str]) -> dict[str, str]:
    """Of a dataset's columns: those that must be there, and those of the others that are."""
    names = set(present)
    return COLUMN_DTYPES | {k: dtype for k, dtype in OPTIONAL_DTYPES.items() if k in names}


def _typed(piece: Rows) -> dict[str, Array]:
    wanted = dtypes(piece)
    if set(piece) != set(wanted):
        raise ValueError(f"columns are {sorted(piece)}, not {sorted(wanted)}")
    arrays = {k: np.asarray(piece[k]).astype(dtype, copy=False) for k, dtype in wanted.items()}
    n = len(arrays["action"])
    for column, array in arrays.items():
        if array.shape != (n,):
            raise ValueError(f"column {column} has shape {array.shape}, not ({n},)")
    return arrays


def _npy_header(dtype: str, n: int) -> bytes:
    header, descr = io.BytesIO(), np.dtype(dtype).str
    np.lib.format.write_array_header_1_0(  # type: ignore[no-untyped-call]
        header, {"descr": descr, "fortran_order": False, "shape": (n,)}
    )
    assert header.tell() == _HEADER_BYTES
    return header.getvalue()


def frame_checksums(frames: Array) -> list[int]:
    """Of each of the frames [k,H,W,C]."""
    flat = np.ascontiguousarray(frames).reshape(len(frames), -1)
    return [xxhash.xxh3_64_intdigest(frame) for frame in flat]


def _whole_returns(columns: Mapping[str, Array], starts: npt.NDArray[np.int64]) -> list[float]:
    """Returns of the episodes seen from their start to their end."""
    returns = np.add.reduceat(columns["reward"], starts, dtype=np.float64)
    ends = np.append(starts[1:], len(columns["episode"])) - 1
    whole = (columns["t"][starts] == 0) & (columns["terminated"] | columns["truncated"])[ends]
    found: list[float] = returns[whole].tolist()
    return found


def episode_starts(episode: Array) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.flatnonzero(np.diff(episode)) + 1])


def read_facts(path: Path) -> dict[str, Any]:
    return read_manifest(path, "dataset")


def map_array(path: Path, dtype: str, shape: tuple[int, ...]) -> tuple[Array, mmap.mmap]:
    """A read-only view of a .npy file. Not np.memmap: its pages could not be advised about."""
    if not path.is_file():
        raise UserError(f"{path.parent} lacks {path.name}; make the dataset again.")
    with open(path, "rb") as file:
        try:
            np.lib.format.read_magic(file)  # type: ignore[no-untyped-call]
            header = np.lib.format.read_array_header_1_0(file)  # type: ignore[no-untyped-call]
        except Exception:  # numpy reads the header as Python, which breaks in many ways
            raise UserError(f"{path} is not a .npy array; make the dataset again.") from None
        if header != (shape, False, np.dtype(dtype)):
            raise UserError(
                f"{path} holds {header[2]} {header[0]}, not {dtype} {shape} as the manifest says; "
                "make the dataset again."
            )
        offset, count = file.tell(), int(np.prod(shape))
        expected = offset + count * np.dtype(dtype).itemsize
        found = os.fstat(file.fileno()).st_size
        if found != expected:
            raise UserError(
                f"{path} has {found} bytes, not {expected}: it was cut short or grew; "
                "make the dataset again."
            )
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(pages, dtype, count, offset).reshape(shape), pages


def check_columns(
    path: Path,
    columns: Mapping[str, Array],
    n_frames: int,
    n_actions: int,
    n_levels: int,
    first_row: int = 0,
) -> None:
    """What sampling relies on; a failure names the first row it is wrong in."""
    n = len(columns["frame"])
    if n == 0:
        raise UserError(f"{path} holds no transitions.")
    for start in range(0, n, _CHECKED_AT_ONCE):
        part = {k: column[start : start + _CHECKED_AT_ONCE + 1] for k, column in columns.items()}
        for fault, rows in _faults(part, n_frames, n_actions, n_levels):
            if rows.any():
                row = first_row + start + int(rows.argmax())
                raise UserError(f"{path} has {fault}, at row {row}; make it again.")
    episodes = columns["episode"][episode_starts(columns["episode"])]
    if len(np.unique(episodes)) != len(episodes):
        raise UserError(f"{path} has an episode in two pieces; make it again.")


_CHECKED_AT_ONCE = 1 << 18


def _faults(
    columns: Mapping[str, Array], n_frames: int, n_actions: int, n_levels: int
) -> Iterator[tuple[str, Array]]:
    action, level, frame = columns["action"], columns["level"], columns["frame"]
    has_next, ended = columns["has_next"], columns["terminated"] | columns["truncated"]
    for flag in ("terminated", "truncated", "has_next"):
        yield f"a {flag} that is neither 0 nor 1", columns[flag].view(np.uint8) > 1
    yield f"an action outside 0..{n_actions - 1}", (action < 0) | (action >= n_actions)
    yield f"a level id outside 0..{n_levels - 1}", (level < 0) | (level >= n_levels)
    yield "a reward that is not finite", ~np.isfinite(columns["reward"])
    chance = columns.get("behaviour_prob", np.ones(1))
    yield "a behaviour_prob outside (0, 1]", ~((chance > 0) & (chance <= 1))
    yield f"a frame outside 0..{n_frames - 1}", (frame < 0) | (frame >= n_frames)
    yield "a next observation past the last frame", frame + has_next >= n_frames
    same = np.diff(columns["episode"]) == 0  # row i and row i + 1 are of one episode
    adjacent = np.diff(frame) == 1
    yield "frames that do not count up", np.diff(frame) < 1
    yield "an episode that goes on after its end", same & ended[:-1]
    yield "an episode that misses a frame", same & ~(adjacent & has_next[:-1])
    yield "time that does not count up inside an episode", same & (np.diff(columns["t"]) != 1)
    yield "an episode of two levels", same & (np.diff(level) != 0)
    yield "another episode's frame as a next observation", ~same & adjacent & has_next[:-1]
