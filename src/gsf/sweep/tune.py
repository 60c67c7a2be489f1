"""Tuning for `gsf run --tune`: as many trials for every method, judged on validation levels only.

In: how a method is trained. Out: its trials as `--set` words, and, from their returns, the ones to
keep. The seed of the trials is not among those that are reported.
"""

import itertools

import pandas as pd

from gsf.evaluation.rows import MODES
from gsf.learn.learner import AgentConfig
from gsf.learn.losses import parse_method

SEED = 1_000


def trials(config: AgentConfig) -> list[tuple[str, ...]]:
    """The settings to try, four of every method: a grid of what decides most in it.

    The first is the default setting.
    """
    loss, _ = parse_method(config.method)
    if loss is None and config.learner == "bc":
        return _grid(lr=("3e-4", "1e-4", "1e-3", "3e-3"))
    if loss is None:
        return _grid(cql_alpha=("1", "4"), lr=("3e-4", "1e-3"))
    base = {"lr": ("3e-4", "1e-4")} if config.learner == "bc" else {"cql_alpha": ("1", "4")}
    if config.update == "alternating":  # a loss with an Adam of its own has no weight
        return _grid(**base, aux_lr=("3e-4", "3e-5"))
    return _grid(**base, aux_weight=("1", "0.1"))


def _grid(**options: tuple[str, ...]) -> list[tuple[str, ...]]:
    words = ([f"train.{name}={value}" for value in values] for name, values in options.items())
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
