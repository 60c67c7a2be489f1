"""Stage: everything, for games x methods x seeds, here or on a Ray cluster.

Out: <game>/dataset, gvf-*, labels-*, <method>/seed<k> (runs with their returns.csv), report/; with
--tune also tuning/. Every stage is skipped where its output is complete and resumed where it was
killed, so that the same command goes on. A run that fails is named in the table; the others go on.
"""

from dataclasses import replace
from pathlib import Path

from gsf.behaviour.policy import load_policy
from gsf.core.errors import UserError
from gsf.core.logs import console
from gsf.data.materialise import materialise
from gsf.data.recording import Recording, find_policy, shipped_policies
from gsf.evaluation.evaluate import evaluate
from gsf.sweep.jobs import run_jobs
from gsf.sweep.options import RunConfig
from gsf.sweep.plan import Plan, resolve
from gsf.sweep.summary import print_summary
from gsf.sweep.tune import tune


def run(config: RunConfig) -> Path:
    """Everything from recordings to the report, for games x methods x seeds; returns `out`.

    run(RunConfig(out=Path("results"), games=("coinrun",), methods=("cql", "gsf-reward"), seeds=3))
    """
    plan = resolve(config)
    for game, recording in plan.recordings.items():
        data = plan.home(game) / "dataset"
        materialise(config.stage("materialise", recording=recording, out=data))
        _reference_rows(config, game, recording)
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


def _reference_rows(config: RunConfig, game: str, recording: str) -> None:
    """Random play and, where its weights are at hand, the policy that was recorded."""
    data = config.out / game / "dataset"
    out = config.out / game / "random" / "returns.csv"
    config = replace(config, set=(*config.set, "evaluate.all=false"))  # they have one network
    evaluate(config.stage("evaluate", agent="random", game=game, dataset=data, out=out))
    policy = _policy_of(recording)
    if policy is None:
        console.print(f"the policy that played {recording} is not at hand: no behaviour row.")
        return
    out = config.out / game / "behaviour" / "returns.csv"
    evaluate(config.stage("evaluate", agent=str(policy), dataset=data, out=out))


def _policy_of(recording: str) -> Path | None:
    """The shipped policy, or the one beside a recording if it is the one that was recorded."""
    if recording in shipped_policies():
        return find_policy(recording)
    beside = Path(recording).with_name("policy.pt")
    played = {take.policy.get("digest") for take in Recording.load(recording).takes}
    if beside.is_file() and {load_policy(beside).provenance["digest"]} == played:
        return beside
    return None


def _report(plan: Plan) -> Path:
    from gsf.reporting.report import ReportConfig, report

    return report(
        ReportConfig(
            runs=(plan.config.out,),
            out=plan.config.out / "report",
            games=tuple(plan.recordings),
            methods=tuple(method.name for method in plan.methods),
            seeds=plan.config.seeds,
        )
    )
