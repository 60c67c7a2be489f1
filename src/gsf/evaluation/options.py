"""What `gsf evaluate` may be told; read without torch, so that help is fast."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from gsf.core.errors import UserError, did_you_mean
from gsf.core.options import CodedOptions, Count, Device, Group, Seed, Some, Threads, between
from gsf.evaluation.rows import MODES, SPLITS
from gsf.evaluation.splits import Split, parse_levels
from gsf.nets.acting import Mode
from gsf.suites.looks import LookKind

Levels = Annotated[int, between(0, 10**6)]


@dataclass(frozen=True)
class EvaluateConfig(CodedOptions):
    """Play one episode on each level of fixed lists, greedy and by sampling."""

    agent: tyro.conf.Positional[str]
    """A run directory, a policy (its file, the directory of a `gsf collect`, or the name of a
    shipped one), or `random`, which draws evenly among the actions that differ (or --dataset's)."""
    out: Path | None = None
    """File of the rows, .csv, .csv.gz or .parquet. Default: returns.csv in the run directory."""
    game: str | None = None
    """What `random` is to play; a run or a policy knows its game, but not a suite in a file of
    yours: file.py:Suite/game."""
    env: str | None = None
    """A Gymnasium environment of yours to play in, as file.py:make: make(level) gives that of a
    level, which is reset with seed=level. The file is run."""
    dataset: Path | None = None
    """`random` and policies: the training data, whose levels count as seen, and whose actions
    `random` draws among; a run knows its own."""
    seed: Seed = 0
    """Of the actions `random` or a policy draws; a run has its own."""
    modes: Annotated[tuple[Mode, ...], Some()] = ("greedy", "sampled", "sampled-1")
    """The best action; one drawn at the run's own temperature, which the validation levels choose
    before anything else is played; one drawn at temperature 1."""
    all: bool = False
    """Play every checkpoint kept (`gsf train --keep`), for learning curves."""
    levels: Annotated[tuple[str, ...], Group.LEVELS] = ()
    """Exactly these (7, or 1000..1099 for all from the first to the last) instead of the lists
    below: those of the training data count as seen, all others as unseen."""
    looks: LookKind | None = None
    """Draw the game otherwise than the agent has seen it: filters, or Procgen's skins; into
    looks-KIND.csv (docs/looks.md). What was trained on looks is played in them without this."""
    ensemble: tuple[Path, ...] = ()
    """Other runs of the method that act together with this one, by the mean of their policies; into
    ensemble.csv, at a temperature of its own."""
    splits: Annotated[tuple[Split, ...], Some()] = ("seen", "validation", "unseen")
    """Which levels: those of the training data, those for choosing, those for reporting."""
    n_seen: Levels = 200
    """Levels of the training data to play; 0: none."""
    n_validation: Levels = 50
    """Validation levels to play, and to choose the temperature by; 0: none, and it stays 1."""
    n_unseen: Levels = 200
    """Unseen levels to play; 0: none."""
    max_frames: Count | None = None
    """Frames after which an episode is over, for a quick look. Default: as the game says."""
    n_envs: Annotated[int, between(1, 4096), Group.MACHINE] = 100
    """Levels played at once; changes the speed only."""
    threads: Threads | None = None
    """Procgen's threads. Default: one per core."""
    device: Device = "auto"
    """Where networks run; auto: CUDA if there is one. mps: a GPU of Apple's, if asked for."""
    held_out: Annotated[Path | None, Group.HELD_OUT] = None
    """Instead of playing: judge the run by a dataset of contexts (sites, levels) it was not trained
    on, into held_out.csv: agreement, likelihood, calibration, an estimate of the return."""
    logged_by: str | None = None
    """--held-out of a recording: the policy that played it (its file, or a shipped one's name) and
    whose probabilities weighted importance sampling needs. Other data brings its own."""
    fqe: bool = True
    """--held-out: estimate the return by fitted Q evaluation, the slowest of the numbers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for what, chosen, known in (("split", self.splits, SPLITS), ("mode", self.modes, MODES)):
            for name in chosen:
                if name not in known:
                    meant = did_you_mean(name, known)
                    raise UserError(
                        f"unknown {what} {name!r}; {meant}choose from {', '.join(known)}."
                    )
        parse_levels(self.levels)
        if self.ensemble and (self.all or self.held_out or self.looks):
            raise UserError("--ensemble plays alone: leave out --all, --held-out and --looks.")

    def n_levels(self, split: Split) -> int:
        return int(getattr(self, f"n_{split}"))
