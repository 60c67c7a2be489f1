"""Tuning for `gsf run --tune`: as many trials for every method, judged on validation levels only.

In: a method's name. Out: its trials as `--set` words, and, from their returns, the ones to keep.
The seed of the trials is not among those that are reported.
"""

import pandas as pd

from gsf.losses import parse_method
from gsf.returns import MODES

SEED = 1_000
# What decides most in each kind of method; the first trial is the default setting.
_BC = ("train.lr=3e-4", "train.lr=1e-4", "train.lr=1e-3", "train.lr=3e-3")
_CQL = tuple(
    f"train.cql_alpha={alpha} train.lr={lr}" for alpha in (1, 4) for lr in ("3e-4", "1e-3")
)
_AUXILIARY = tuple(
    f"train.cql_alpha={alpha} train.aux_weight={weight}" for alpha in (1, 4) for weight in (1, 0.1)
)


def trials(method: str) -> list[tuple[str, ...]]:
    """The settings to try, four of every method."""
    loss, _ = parse_method(method)
    words = _AUXILIARY if loss else {"bc": _BC, "cql": _CQL}[method]
    return [tuple(word.split()) for word in words]


def choose(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean return of every trial by mode, and of each game and method the `chosen` one.

    rows: returns.COLUMNS, `trial` and `setting`. The best mean over both modes wins, as it has
    less noise than one of them; of equals the first, closest to the default.
    """
    by = ["game", "method", "trial", "setting"]
    table = rows.groupby([*by, "mode"])["return"].mean().unstack("mode").reset_index()
    table["mean"] = table[[mode for mode in MODES if mode in table]].mean(axis=1)
    best = table.groupby(["game", "method"])["mean"].idxmax()
    table["chosen"] = table.index.isin(best)
    table.columns.name = None
    return table
