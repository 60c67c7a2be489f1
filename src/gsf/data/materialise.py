"""Stage: recording -> pixel dataset, replayed in a stream and verified on the way.

In: a recording (file or the name of a shipped one). Out: a dataset directory, whole or not at all.
Memory does not grow with the recording's length. Needs the suite, not torch.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from gsf.core.logs import console, progress
from gsf.core.options import Incidental, Input, require_positive
from gsf.core.stage import Identity
from gsf.data.format import DatasetWriter, Rows
from gsf.data.recording import Block, Recording, Replay, Take
from gsf.suites import facts_of

_ROW = np.dtype(
    [
        ("action", "u1"),
        ("reward", "<f4"),
        ("level", "<i4"),
        ("terminated", "?"),
        ("truncated", "?"),
    ]
)


@dataclass(frozen=True)
class MaterialiseConfig:
    """Replay a recording into a dataset of pixels on disk, verifying every checksum."""

    recording: Input[tyro.conf.Positional[str]]
    """A recording file, or the name of a shipped one (see `gsf data list`)."""
    out: Incidental[Path]
    """Directory of the dataset to make."""
    transitions: int | None = None
    """Only so many, of the first env slots over the whole time, so that epsilon keeps its range."""
    threads: Incidental[int | None] = None
    """The env's threads; the result does not depend on it. Default: one per core."""

    def __post_init__(self) -> None:
        require_positive(self, "transitions")


def materialise(config: MaterialiseConfig) -> Path:
    recording = Recording.load(config.recording)
    identity = Identity.of("dataset", config, {"recording": recording.digest})
    if identity.is_done(config.out):
        console.print(f"{config.out} is there already.", soft_wrap=True)
        return config.out
    n = config.transitions or len(recording)
    recording = recording.cut(n)
    kept = _kept_steps(recording.takes, dropped=len(recording) - n)
    facts = facts_of(recording.game)
    with (
        DatasetWriter(
            config.out,
            name=recording.game,
            obs_shape=facts.obs_shape,
            n_actions=len(facts.actions),
            levels=recording.levels,
            region_frames=kept,
        ) as writer,
        tempfile.TemporaryFile(dir=config.out.parent) as rows,
    ):
        mismatches = _replay(recording, config.threads, kept, writer, rows.fileno())
        writer.finish(
            _columns(rows.fileno(), kept, recording.levels),
            identity,
            difficulty=recording.difficulty,
            provenance=[take.policy | {"epsilon": take.epsilon} for take in recording.takes],
            pixels_match=mismatches == 0,
        )
    if mismatches:
        blocks = sum(take.pixels.size for take in recording.takes)
        console.print(
            f"[yellow]warning:[/] pixels differ in {mismatches} of {blocks} checksums (another CPU "
            "or system renders differently); rewards, levels and ends are right.",
            soft_wrap=True,
        )
    console.print(f"{n:,} transitions of {recording.game} in {config.out}.", soft_wrap=True)
    return config.out


def _kept_steps(takes: Sequence[Take], dropped: int) -> list[int]:
    """Steps to keep of every slot: all, but for `dropped` at the end of the last ones."""
    kept = [take.n_steps for take in takes for _ in range(take.n_envs)]
    for slot in reversed(range(len(kept))):
        less = min(dropped, kept[slot])
        kept[slot] -= less
        dropped -= less
    return kept


def _replay(
    recording: Recording, threads: int | None, kept: list[int], writer: DatasetWriter, rows: int
) -> int:
    """Writes frames, and rows slot by slot, while the next block is played; returns mismatches."""
    first_row = np.cumsum([0, *kept])
    mismatches, slot, done = 0, 0, 0

    def write(block: Block, slots: range, at: int) -> None:
        table = np.empty(block.action.shape, _ROW)
        for name in table.dtype.names or ():
            table[name] = getattr(block, name)
        for i, region in enumerate(slots):
            keep = int(np.clip(kept[region] - at, 0, table.shape[1]))
            if keep:
                writer.append(region, block.obs[i, :keep])
                os.pwrite(rows, table[i, :keep].tobytes(), (first_row[region] + at) * _ROW.itemsize)

    with (
        progress(f"materialise {recording.game}", len(recording), "frames") as advance,
        ThreadPoolExecutor(1) as aside,
    ):
        for take in recording.takes:
            replay, slots, at = Replay(recording, take, threads), range(slot, slot + take.n_envs), 0
            pending: Future[Any] = aside.submit(int)
            for block in replay:
                pending.result()  # a block's buffer is played into again two blocks later
                pending = aside.submit(write, block, slots, at)
                at += block.action.shape[1]
                done += block.action.size
                advance(done)
            pending.result()
            slot += take.n_envs
            mismatches += replay.pixel_mismatches
    return mismatches


def _columns(rows: int, kept: list[int], levels: list[int]) -> Iterator[Rows]:
    """The dataset's columns, one slot after the other."""
    episode = first = 0
    for n in filter(None, kept):
        table = np.frombuffer(os.pread(rows, n * _ROW.itemsize, first * _ROW.itemsize), _ROW)
        ended = table["terminated"] | table["truncated"]
        begun = np.cumsum(ended) - ended  # the episode's number inside the slot
        starts = np.flatnonzero(np.diff(begun, prepend=-1))
        yield {
            **{name: table[name] for name in ("action", "reward", "terminated", "truncated")},
            "level": np.searchsorted(levels, table["level"]),
            "episode": episode + begun,
            "t": np.arange(n) - starts[begun],
            # Procgen shows no terminal observation, and a slot's last row has no successor.
            "has_next": ~ended & (np.arange(n) < n - 1),
            "frame": first + np.arange(n),
        }
        episode += int(begun[-1]) + 1
        first += n
