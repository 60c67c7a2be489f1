"""Folders of npz files, one episode each, as a source for `gsf data import`.

A file holds obs [T or T+1,H,W,C] uint8, action [T], reward [T], and optionally terminated and
truncated (one flag each, or [T]; without them the episode is terminated at its end) and
behaviour_prob [T], the probability with which each action was taken. Its context is another array
in it, or else the name of its sub-folder. Nothing is unpickled.
"""

import contextlib
import math
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gsf.core.errors import UserError
from gsf.core.images import image_shape, to_hwc
from gsf.data.episodes import Episode, Outline, Source, check_steps, end_flag, one_value
from gsf.data.format import Array
from gsf.data.options import ImportConfig


def read_npz(config: ImportConfig) -> Source:
    folder = Path(config.source)
    files = sorted(folder.rglob("*.npz"))
    if not files:
        raise UserError(f"{folder} holds no .npz files.")
    with opened(files[0]) as first:
        by_folder = config.context not in first and files[0].parent != folder
        knows_prob = "behaviour_prob" in first
    outlines, shapes, n_actions = [], [], 1
    for file in files:
        with opened(file) as arrays:
            obs_shape, action = arrays.obs_shape(), arrays.read("action")
            check_steps(str(file), action, arrays.read("reward"), config.n_actions)
            arrays.ends(len(action))
            if (arrays.behaviour_prob(len(action)) is None) == knows_prob:
                raise UserError(
                    f"{file} and {files[0]} do not both have 'behaviour_prob'; give it in every "
                    "file or in none."
                )
            folder_name = file.parent.relative_to(folder).as_posix()
            if by_folder:
                context = one_value(folder_name, str(file), "sub-folder")
            else:
                context = arrays.context(config.context)
        if obs_shape[0] - len(action) not in (0, 1):
            raise UserError(
                f"{file} has {obs_shape[0]} observations for {len(action)} actions; "
                "an episode has as many, or one more."
            )
        outlines.append(Outline(str(file), context, len(action), obs_shape[0]))
        shapes.append(image_shape(obs_shape[1:]))
        n_actions = max(n_actions, int(action.max()) + 1)
    for file, shape in zip(files, shapes, strict=True):
        if shape != shapes[0]:
            raise UserError(f"{file} has images of shape {shape}, but {files[0]} of {shapes[0]}.")
    return Source(
        name=folder.resolve().name,
        root=folder,
        files=files,
        obs_shape=shapes[0] or (),
        n_actions=config.n_actions or n_actions,
        outlines=outlines,
        episodes=lambda: map(_episode, files),
    )


def _episode(file: Path) -> Episode:
    with opened(file) as arrays:
        action = arrays.read("action")
        terminated, truncated = arrays.ends(len(action))
        obs = to_hwc(arrays.read("obs"))
        chance = arrays.behaviour_prob(len(action))
        return Episode(obs, action, arrays.read("reward"), terminated, truncated, chance)


class Arrays:
    """The arrays of one file. Not np.load: it cannot tell a shape without reading the frames."""

    def __init__(self, file: Path, archive: zipfile.ZipFile) -> None:
        self._file, self._archive = file, archive
        self.names = sorted(name.removesuffix(".npy") for name in archive.namelist())

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def read(self, name: str) -> Array:
        if name not in self:
            raise UserError(f"{self._file} has no array {name!r}; it has {', '.join(self.names)}.")
        self._shape(name)  # refuses what it claims before anything is allocated
        with self._archive.open(f"{name}.npy") as stream:
            array: Array = np.lib.format.read_array(stream)  # type: ignore[no-untyped-call]
        return array

    def _shape(self, name: str) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype; refused if the file is too small to hold such an array."""
        try:
            entry = self._archive.getinfo(f"{name}.npy")
            with self._archive.open(entry) as stream:
                version = np.lib.format.read_magic(stream)  # type: ignore[no-untyped-call]
                read = {(1, 0): np.lib.format.read_array_header_1_0}.get(
                    version, np.lib.format.read_array_header_2_0
                )
                shape, _, dtype = read(stream)  # type: ignore[no-untyped-call]
                expected = stream.tell() + math.prod(shape) * dtype.itemsize
        except Exception as error:  # numpy reads the header as Python, which breaks in many ways
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(f"{self._file} has no readable array {name!r} ({said}).") from None
        # Nothing is packed more than 1,032 times smaller.
        if dtype.hasobject:  # gsf unpickles nothing
            return shape, dtype
        if (
            {*map(type, shape)} - {int}
            or entry.file_size != expected
            or expected > 1032 * entry.compress_size + 1024
        ):
            raise UserError(
                f"{self._file} is damaged: {name!r} claims {expected:,} bytes that are not there."
            )
        return shape, dtype

    def obs_shape(self, name: str = "obs") -> tuple[int, ...]:
        if name not in self:
            raise UserError(f"{self._file} has no array {name!r}; it has {', '.join(self.names)}.")
        shape, dtype = self._shape(name)
        if dtype != np.uint8 or image_shape(shape[1:]) is None:
            raise UserError(
                f"{self._file} has {dtype} observations of shape {shape}; "
                "gsf needs uint8 images [T,H,W,C]."
            )
        return tuple(shape)

    def context(self, key: str) -> Any:
        if key not in self:
            raise UserError(
                f"{self._file} has no {key!r} to tell its context; choose one of its arrays "
                f"({', '.join(self.names)}) with --context, or use a sub-folder for each context."
            )
        return one_value(self.read(key), str(self._file), key)

    def behaviour_prob(self, n_steps: int) -> Array | None:
        if "behaviour_prob" not in self:
            return None
        chance = self.read("behaviour_prob")
        known = chance.shape == (n_steps,) and chance.dtype.kind in "fiu"
        chance = chance.astype(np.float32) if known else chance  # as it is kept
        if not (known and ((chance > 0) & (chance <= 1)).all()):
            raise UserError(
                f"{self._file} has a 'behaviour_prob' that is not one number in (0, 1] a step: the "
                "probability with which the logged action was chosen."
            )
        return chance

    def ends(self, n_steps: int) -> tuple[bool, bool]:
        """(terminated, truncated)"""
        flags = {
            key: end_flag(self.read(key), n_steps, str(self._file), key)
            for key in ("terminated", "truncated")
            if key in self
        }
        truncated = flags.get("truncated", False)
        return flags.get("terminated", not truncated), truncated


_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    MemoryError,
    OverflowError,
)


@contextlib.contextmanager
def opened(file: Path) -> Iterator[Arrays]:
    if not file.is_file():  # reading a pipe might never end
        raise UserError(f"{file} is no file, whatever its name says; remove it.")
    try:
        with zipfile.ZipFile(file) as archive:
            yield Arrays(file, archive)
    except _UNREADABLE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{file} is not a readable .npz of plain arrays: {reason}.") from None
