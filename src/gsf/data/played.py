"""Blocks of play into a dataset: frames at once, rows when all of a slot's are known."""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gsf.core.stage import Identity
from gsf.data.format import DatasetWriter, Rows
from gsf.data.replay import Block

_ROW = np.dtype(
    [
        ("action", "u1"),
        ("reward", "<f4"),
        ("level", "<i4"),
        ("terminated", "?"),
        ("truncated", "?"),
    ]
)


class PlayWriter:
    """A dataset of `slot_frames[slot]` steps of each slot, which appears whole or not at all.

    `position`: of each of the env's actions, what the dataset calls it. Memory does not grow with
    the length of the play.
    """

    def __init__(
        self,
        out: Path,
        slot_frames: Sequence[int],
        position: NDArray[np.int64],
        *,
        levels: Sequence[int],
        **facts: Any,
    ) -> None:
        self._kept, self._position, self._levels = slot_frames, position, levels
        self._next_row = np.cumsum([0, *slot_frames])  # of every slot
        self._writer = DatasetWriter(out, levels=levels, region_frames=slot_frames, **facts)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._writer)
            self._rows = stack.enter_context(tempfile.TemporaryFile(dir=self._writer.path.parent))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def write(self, block: Block, slot: int = 0, keep: NDArray[np.bool_] | None = None) -> None:
        """The next steps of the slots from `slot` on; `keep` [n_envs, n]: which of them."""
        table = np.empty(block.action.shape, _ROW)
        for name in table.dtype.names or ():
            table[name] = getattr(block, name)
        table["action"] = self._position[block.action]
        for i, steps in enumerate(np.ones(table.shape, bool) if keep is None else keep):
            n = int(steps.sum())
            chosen = slice(n) if steps[:n].all() else steps  # a slice needs no copy
            if n:
                self._writer.append(slot + i, block.obs[i, chosen])
                self._rows.seek(int(self._next_row[slot + i]) * _ROW.itemsize)
                self._rows.write(table[i, chosen].tobytes())
                self._next_row[slot + i] += n

    def finish(self, identity: Identity, **facts: Any) -> None:
        self._writer.finish(self._columns(), identity, **facts)

    def _columns(self) -> Iterator[Rows]:
        """The dataset's columns, one slot after the other."""
        episode = first = 0
        self._rows.seek(0)
        for n in filter(None, self._kept):
            table = np.frombuffer(self._rows.read(n * _ROW.itemsize), _ROW)
            ended = table["terminated"] | table["truncated"]
            begun = np.cumsum(ended) - ended  # the episode's number inside the slot
            starts = np.flatnonzero(np.diff(begun, prepend=-1))
            yield {
                **{name: table[name] for name in ("action", "reward", "terminated", "truncated")},
                "level": np.searchsorted(self._levels, table["level"]),
                "episode": episode + begun,
                "t": np.arange(n) - starts[begun],
                # No terminal observation is shown, and a slot's last row has no successor.
                "has_next": ~ended & (np.arange(n) < n - 1),
                "frame": first + np.arange(n),
            }
            episode += int(begun[-1]) + 1
            first += n
