"""Tuning for `gsf run --tune`: equally many trials for every method, judged on validation levels.

Where no suite can play, a trial is judged by the likelihood that its agent gives to the actions of
validation data.

In: a plan. Out: tuning/<game>/<method>/trial<k>, tuning/trials.csv and, for every game and method,
the best setting as owner.option=value. The trials have a seed that no reported run has.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gsf.core.errors import UserError
from gsf.core.logs import console
from gsf.core.sealed import write_table
from gsf.core.stage import Identity
from gsf.evaluation.evaluate import evaluate
from gsf.evaluation.held_out_rows import overall
from gsf.evaluation.rows import MODES, read_table
from gsf.learn.learner import AgentConfig
from gsf.sweep.jobs import Job
from gsf.sweep.options import MAX_SEEDS, RunConfig
from gsf.sweep.plan import Chosen, Plan
from gsf.sweep.variants import Variant

SEED = MAX_SEEDS
LIKELIHOOD = "log_likelihood"  # of validation data, a column of trials.csv


def tune(plan: Plan, run_all: Callable[[Sequence[Job]], dict[Job, str]]) -> Chosen:
    """The settings that did best on each source's validation levels or data.

    run_all: runs the trials, here or on a cluster; returns why those that failed did.
    """
    config, out = plan.config, plan.config.out / "tuning"
    assert config.tune is not None
    if not (out / "manifest.json").is_file():  # with it the folder is left out of reports
        Identity("tuning").write(out)
    fixed = (
        f"train.grad_steps={config.tune}",
        "train.keep=1",
        "evaluate.all=false",
        "evaluate.levels=[]",
        'evaluate.splits=["validation"]',
        'evaluate.modes=["greedy", "sampled"]',
    )
    jobs: dict[Job, tuple[int, tuple[str, ...]]] = {}
    for source, method in itertools.product(plan.sources.values(), plan.methods):
        for number, trial in enumerate(_undecided_trials(config, method)):
            home = out / source.folder / method.name / f"trial{number}"
            job = plan.job(replace(source, held_out=None), method, SEED, home, trial, fixed)
            jobs[job] = number, trial
    failures = run_all(list(jobs))
    for job, failure in failures.items():
        console.print(f"[red]failed:[/] tuning {job}: {failure}", soft_wrap=True)
    rows = [
        _judged(job).assign(trial=number, setting=" ".join(trial))
        for job, (number, trial) in jobs.items()
        if job not in failures
    ]
    if not rows:
        raise UserError("every trial of the tuning failed; the reasons are above.")
    table = choose(pd.concat(rows), config.tune)
    write_table(out / "trials.csv", table)
    best = table.loc[table["chosen"], ["game", "method", "setting"]].to_numpy().tolist()
    for game, method, setting in best:
        console.print(f"tuned {game} {method}: {setting}", highlight=False)
    return {(game, method): tuple(setting.split()) for game, method, setting in best}


def _judged(job: Job) -> pd.DataFrame:
    """Rows of a trial: its returns, or its likelihood where it cannot be played."""
    if job.source.played:
        return read_table(job.out / "returns.csv")
    given: dict[str, Any] = {"agent": str(job.out), "held_out": job.source.validation}
    found = overall(evaluate(replace(job.config.stage("evaluate", **given), fqe=False)))
    nll = found[found["quantity"] == "nll"]
    return nll.assign(mode=LIKELIHOOD, temperature=np.nan, **{"return": -nll["value"]})


def _undecided_trials(config: RunConfig, variant: Variant) -> list[tuple[str, ...]]:
    """The method's trials, without the options that the user has set."""
    own = config.of(variant)
    found = trials(own.stage("train", variant, dataset=Path(), out=Path()))
    left = (tuple(w for w in trial if w.partition("=")[0] not in own.options) for trial in found)
    return list(dict.fromkeys(left))


def trials(config: AgentConfig) -> list[tuple[str, ...]]:
    """The settings to try, four for every method: a grid over the two options that matter most.

    The first is the default setting.
    """
    method = config.find_method()
    own = method.base.value.tuning.items()
    grid = {k if "." in k else f"{method.base.name}.{k}": values for k, values in own}
    words: list[list[tuple[str, ...]]] = [
        [(f"{option}={value}",) for value in values] for option, values in grid.items()
    ]
    if method.losses:
        # Where losses have an Adam of their own, their common weight would change nothing.
        aux: list[tuple[str, ...]] = [(f"train.aux_lr={rate}",) for rate in ("3e-4", "3e-5")]
        if config.update == "joint":
            names = [loss.name for loss in method.losses]
            aux = [tuple(f"{name}.weight={weight}" for name in names) for weight in ("1", "0.1")]
        words = [words[0][:2], aux]
    return [tuple(itertools.chain(*trial)) for trial in itertools.product(*words)]


def choose(rows: pd.DataFrame, step: int) -> pd.DataFrame:
    """Mean return of every trial by mode, and of each game and method the `chosen` one.

    rows: rows.COLUMNS, `trial` and `setting`; those of other steps, of a shorter tuning, do not
    count. One criterion: the mean return of sampled actions at the trial's own temperature, the
    best of the grid; where there are no returns, the log-likelihood of validation data. Of equals
    the first, closest to the default.
    """
    by = ["game", "method", "trial", "setting"]
    rows = rows[rows["step"] == step]
    table = rows.groupby([*by, "mode"])["return"].mean().unstack("mode").reset_index()
    own = rows[rows["mode"] == "sampled"].groupby(by)["temperature"].first().rename("temperature")
    table = table.merge(own.reset_index(), on=by, how="left")
    criterion = table.reindex(columns=["sampled", LIKELIHOOD]).bfill(axis=1)["sampled"]
    best = criterion.groupby([table["game"], table["method"]]).idxmax()
    table["chosen"] = table.index.isin(best)
    modes = [mode for mode in (*MODES, LIKELIHOOD) if mode in table]
    return table[[*by, *modes, "temperature", "chosen"]]
