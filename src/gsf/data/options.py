"""What `gsf materialise`, `data import` and `data export` may be told; a dataset's manifest."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gsf.core.errors import UserError
from gsf.core.options import (
    CodedOptions,
    Count,
    Incidental,
    Input,
    Options,
    Range,
    Seed,
    Threads,
    between,
)
from gsf.core.schema import COUNT, MOST_ACTIONS, NUMBER, POSITIVE, TEXT
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
class MaterialiseConfig(CodedOptions):
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


@dataclass(frozen=True)
class ImportConfig(Options):
    """Import a Minari dataset, a folder of npz episodes, or what `gsf data export` wrote."""

    source: Input[tyro.conf.Positional[str]]
    """A folder of .npz episodes, the directory of a Minari dataset or the id of a local one, or a
    folder that `gsf data export --format parquet` wrote."""

    out: Incidental[Path]
    """Directory of the new dataset; held-out contexts go to OUT-validation."""

    format: Literal["auto", "minari", "npz", "parquet", "gen_dgrl"] = "auto"
    """What the source is; auto looks. gen_dgrl: its public offline Procgen data."""

    context: str = "level"
    """Key of an episode's context: in its metadata or infos (Minari; "seed" for the episode's
    seed), an array in its file or else its sub-folder's name (npz)."""

    image: str | None = None
    """Key of the images where Minari observations are a dictionary."""

    n_actions: Annotated[int, between(1, MOST_ACTIONS)] | None = None
    """Number of actions; by default the action space's (Minari) or the largest seen + 1 (npz)."""

    validation: Annotated[float, Range(0, 1, high_open=True)] = 0.0
    """Share of the contexts to hold out for validation."""

    hold_out: tuple[str, ...] = ()
    """Contexts to hold out for validation, by name."""

    seed: Seed = 0
    """Which contexts a share holds out."""


@dataclass(frozen=True)
class ExportConfig(Options):
    """Export a dataset to Minari or Parquet, losslessly."""

    dataset: tyro.conf.Positional[Path]
    """Dataset to export."""

    out: Path
    """Directory of the new one."""

    format: Literal["minari", "parquet"] = "minari"
    """parquet: images as PNG, a card and every level's id, laid out as dataset hubs take it."""

    dataset_id: str | None = None
    """Minari's name for it, [namespace/]name-v0; by default the directory's or the dataset's."""
