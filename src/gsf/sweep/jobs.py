"""What a sweep is made of: reference rows, labels that runs share, runs from labels to returns."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gsf.core.errors import UserError
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
class References:
    """Returns of random play and of the policy that was recorded, if its weights are at hand."""

    source: Source
    home: Path  # directory of the source
    policy: Path | None
    config: RunConfig

    @property
    def outs(self) -> list[Path]:
        names = ("random",) if self.policy is None else ("random", "behaviour")
        return [self.home / name for name in names]

    def __call__(self) -> str | None:
        return _reason(self.play)

    def play(self) -> None:
        data = self.source.dataset or self.home / "dataset"
        # They have one network.
        config = replace(self.config, set=(*self.config.set, "evaluate.all=false"))
        players: dict[str, dict[str, Any]]
        players = {"random": {"agent": "random", "game": self.source.name}}
        if self.policy is not None:
            players["behaviour"] = {"agent": str(self.policy)}
        for name, player in players.items():
            with _making(self.home / name):
                rows = self.home / name / "returns.csv"
                given = {**player, "dataset": data, "env": self.source.env}
                evaluate(config.stage("evaluate", out=rows, **given))


@dataclass(frozen=True)
class Fitting:
    """A GVF, which labels of several kinds may be made of."""

    config: FitConfig

    def __call__(self) -> str | None:
        return _reason(self.make)

    def make(self) -> Path:
        with _making(self.config.out):
            return fit(self.config)


@dataclass(frozen=True)
class Labelling:
    """Labels, which all runs of a source that need them share."""

    fitting: Fitting
    config: LabelConfig

    def __call__(self) -> str | None:
        return _reason(self.make)

    def make(self) -> Path:
        self.fitting.make()
        with _making(self.config.out):
            return label(self.config)


def _making(out: Path) -> contextlib.AbstractContextManager[None]:
    """Waits for other runs and shards, which make it, too."""
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

    def __call__(self) -> str | None:
        """Trains and evaluates; returns what went wrong, if it is the run's own fault."""
        labelling = self.labelling
        return _reason(lambda: self._train(None if labelling is None else labelling.make()))

    def train_with(self, labels: Path | None) -> str | None:
        """The same where the labels are there already."""
        return _reason(lambda: self._train(labels))

    def _train(self, labels: Path | None) -> None:
        given = {"dataset": self.data, "out": self.out, "labels": labels, "seed": self.seed}
        made = train(self.config.stage("train", self._find(), **given))
        if self.source.played:
            evaluate(self.config.stage("evaluate", agent=str(made), env=self.source.env))
        if self.source.held_out:
            held_out = self.source.held_out
            evaluate(self.config.stage("evaluate", agent=str(made), held_out=held_out))

    @property
    def labelling(self) -> Labelling | None:
        """The labels the method needs: one for all seeds, unless chance has a part."""
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


def _reason(work: Callable[[], object]) -> str | None:
    try:
        work()
    except UserError as error:
        return str(error)
    return None
