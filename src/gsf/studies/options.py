"""What `gsf probe` and `gsf similar` may be told; read without torch, so that help is fast."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from gsf.core.errors import UserError
from gsf.core.options import Incidental, Input, require_positive, require_seed


@dataclass(frozen=True)
class ProbeConfig:
    """Measure how well embeddings tell value quantiles, on seen and on held-out levels."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories, or directories of a `gsf run`; tuning runs are left out."""
    held_out: tuple[Path, ...]
    """Datasets on other levels, one per game (`gsf materialise coinrun-validation` makes one)."""
    out: Path
    """Directory of the table and the figure to make."""
    sample: int = 3_000
    """Observations per game and kind of level."""
    k: int = 5
    """Neighbours of each observation."""

    def __post_init__(self) -> None:
        require_positive(self, "sample", "k")


@dataclass(frozen=True)
class SimilarConfig:
    """Find two segments of play with close values and latent states but far actions."""

    recording: Input[tyro.conf.Positional[str]]
    """A recording file, or the name of a shipped one."""
    policy: Input[Path]
    """A policy of `gsf collect` (its file or directory) for this game."""
    out: Incidental[Path]
    """Directory of the figure to make."""
    gvf: Input[Path | None] = None
    """A fit of the dataset made from this recording; default: the logged discounted return."""
    dataset: Input[Path | None] = None
    """Where that dataset is now, if it was moved after the fit."""
    levels: tuple[int, ...] = ()
    """Only these levels, two or more; default: all that are played."""
    length: int = 5
    """Steps of a segment."""
    transitions: int = 20_000
    """How much of the recording to search, in its first slots."""
    segments: int = 3_000
    """Segments compared with each other, drawn from all."""
    max_value_error: float = 0.05
    """Largest normalised squared error of values (paper: 0.04)."""
    candidates: int = 100
    """Pairs with the farthest actions whose latent states are compared."""
    gamma: float = 0.99
    """Discount of the logged return."""
    seed: int = 0
    """Of the draw of segments."""

    def __post_init__(self) -> None:
        require_positive(self, "length", "transitions", "segments", "candidates", "max_value_error")
        require_seed(self.seed)
        if len(self.levels) == 1:
            raise UserError("--levels needs at least two levels to compare.")
        if not 0 <= self.gamma <= 1:
            raise UserError(f"--gamma must lie between 0 and 1, got {self.gamma}.")
