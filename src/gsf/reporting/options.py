"""What `gsf report` and `gsf verify` may be told."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gsf.core.errors import UserError
from gsf.core.options import Count, Group, Options, Seed, Some, Threads, between
from gsf.core.stage import FILES, Kind
from gsf.nets.acting import Mode

REPORT = Kind("report", made_by="`gsf report` makes one", begun=({"files": FILES},))


@dataclass(frozen=True)
class ReportConfig(Options):
    """Compare runs: a page that opens without a network, and its figures and tables as files."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], Some()]
    """Run directories, directories of a `gsf run`, or CSV files of `gsf evaluate`; also those of
    `gsf collect`, for its learning curve, and of `gsf similar`, for its figure."""
    out: Path
    """Directory of the report; one that is there is brought up to date."""
    split: Literal["unseen", "validation", "seen"] = "unseen"
    """Levels of the headline, and of every figure and table that does not say another."""
    mode: Mode = "sampled"
    """Actions of the headline: drawn at every run's own temperature, at 1, or the best one."""
    baseline: str = "cql"
    """What methods are compared with."""
    power: bool = False
    """Also the smallest effect that could be seen with so many seeds and levels, to plan a
    comparison by rows that are there: a figure, two tables, and the mean over games printed."""
    replicates: Annotated[int, between(1, 10**6)] = 2000
    """Bootstrap replicates behind every interval."""
    videos: Annotated[bool, Group.PICTURE] = True
    """Film strips of every agent on the same unseen levels; needs Procgen and torch."""
    video_steps: Annotated[int, between(1, 100_000)] = 256
    """Steps of play in a film."""
    env: str | None = None
    """The Gymnasium environment of yours, as file.py:make, to film agents of your own data in. The
    file is run."""
    explorer: bool = True
    """Neighbours of observations under every method's embedding; needs torch and the dataset."""
    explorer_sample: Annotated[int, between(1, 10**6)] = 2000
    """Observations per game that neighbours are looked for among."""
    games: Annotated[tuple[str, ...], Group.COMPARISON] = ()
    """Runs expected, games x methods x seeds: those without results are named. Default: as found"""
    methods: tuple[str, ...] = ()
    """See --games."""
    seeds: Count | None = None
    """See --games: so many seeds, from --first-seed on."""
    first_seed: Seed = 0
    """See --seeds."""
    leave_out: tuple[str, ...] = ()
    """Methods to leave out, such as one that lacks games: means are over the games all have."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first_seed and not self.seeds:
            raise UserError("--first-seed says where --seeds begin; give --seeds, too.")
        for path in self.runs:
            if not path.exists():
                raise UserError(f"there is no {path} to report on.")


@dataclass(frozen=True)
class VerifyConfig(Options):
    """Check that what gsf has made is still what it wrote; exit code 1 if anything is not.

    Takes whatever gsf makes: a recording, a dataset, a fit, labels, a run, a policy, a tuning, a
    report, a file of them, or a directory with all of them.
    """

    path: tyro.conf.Positional[str]
    """A file or a directory, or the name of a shipped recording."""
    replay: bool = False
    """Also play recordings again and compare every reward, level and pixel; needs their suite."""
    threads: Threads | None = None
    """--replay: the env's threads. Default: one per core."""
