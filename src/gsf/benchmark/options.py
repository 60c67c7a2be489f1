"""What each `gsf benchmark` may be told; read without torch, so that help is fast."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from gsf.core.errors import UserError
from gsf.core.options import CodedOptions, Count, Group, Options, Seed, above, between
from gsf.evaluation.intervals import REPLICATES
from gsf.sweep.options import MAX_SEEDS


@dataclass(frozen=True)
class ProtocolsConfig(Options):
    """The protocols: what each is for, what it costs, its digest."""


@dataclass(frozen=True)
class ShowConfig(Options):
    """All that a protocol fixes, and the rows of it that come with gsf."""

    protocol: tyro.conf.Positional[str]
    """Its name, as `gsf benchmark list` has it."""


@dataclass(frozen=True)
class EnterConfig(CodedOptions):
    """Train methods of yours under a protocol and play its test levels: OUT/PROTOCOL/rows.csv.gz.

    It is `gsf run` with all fixed that the protocol fixes. Stopped, the same command goes on.
    """

    protocol: tyro.conf.Positional[str]
    """Its name, as `gsf benchmark list` has it."""
    methods: tuple[str, ...] = ()
    """Yours, as file.py:Name or of an installed package; settings of its own behind a plus, as in
    file.py:Name+name.weight=0.3."""
    baselines: bool = False
    """Instead of yours: the protocol's own methods, whose rows come with gsf."""
    games: tuple[str, ...] = ()
    """Only some of the protocol's games: a first look."""
    seeds: Count | None = None
    """Fewer seeds than the protocol's: a first look."""
    first_seed: Annotated[int, between(0, MAX_SEEDS - 1)] = 0
    """The first of them."""
    validation: bool = False
    """Play validation levels alone, to choose settings by; no test level is played and nothing can
    be entered."""
    out: Path = Path("results/benchmark")
    """Directory of results; each protocol has a folder of its own there."""
    workers: Annotated[Annotated[int, between(1, 1024)] | None, Group.MACHINE] = None
    """Runs at a time. Default: as many as there are cores, on a GPU one."""
    shard: str | None = None
    """Only part I of N of the runs, as I/N with I from 1."""
    merge: tuple[Path, ...] = ()
    """Run nothing: bring the results of these directories, of shards, together in --out."""
    cluster: Annotated[str | None, Group.CLUSTER] = None
    """Spread the runs over the Ray cluster at HOST:PORT (or auto): docs/cluster.md."""
    cpus: Annotated[float, between(0.01, 1024)] = 1.0
    """--cluster: CPUs of each run."""
    gpus: Annotated[float, between(0, 1024)] | None = None
    """--cluster: GPUs of each run. Default: 1 if the cluster has any."""
    storage: str | None = None
    """--cluster: also copy every file to this URI."""
    cache_gb: Annotated[float, above(0, 10**6)] = 100.0
    """--cluster: what each machine may keep of datasets and labels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.methods) == self.baselines:
            raise UserError("name methods of yours (--methods file.py:Name), or --baselines.")


@dataclass(frozen=True)
class BesideConfig(Options):
    """Rows of yours beside those of the baselines: means, ranks, paired differences."""

    rows: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Files of `gsf benchmark run` or their folders, entries, or rows of `gsf evaluate` (open)."""
    protocol: str | None = None
    """Its name. Default: the one whose digest stands in the rows."""
    out: Path | None = None
    """File of the report (.md). Default: report.md beside the first file of rows."""


@dataclass(frozen=True)
class AgainConfig(Options):
    """Play a random tenth of an entry's levels again with its agents' checkpoints, and compare."""

    entry: tyro.conf.Positional[Path]
    """Its folder: card.toml and rows.csv.gz."""
    runs: Path = Path("results/benchmark")
    """Where its runs are, as `gsf benchmark run` left them."""
    share: Annotated[float, above(0, 1)] = 0.1
    """How much of it."""
    seed: Seed = 0
    """Of the choice of levels: whoever checks chooses one that the entrant does not know."""


@dataclass(frozen=True)
class BoardConfig(Options):
    """The page of all entries beside the baselines; every entry is checked on the way."""

    entries: Path = Path("docs/benchmark/entries")
    """Folder of entries, each a folder with card.toml and rows.csv.gz."""
    out: Path = Path("docs/leaderboard.md")
    """The page to write."""
    replicates: Annotated[int, between(10, 10**6)] = REPLICATES
    """Of the bootstrap behind the intervals."""
