"""What `gsf materialise` may be told, and what a dataset's manifest says."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gsf.core.errors import UserError
from gsf.core.options import Count, Incidental, Input, Options, Seed, Threads, between
from gsf.core.schema import COUNT, NUMBER, POSITIVE, TEXT
from gsf.core.stage import FILES, WORLD, Kind
from gsf.suites.looks import LookKind

DATASET = Kind(
    "dataset",
    made_by="`gsf materialise` and `gsf data import` make one",
    begun=(WORLD,),
    whole=(
        {
            "name": TEXT,
            "n": POSITIVE,
            "n_frames": POSITIVE,
            "episodes": POSITIVE,
            "mean_return": (None, NUMBER),
            "regions": [[COUNT]],
            "files": FILES,
        },
    ),
)


@dataclass(frozen=True)
class MaterialiseConfig(Options):
    """Replay a recording into a dataset of pixels on disk, verifying every checksum."""

    recording: Input[tyro.conf.Positional[str]]
    """A recording file, or the name of a shipped one (see `gsf data list`)."""
    out: Incidental[Path]
    """Directory of the dataset to make."""
    levels: Count | None = None
    """Only what was played on the first so many levels of the recording."""
    transitions: Count | None = None
    """Only so many (of these levels), of the first env slots over the whole time, so that epsilon
    keeps its range."""
    looks: Count | None = None
    """Draw every episode in one of so many looks, which are then the dataset's contexts
    (docs/looks.md). What is played stays the same."""
    look_kind: LookKind = "filters"
    """--looks: filters (colours, brightness, texture) or skins (Procgen's own pictures)."""
    views: Annotated[int, between(1, 16)] = 1
    """--looks: write every state in so many looks; of N rows, row i + N / views has the state of
    row i."""
    first_look: Seed = 0
    """--looks: the first of them; from 1000000 on they are none that anybody trains on."""
    look_seed: Seed = 0
    """--looks: of which episode has which look."""
    actions: Literal["distinct", "all"] = "distinct"  # Deviation: the paper has all 15
    """What the dataset's actions are: those of the game that differ in what follows, or all of the
    suite's, of which many may do the same."""
    threads: Incidental[Threads | None] = None
    """The env's threads; the result does not depend on it. Default: one per core."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.views > (self.looks or 1):
            raise UserError(f"--views {self.views} needs as many --looks, or more.")
