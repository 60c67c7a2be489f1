"""One method and seed on one source, from labels to returns; and many of them at once."""

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gsf.core import cores
from gsf.core.errors import UserError
from gsf.evaluation.evaluate import evaluate
from gsf.gvf import cumulants
from gsf.gvf.fit import FitConfig, fit
from gsf.gvf.label import label
from gsf.learn.methods import Method
from gsf.learn.train import train
from gsf.nets.runtime import pick_device
from gsf.sweep.options import RunConfig
from gsf.sweep.sources import Source
from gsf.sweep.workers import run_all


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

    def _find(self) -> Method:
        return next(x for x in self.config.find_methods() if x.spec == self.method)

    def __call__(self) -> str | None:
        """Trains and evaluates; returns what went wrong, if it is the run's own fault."""
        try:
            labels = self.labels()
            given = {"dataset": self.data, "out": self.out, "labels": labels, "seed": self.seed}
            run = train(self.config.stage("train", self._find(), **given))
            if self.source.played:
                evaluate(self.config.stage("evaluate", agent=str(run), env=self.source.env))
        except UserError as error:
            return str(error)
        return None

    @property
    def _fit(self) -> FitConfig | None:
        """The fit whose labels the method needs: one for all seeds, unless chance has a part."""
        method = self._find()
        if method.cumulant is None:
            return None
        fitted: FitConfig = self.config.stage("fit", dataset=self.data, out=Path())
        by_chance = fitted.estimator == "td" or cumulants.find(method.cumulant).value.random
        seed, ending = (self.seed, f"-seed{self.seed}") if by_chance else (0, "")
        name = f"gvf-{method.labels_of}-{fitted.estimator}{ending}"
        return replace(fitted, cumulant=method.cumulant, seed=seed, out=self.home / name)

    @property
    def fitted(self) -> Path | None:
        """Where that fit is, whoever makes it."""
        return None if self._fit is None else self._fit.out

    def labels(self) -> Path | None:
        if self._fit is None:
            return None
        gvf = fit(self._fit)
        out = gvf.with_name(gvf.name.replace("gvf-", "labels-", 1))
        return label(self.config.stage("label", gvf=gvf, out=out))


def run_jobs(jobs: Sequence[Job], config: RunConfig) -> dict[Job, str]:
    """Runs the jobs; returns the reasons of those that failed."""
    workers = min(config.workers or _workers(), len(jobs))
    if config.ray or workers > 1:
        by_fit = {job.fitted: job for job in jobs if job.fitted}
        wanted = Counter(job.fitted for job in jobs)
        for job in (job for fitted, job in by_fit.items() if wanted[fitted] > 1):
            with contextlib.suppress(UserError):  # the job itself will say so
                job.labels()  # that several jobs would race for
    return run_all(jobs, workers, config.ray)


def _workers() -> int:
    """Two processes of one thread do more than one of two: no thread waits for another."""
    return 1 if pick_device("auto") == "cuda" else cores.threads()
