"""What each `gsf bench` may be told; read without torch, so that help is fast."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from gsf.core.options import BatchSize, Count, Options, Rate, Some, above, between
from gsf.core.presets import Size
from gsf.suites import find_game

Number = Annotated[int, between(1, 10**6)]


@dataclass(frozen=True)
class BenchDataConfig(Options):
    """Measure stepping, hashing, writing, materialising and sampling in one run."""

    game: str = "coinrun"
    """Which game to play."""
    transitions: Count = 200_000
    """How much random play to record and materialise."""
    workdir: Path | None = None
    """Where to write: the disk to measure. Default: the system's temporary folder."""
    out: Path | None = None
    """Also write the numbers as JSON to this file."""


@dataclass(frozen=True)
class BenchTrainConfig(Options):
    """Measure one training step: our layout against plain NCHW, every method against CQL."""

    encoder: str = "impala"
    """Encoder of the comparison with plain NCHW."""
    methods_encoder: str = "impala_small"
    """Encoder of the comparison of methods."""
    batch: BatchSize = 256
    """Transitions per step."""
    rounds: Number = 10
    """Steps of each kind, taken in turns; the median counts."""
    methods: Annotated[tuple[str, ...], Some()] = ("all",)
    """Methods to compare with CQL."""
    memory: bool = True
    """Also measure each method's peak memory, in a process of its own."""
    transitions: Count = 20_000
    """Random coinrun play to train on."""
    against: tuple[Path, ...] = ()
    """Checkouts of gen_dgrl or d3rlpy, whose own CQL steps then take turns with ours; what they
    depend on has to be installed."""
    out: Path | None = None
    """Also write the numbers as JSON to this file."""


@dataclass(frozen=True)
class BenchCollectConfig(Options):
    """Measure the frames that PPO plays and learns from in a second of one core."""

    game: str = "coinrun"
    """What is played."""
    encoders: Annotated[tuple[str, ...], Some()] = ("impala", "impala_small", "nature")
    """Networks of ours; CleanRL's is impala."""
    n_steps: Number = 16
    """Steps of each of 64 games between two updates, of three epochs and eight minibatches."""
    rounds: Number = 3
    """Updates of each kind, taken in turns; the median counts."""
    default: bool = True
    """Also what `gsf collect` does where no GPU is, which is another network, view and schedule."""
    against: Path | None = None
    """A checkout of CleanRL, whose ppo_procgen.py then takes turns with ours."""
    python: Path = Path(sys.executable)
    """The interpreter that runs it, as it needs an older gym than others do (0.23.1)."""
    out: Path | None = None
    """Also write the numbers as JSON to this file."""


@dataclass(frozen=True)
class BenchSharedConfig(Options):
    """Measure every stage with the machine to itself and beside a busy process."""

    encoder: str = "nature"
    """Network of fit, train and evaluate."""
    batch: BatchSize = 256
    """Transitions per step."""
    grad_steps: Count = 20
    """Steps of fit and train; the others are as long in proportion."""
    rounds: Number = 3
    """Times each stage is run, quiet and busy in turns; the median counts."""
    transitions: Count = 20_000
    """Random coinrun play to work on."""
    out: Path | None = None
    """Also write the numbers as JSON to this file."""


@dataclass(frozen=True)
class BenchCostConfig(Options):
    """Estimate hours and money of a whole `gsf run`; nothing is trained."""

    size: tyro.conf.Positional[Size] = "paper"
    """The preset."""
    games: Number = field(default_factory=lambda: len(find_game("coinrun")[0].games))
    """Games. Default: all of the suite."""
    methods: Annotated[tuple[str, ...], Some()] = ("all",)
    """Methods."""
    seeds: Number = 5
    """Seeds of every method."""
    gpus: Annotated[tuple[Number, ...], Some()] = (1, 8)
    """Numbers of GPUs; runs are independent, so that n of them take an n-th of the time."""
    tflops: Annotated[float, above(0, 10**9)] = 156.0
    """Peak of one GPU in 10^12 operations a second (an A100 in TF32)."""
    utilisation: Rate = 0.15
    """Share of the peak that is reached: a guess; on a CPU it is 0.42 (bench train)."""
    dollars: Annotated[float, between(0, 10**6)] = 2.0
    """Price of one GPU for an hour."""
    frames_per_second: Annotated[float, above(0, 10**9)] = 25_000.0
    """Procgen frames stepped beside one GPU (28,000 on two cores, bench data)."""
    out: Path | None = None
    """Also write the table as CSV to this file."""

    def hours(self, flops: float, frames: float) -> float:
        """On one GPU: computing, then stepping, as one waits for the other."""
        seconds = flops / (self.tflops * 1e12 * self.utilisation) + frames / self.frames_per_second
        return seconds / 3600
