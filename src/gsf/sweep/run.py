"""Stage: everything, for sources x methods x seeds, here or on a Ray cluster.

Out: <source>/dataset, gvf-*, labels-*, <method>/seed<k> (runs with their rows), report/; with
--tune also tuning/. Every stage is skipped where its output is complete and resumed where it was
killed, so that the same command goes on. A run that fails is named in the table; the others go on.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gsf.behaviour.policy import policy_of
from gsf.core import cores
from gsf.core.errors import UserError
from gsf.core.files import locked, refuse_links
from gsf.core.logs import console
from gsf.core.stage import MANIFEST
from gsf.data.materialise import materialise
from gsf.nets.runtime import pick_device
from gsf.reporting.report import ReportConfig, report
from gsf.sweep.jobs import Job, Reference
from gsf.sweep.merge import merge
from gsf.sweep.options import RunConfig
from gsf.sweep.plan import Plan, resolve
from gsf.sweep.pooled import check_temperature, pool
from gsf.sweep.sources import Source
from gsf.sweep.summary import print_summary
from gsf.sweep.tune import tune
from gsf.sweep.workers import run_all

if TYPE_CHECKING:
    from gsf.sweep.cluster import Cluster


def run(config: RunConfig) -> Path:
    """Everything from recordings or datasets to the report, for methods x seeds; returns `out`.

    run(RunConfig(out=Path("results"), games=("coinrun",), methods=("cql", "gsf-reward"), seeds=3))
    """
    plan = resolve(config)
    refuse_links(config.out, but=_is_dataset)
    if config.merge:
        merge(config.merge, config.out)
        _conclude(plan)
        return config.out
    check_temperature(plan)
    references = [
        Reference(source, plan.home(source) / name, policy, config)
        for source in plan.sources.values()
        if source.played
        for name, policy in _references(source).items()
    ]
    with _machines(plan) as machines:
        machines.prepare(references)
        chosen = tune(plan, machines.run) if config.tune else {}
        number, total = config.part()
        jobs = plan.jobs(chosen)[number::total]
        failed: dict[Job, str] = {}
        ready: Sequence[Job] = jobs
        if config.temperature == "pooled":
            ready, failed = pool(plan, jobs, machines.run)
        failed |= machines.run(ready)
        failures = {str(job): why for job, why in failed.items()} | machines.failures
    for name, failure in failures.items():
        console.print(f"[red]failed:[/] {name}: {failure}", soft_wrap=True)
    _conclude(plan)
    if failures:
        raise UserError(f"{len(failures)} of {len(jobs)} runs failed; the others are in the table.")
    return config.out


def resolved(config: RunConfig) -> RunConfig:
    """What would be run: every game and method by name, every option of every stage.

    What tuning is to choose is not among them.
    """
    plan = resolve(config)
    named = config.recordings or config.datasets
    return replace(
        config.resolved(),
        games=config.games if named else tuple(plan.sources),
        methods=tuple(method.spec for method in plan.methods),
    )


def _is_dataset(path: Path) -> bool:
    """A dataset may be a link to another disk: once it is whole, nothing is written there."""
    return path.name == "dataset" and (path / MANIFEST).is_file()


class ThisMachine:
    """Datasets and reference rows first, then runs, as many at a time as there are cores."""

    failures: ClassVar[dict[str, str]] = {}  # of what is no run: here it stops everything

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def prepare(self, references: Sequence[Reference]) -> None:
        _materialise(self._plan)
        for found in references:
            found.play()

    def run(self, jobs: Sequence[Job]) -> dict[Job, str]:
        return run_all(jobs, min(self._plan.config.workers or _workers(), len(jobs)))


def _workers() -> int:
    """One per core: two processes of one thread each do more than one process of two threads."""
    return 1 if pick_device("auto") == "cuda" else cores.threads()


def _machines(plan: Plan) -> "contextlib.AbstractContextManager[ThisMachine | Cluster]":
    """Where jobs run."""
    if plan.config.cluster is None:
        return contextlib.nullcontext(ThisMachine(plan))
    from gsf.sweep.cluster import connected  # late: Windows has no such locks
    from gsf.sweep.units import Units

    return connected(plan.config, Units(plan.config, plan.sources))


def _materialise(plan: Plan) -> None:
    for source in plan.sources.values():
        if source.recording:
            home = plan.home(source)
            given: dict[str, Any] = {"recording": source.recording, "out": home / "dataset"}
            with locked(home, ".dataset.making.lock", wait=True):  # other shards make it, too
                materialise(plan.config.stage("materialise", **given))


def _conclude(plan: Plan) -> None:
    """The table and the report of all there is; a single shard makes no report."""
    print_summary(plan.config.out)
    if plan.config.report and plan.config.shard is None:
        if plan.config.cluster:
            _materialise(plan)  # whose pictures the report shows
        print(f"open {_report(plan)}")


def _references(source: Source) -> dict[str, Path | None]:
    """Who plays for comparison: the file of a policy, or None for random play."""
    if source.recording is None:
        return {"random": None}
    policy = policy_of(source.recording)
    if policy is None:
        console.print(f"the policy that played {source} is not at hand: its returns are left out.")
        return {"random": None}
    return {"random": None, "behaviour": policy}


def _report(plan: Plan) -> Path:
    return report(
        ReportConfig(
            runs=(plan.config.out,),
            out=plan.config.out / "report",
            games=tuple(plan.sources),
            methods=tuple(method.name for method in plan.methods),
            seeds=plan.config.seeds,
            first_seed=plan.config.first_seed,
        )
    )
