"""Stage: everything, for sources x methods x seeds, here or on a Ray cluster.

Out: <source>/dataset, gvf-*, labels-*, <method>/seed<k> (runs with their rows), report/; with
--tune also tuning/. Every stage is skipped where its output is complete and resumed where it was
killed, so that the same command goes on. A run that fails is named in the table; the others go on.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from gsf.behaviour.policy import policy_of
from gsf.core.errors import UserError
from gsf.core.logs import console
from gsf.data.materialise import materialise
from gsf.evaluation.evaluate import evaluate
from gsf.sweep.jobs import run_jobs
from gsf.sweep.options import RunConfig
from gsf.sweep.plan import Plan, resolve
from gsf.sweep.sources import Source
from gsf.sweep.summary import print_summary
from gsf.sweep.tune import tune


def run(config: RunConfig) -> Path:
    """Everything from recordings or datasets to the report, for methods x seeds; returns `out`.

    run(RunConfig(out=Path("results"), games=("coinrun",), methods=("cql", "gsf-reward"), seeds=3))
    """
    plan = resolve(config)
    for source in plan.sources.values():
        home = plan.home(source)
        data = source.dataset or home / "dataset"
        if source.recording:
            materialise(config.stage("materialise", recording=source.recording, out=data))
        if source.played:
            _reference_rows(config, source, data, home)
    chosen = tune(plan) if config.tune else {}
    jobs = plan.jobs(chosen)
    failures = run_jobs(jobs, config)
    for job, failure in failures.items():
        console.print(f"[red]failed:[/] {job}: {failure}", soft_wrap=True)
    print_summary(config.out)
    if config.report:
        print(f"open {_report(plan)}")
    if failures:
        raise UserError(f"{len(failures)} of {len(jobs)} runs failed; the others are in the table.")
    return config.out


def _reference_rows(config: RunConfig, source: Source, data: Path, home: Path) -> None:
    """Random play and, where its weights are at hand, the policy that was recorded."""
    config = replace(config, set=(*config.set, "evaluate.all=false"))  # they have one network
    given: dict[str, Any] = {"dataset": data, "env": source.env}
    out = home / "random" / "returns.csv"
    evaluate(config.stage("evaluate", agent="random", game=source.name, out=out, **given))
    if source.recording is None:
        return
    policy = policy_of(source.recording)
    if policy is None:
        console.print(f"the policy that played {source} is not at hand: no behaviour row.")
        return
    out = home / "behaviour" / "returns.csv"
    evaluate(config.stage("evaluate", agent=str(policy), out=out, **given))


def _report(plan: Plan) -> Path:
    from gsf.reporting.report import ReportConfig, report

    return report(
        ReportConfig(
            runs=(plan.config.out,),
            out=plan.config.out / "report",
            games=tuple(plan.sources),
            methods=tuple(method.name for method in plan.methods),
            seeds=plan.config.seeds,
        )
    )
