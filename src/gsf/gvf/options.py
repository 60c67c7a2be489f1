"""What `gsf fit` and `gsf label` may be told; read without torch, so that help is fast."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gsf.core.errors import UserError
from gsf.core.options import (
    BatchSize,
    CodedOptions,
    Count,
    Device,
    Group,
    Incidental,
    Input,
    PrecisionOrAuto,
    Rate,
    Seed,
    Share,
    StepSize,
    between,
)
from gsf.core.schema import COUNT, LEVELS, NUMBER, POSITIVE
from gsf.core.stage import FILES, Kind
from gsf.gvf.controls import BY_CHANCE, Source
from gsf.gvf.cumulants import Rank

Bins = Annotated[int, between(2, 1000)]

GVF = Kind(
    "gvf",
    in_words="a fit",
    made_by="`gsf fit` makes one of a dataset: values of its observations, to be labelled",
    whole=(
        {
            "cumulant": str,
            "rank": str,
            "levels": LEVELS,
            "n": POSITIVE,
            "d": POSITIVE,
            "seeded": bool,
            "unknown": NUMBER,
            "files": FILES,
            "inputs": {"dataset": str},
            "config": {"dataset": str, "estimator": str, "gamma": NUMBER, "seed": int},
        },
    ),
)
LABELS = Kind(
    "labels",
    in_words="labels",
    made_by="`gsf label` makes them of a fit, which `gsf fit` makes of a dataset",
    whole=(
        {
            "cumulant": str,
            "levels": LEVELS,
            "n": POSITIVE,
            "n_bins": POSITIVE,
            "n_labels": POSITIVE,
            "files": FILES,
            "inputs": {"dataset": str},
            "histogram": [COUNT],
            "share_ignored": NUMBER,
            "spearman_time_left": [(None, NUMBER)],
            "config": {"quantiles": str},
        },
    ),
)


@dataclass(frozen=True)
class FitConfig(CodedOptions):
    """Fit per-level GVFs of a cumulant: what its discounted future sum is at every transition."""

    dataset: Input[tyro.conf.Positional[Path]]
    """A dataset directory (`gsf materialise` or `gsf data import` make one)."""
    out: Incidental[Path]
    """Directory of the fit to make."""
    cumulant: str = "reward"
    """reward, successor, action, or your own as file.py:name (docs/extending.md)."""
    estimator: Literal["mc", "td"] = "mc"
    """mc: sums along the logged trajectories, seconds. td: a network, the paper's way."""
    gamma: Share = 0.99
    """Discount."""
    rank: Rank | None = None
    """What of the GVF is ranked: its value, the l1 norm, all components, the logged action's."""
    seed: Seed = 0
    """Of networks and sampling; mc needs it only for cumulants with random parts (successor)."""
    bootstrap: Input[Path | None] = None
    """mc: a td fit whose values stand in for the future behind a cut; else labels are -1 there."""
    grad_steps: Annotated[Count, Group.TD] = 5_000
    """td: gradient steps (paper: 100,000)."""
    batch: BatchSize = 256
    """td: transitions per step."""
    n_steps: Annotated[int, between(1, 1000)] = 20  # Deviation: the paper has 1
    """td: logged steps that a target adds up before the network's own value of what follows."""
    lr: StepSize = 3e-4
    """td: Adam's learning rate."""
    target_rate: Rate = 0.005
    """td: how far the target network moves in each step."""
    encoder: str = "impala_small"
    """td: the GVF's own encoder f': impala, impala_small, nature, or your own as file.py:name."""
    precision: PrecisionOrAuto = "float32"
    """td: bf16 computes f's convolutions in bfloat16, faster where the processor has it. auto: a
    trial of two seconds decides, and its choice is kept. No default before labels of both were
    compared."""
    q: bool = False
    """td: SARSA, one output per action, ranked at the logged one (the paper's table), not V; for
    cumulants of one component only."""
    checkpoint_every: Incidental[Count] = 500
    """td: steps between checkpoints; the same command goes on from the last one."""
    device: Annotated[Incidental[Device], Group.MACHINE] = "auto"
    """Where networks run; auto: CUDA if there is one. mps: a GPU of Apple's, if asked for."""
    diagnose: Annotated[Incidental[bool], Group.COMPARISON] = True
    """Report correlation with the logged future (td) and with the time left, and predictability on
    held-out levels."""
    compare: Incidental[bool] = False
    """Instead: rank --cumulants by what their labels are worth, before any agent is trained."""
    cumulants: Incidental[tuple[str, ...]] = ()
    """--compare: which ones; by default all that need no file of yours."""
    compare_rows: Incidental[Count] = 100_000
    """--compare with mc: use whole levels, drawn at random, until there are so many transitions."""
    n_bins: Incidental[Bins] = 7
    """Labels for these reports only; `gsf label` has its own."""
    allow_small_levels: Annotated[Incidental[bool], Group.RARE] = False
    """Accept declared levels without a single transition."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.q and self.estimator != "td":
            raise UserError("--q needs --estimator td: a logged trajectory has no other actions.")
        if self.bootstrap and self.estimator != "mc":
            raise UserError("--bootstrap needs --estimator mc; td bootstraps by itself.")
        if self.estimator == "td" and self.gamma == 1:
            raise UserError("--estimator td needs --gamma below 1.")
        if self.estimator == "td" and self.device == "mps":
            raise UserError("--device mps: td counts in float64, which it lacks; use --device cpu.")


@dataclass(frozen=True)
class LabelConfig(CodedOptions):
    """Turn GVFs into labels: the bin of each value among the values of its own level."""

    gvf: Input[tyro.conf.Positional[Path]]
    """A fit (`gsf fit` makes it)."""
    out: Incidental[Path]
    """Directory of the labels to make."""
    n_bins: Bins = 7
    """K, the number of quantile bins."""
    source: Source = "values"
    """values: the fit's. To compare with: oracle, the suite's true values of reward (grids know
    theirs); noise, a number by chance for every transition; permuted, the fit's values dealt out
    anew within each level."""
    seed: Seed = 0
    """Of noise and permuted; `gsf run` gives each run its own."""
    quantiles: Literal["dataset", "batch"] = "dataset"
    """dataset: ranks among all transitions of the level. batch: training bins the values of each
    minibatch anew, the paper's Algorithm 2 to the letter."""
    allow_small_levels: Incidental[bool] = False
    """Give levels with fewer than n-bins transitions the label -1 instead of refusing them."""
    dataset: Input[Path | None] = None
    """Where the dataset is now, if it was moved after the fit."""
    against: Incidental[Path | None] = None
    """Another fit of the same dataset, e.g. of another seed: report how far the labels agree."""
    suggest_bins: Incidental[bool] = False
    """Also print Theorem 1's terms and a suggested K."""
    epsilon: Incidental[Rate] = 0.2
    """--suggest-bins: Theorem 1's epsilon, as a share of a level's range of values."""

    @property
    def by_chance(self) -> bool:
        return self.source in BY_CHANCE
