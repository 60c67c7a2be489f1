"""One temperature for all methods of a game: `gsf run --temperature pooled`.

First all runs are trained and play the validation levels, each at every temperature. The mean over
methods decides, and is kept in <source>/temperature.json: seeds and methods that are added later
play at it, too. Only then is any test level played.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from gsf.core.errors import UserError
from gsf.core.logs import console
from gsf.evaluation.rows import read_rows
from gsf.evaluation.temperature import is_pooled, keep
from gsf.evaluation.temperature import pool as pool_rows
from gsf.learn.agent import read_temperatures
from gsf.nets.acting import CHOSEN
from gsf.sweep.jobs import Job
from gsf.sweep.options import RunConfig
from gsf.sweep.plan import Plan

Failures = dict[Job, str]


def check_temperature(plan: Plan) -> None:
    """Refuses what would leave some runs at a temperature of their own, before anything is made."""
    if plan.config.temperature == "own":
        for source in plan.sources.values():
            if (plan.home(source) / CHOSEN).is_file():
                raise UserError(
                    f"{plan.home(source)} has one temperature for all methods: give "
                    "--temperature pooled, or choose another --out."
                )
        return
    played = plan.config.stage("evaluate")
    if not played.n_validation or "sampled" not in played.modes:
        raise UserError(
            "--temperature pooled chooses by sampled actions on validation levels: leave sampled "
            "among --evaluate.modes and --evaluate.n-validation above 0."
        )


def pool(
    plan: Plan, jobs: Sequence[Job], run: Callable[[Sequence[Job]], Failures]
) -> tuple[list[Job], Failures]:
    """Trains and validates; returns the runs that may go on to test levels, and why others failed.

    A game waits until all its runs have played its validation levels.
    """
    first = run([replace(job, config=_validation_alone(job.config)) for job in jobs])
    reasons = {job.out: why for job, why in first.items()}
    failed = {job: reasons[job.out] for job in jobs if job.out in reasons}
    waiting = {job.home for job in failed}
    for home in waiting:
        console.print(f"{home.name} waits for the runs that failed: no test level is played.")
    ready = [job for job in jobs if job.home not in waiting]
    for source in plan.sources.values():
        mine = [job.out for job in ready if job.home == plan.home(source)]
        if source.played and mine:
            _settle(plan.home(source), mine)
    return ready, failed


def _validation_alone(config: RunConfig) -> RunConfig:
    return replace(config, options={**config.options, "evaluate.splits": ("validation",)})


def _settle(home: Path, runs: Sequence[Path]) -> None:
    """Chooses for every step that has no choice yet, and writes the choices to all runs."""
    rows = pd.concat([read_rows(run / "returns.csv") for run in runs])
    tried = rows[rows["split"] == "validation"]
    for step in sorted(set(tried["step"])):
        if str(step) not in read_temperatures(home):
            at_step = tried[tried["step"] == step]
            keep(home, step, pool_rows(at_step), at_step["level"].nunique(), pooled=True)
    for step, choice in read_temperatures(home).items():
        for run in runs:
            if step in read_temperatures(run) and not is_pooled(run, int(step)):
                keep(run, int(step), choice["mean_return"], choice["n_levels"], pooled=True)
