"""Stage: everything, for sources x methods x seeds, here or on a Ray cluster.

Out: <source>/dataset, gvf-*, labels-*, <method>/seed<k> (runs with their rows), report/; with
--tune also tuning/. Every stage is skipped where its output is complete and resumed where it was
killed, so that the same command goes on. A run that fails is named in the table; the others go on.
"""

import contextlib
from collections.abc import Sequence
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
from gsf.sweep.jobs import Job, References
from gsf.sweep.merge import merge
from gsf.sweep.options import RunConfig
from gsf.sweep.plan import Plan, resolve
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
    references = [
        References(source, plan.home(source), _policy_of(source), config)
        for source in plan.sources.values()
        if source.played
    ]
    with _place(plan) as place:
        place.prepare(references)
        chosen = tune(plan, place.run) if config.tune else {}
        number, total = config.part()
        jobs = plan.jobs(chosen)[number::total]
        failures = {str(job): why for job, why in place.run(jobs).items()} | place.failures
    for name, failure in failures.items():
        console.print(f"[red]failed:[/] {name}: {failure}", soft_wrap=True)
    _conclude(plan)
    if failures:
        raise UserError(f"{len(failures)} of {len(jobs)} runs failed; the others are in the table.")
    return config.out


def _is_dataset(path: Path) -> bool:
    """A user may keep one on another disk; once it is whole, nothing is written there."""
    return path.name == "dataset" and (path / MANIFEST).is_file()


class Here:
    """This machine: datasets and reference rows first, then runs, so many at a time."""

    failures: ClassVar[dict[str, str]] = {}  # of what is no run: it would have stopped all

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def prepare(self, references: Sequence[References]) -> None:
        _materialise(self._plan)
        for found in references:
            found.play()

    def run(self, jobs: Sequence[Job]) -> dict[Job, str]:
        return run_all(jobs, min(self._plan.config.workers or _workers(), len(jobs)))


def _workers() -> int:
    """Two processes of one thread do more than one of two: no thread waits for another."""
    return 1 if pick_device("auto") == "cuda" else cores.threads()


def _place(plan: Plan) -> "contextlib.AbstractContextManager[Here | Cluster]":
    """Where it is run."""
    if plan.config.cluster is None:
        return contextlib.nullcontext(Here(plan))
    from gsf.sweep.cluster import connected
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
    """The table and the report of all that is there; a shard alone has no report."""
    print_summary(plan.config.out)
    if plan.config.report and plan.config.shard is None:
        if plan.config.cluster:
            _materialise(plan)  # whose pictures the report shows
        print(f"open {_report(plan)}")


def _policy_of(source: Source) -> Path | None:
    if source.recording is None:
        return None
    policy = policy_of(source.recording)
    if policy is None:
        console.print(f"the policy that played {source} is not at hand: no behaviour row.")
    return policy


def _report(plan: Plan) -> Path:
    from gsf.reporting.report import ReportConfig, report

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
