"""The jobs of a sweep: play for reference, fits and labels that runs share, and the runs."""

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gsf.core.files import locked
from gsf.evaluation.evaluate import evaluate
from gsf.gvf import cumulants
from gsf.gvf.fit import FitConfig, fit
from gsf.gvf.label import LabelConfig, label
from gsf.learn.train import train
from gsf.sweep.options import RunConfig
from gsf.sweep.sources import Source
from gsf.sweep.variants import Variant


@dataclass(frozen=True)
class Reference:
    """Returns that agents are compared with: of random play, or of the policy that was recorded."""

    source: Source
    out: Path  # directory of the rows
    policy: Path | None  # None: random play
    config: RunConfig

    def play(self) -> None:
        # The recorded policy is one network: it has no earlier checkpoints to evaluate.
        config = replace(self.config, options={**self.config.options, "evaluate.all": False})
        player: dict[str, Any] = {"agent": "random", "game": self.source.name}
        if self.policy is not None:
            player = {"agent": str(self.policy)}
        data = self.source.dataset or self.out.parent / "dataset"
        with _making(self.out):
            rows = self.out / "returns.csv"
            given = {**player, "dataset": data, "env": self.source.env}
            evaluate(config.stage("evaluate", out=rows, **given))


@dataclass(frozen=True)
class Fitting:
    """A fitted GVF; labels with different numbers of bins can share it."""

    config: FitConfig

    def make(self) -> Path:
        with _making(self.config.out):
            return fit(self.config)


@dataclass(frozen=True)
class Labelling:
    """Labels; all runs on the same source that need them share them."""

    fitting: Fitting
    config: LabelConfig

    def make(self) -> Path:
        self.fitting.make()
        with _making(self.config.out):
            return label(self.config)


def _making(out: Path) -> contextlib.AbstractContextManager[None]:
    """One process makes it; another run or shard that needs it, too, waits here meanwhile."""
    return locked(out.parent, f".{out.name}.making.lock", wait=True)


@dataclass(frozen=True)
class Job:
    """One method and seed on one source."""

    source: Source
    method: str  # as the user wrote it
    seed: int
    home: Path  # directory of the source
    out: Path  # directory of the run
    config: RunConfig

    def __str__(self) -> str:
        return f"{self.source.name} {self.out.parent.name} {self.out.name}"

    @property
    def data(self) -> Path:
        """The dataset to learn from."""
        return self.source.dataset or self.home / "dataset"

    def _find(self) -> Variant:
        return next(x for x in self.config.find_methods() if x.spec == self.method)

    def __call__(self) -> None:
        """Makes the labels that it needs, if they are not there, then trains and evaluates."""
        self.train_with(self.labelling.make() if self.labelling else None)

    def train_with(self, labels: Path | None) -> None:
        given = {"dataset": self.data, "out": self.out, "labels": labels, "seed": self.seed}
        made = train(self.config.stage("train", self._find(), **given))
        if self.source.played:
            evaluate(self.config.stage("evaluate", agent=str(made), env=self.source.env))
        if self.source.held_out:
            held_out = self.source.held_out
            evaluate(self.config.stage("evaluate", agent=str(made), held_out=held_out))

    @property
    def labelling(self) -> Labelling | None:
        """The labels that the method needs. All seeds share them, unless making them is random."""
        variant = self._find()
        method = variant.method
        if method.cumulant is None:
            return None
        fitted: FitConfig = self.config.stage("fit", dataset=self.data, out=Path())
        by_chance = fitted.estimator == "td" or cumulants.find(method.cumulant).value.random
        seed, ending = (self.seed, f"-seed{self.seed}") if by_chance else (0, "")
        name = f"{method.labels_of}-{fitted.estimator}{ending}{variant.ending('fit')}"
        gvf = self.home / f"gvf-{name}"
        fitted = replace(fitted, cumulant=method.cumulant, seed=seed, out=gvf)
        out = self.home / f"labels-{name}{variant.ending('label')}"
        binned: LabelConfig = self.config.stage("label", gvf=gvf, out=out, dataset=self.data)
        if binned.by_chance:
            out = out.with_name(f"{out.name}-seed{self.seed}")
            binned = replace(binned, seed=self.seed, out=out)
        return Labelling(Fitting(fitted), binned)
