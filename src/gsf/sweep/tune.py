"""Tuning for `gsf run --tune`: as many trials for every method, judged on validation levels only.

In: how a method is trained. Out: its trials as `--set` words, and, from their returns, the ones to
keep. The seed of the trials is not among those that are reported.
"""

import itertools

import pandas as pd

from gsf.evaluation.rows import MODES
from gsf.learn.learner import AgentConfig

SEED = 1_000


def trials(config: AgentConfig) -> list[tuple[str, ...]]:
    """The settings to try, four of every method: a grid of what decides most in it.

    The first is the default setting.
    """
    method = config.find_method()
    own = method.base.value.tuning.items()
    grid = {k if "." in k else f"{method.base.name}.{k}": values for k, values in own}
    if method.loss is not None:
        decisive, values = next(iter(grid.items()))
        # A loss with an Adam of its own has no weight.
        joint = {"train.aux_weight": ("1", "0.1")}
        aux = joint if config.update == "joint" else {"train.aux_lr": ("3e-4", "3e-5")}
        grid = {decisive: values[:2], **aux}
    words = ([f"{option}={value}" for value in values] for option, values in grid.items())
    return list(itertools.product(*words))


def choose(rows: pd.DataFrame, step: int) -> pd.DataFrame:
    """Mean return of every trial by mode, and of each game and method the `chosen` one.

    rows: returns.COLUMNS, `trial` and `setting`; those of other steps, of a shorter tuning, do not
    count. The best mean over both modes wins, as it has less noise than one of them; of equals the
    first, closest to the default.
    """
    by = ["game", "method", "trial", "setting"]
    rows = rows[rows["step"] == step]
    table = rows.groupby([*by, "mode"])["return"].mean().unstack("mode").reset_index()
    table["mean"] = table[[mode for mode in MODES if mode in table]].mean(axis=1)
    best = table.groupby(["game", "method"])["mean"].idxmax()
    table["chosen"] = table.index.isin(best)
    table.columns.name = None
    return table
