"""What `gsf probe`, `similar` and `data levels` may be told; read without torch: help is fast."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from gsf.core.errors import UserError
from gsf.core.options import Count, Incidental, Input, Options, Seed, Share, Some, above, between
from gsf.core.schema import TEXT
from gsf.core.stage import FILES, Kind
from gsf.suites import find_game

SIMILAR = Kind("similar", whole=({"game": TEXT, "files": FILES},))


@dataclass(frozen=True)
class ProbeConfig(Options):
    """Measure how well embeddings tell value quantiles, on seen and on held-out levels."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], Some()]
    """Run directories, or directories of a `gsf run`; tuning runs are left out."""
    held_out: tuple[Path, ...] = ()
    """Datasets on other levels, one per game (`gsf materialise coinrun-validation` makes one)."""
    out: Path = Path("probe")
    """Directory of the table and the figure to make."""
    looks: Path | None = None
    """Instead: a dataset that shows each state in two looks (`gsf materialise --looks 16 --views
    2`). How near are they put, and how often is the same done in both?"""
    sample: Annotated[int, between(1, 10**6)] = 3_000
    """Observations per game and kind of level."""
    k: Annotated[int, between(1, 1000)] = 5
    """Neighbours of each observation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.held_out) == (self.looks is not None):
            raise UserError("what to probe with? Give --held-out datasets, or --looks one.")


@dataclass(frozen=True)
class SimilarConfig(Options):
    """Find two segments of play with close values and latent states but far actions."""

    recording: Input[tyro.conf.Positional[str]]
    """A recording file, or the name of a shipped one."""
    policy: Input[Path | None] = None
    """A policy of `gsf collect` (its file or directory, or the name of a shipped one) for this
    game. Default: the one that was recorded."""
    out: Incidental[Path] = Path("similar")
    """Directory of the figure to make."""
    gvf: Input[Path | None] = None
    """A fit of the dataset made from this recording; default: the logged discounted return."""
    dataset: Input[Path | None] = None
    """Where that dataset is now, if it was moved after the fit."""
    levels: tuple[Seed, ...] = ()
    """Only these levels, two or more; default: all that are played."""
    length: Annotated[int, between(1, 1000)] = 5
    """Steps of a segment."""
    transitions: Count = 20_000
    """How much of the recording to search, in its first slots."""
    segments: Annotated[int, between(1, 10**6)] = 3_000
    """Segments compared with each other, drawn from all."""
    max_value_error: Annotated[float, above(0, 10**6)] = 0.05
    """Largest normalised squared error of values (paper: 0.04)."""
    candidates: Annotated[int, between(1, 10**6)] = 100
    """Pairs with the farthest actions whose latent states are compared."""
    gamma: Share = 0.99
    """Discount of the logged return."""
    seed: Seed = 0
    """Of the draw of segments."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.levels) == 1:
            raise UserError("--levels needs at least two levels to compare.")


@dataclass(frozen=True)
class LevelsConfig(Options):
    """Count how often the levels of games repeat each other, by playing them."""

    games: Annotated[tyro.conf.Positional[tuple[str, ...]], Some()]
    """Games of an installed suite, such as Procgen's 16."""
    n: Count = 500
    """Unseen levels of each game to look at, beside its training levels."""
    out: Incidental[Path | None] = None
    """Also write the table to this CSV file."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for game in self.games:
            find_game(game)
