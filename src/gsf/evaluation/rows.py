"""Evaluation rows, one per (game, method, seed, step, split, level, mode): their columns, checked.

Who plays writes them, who reports reads them; both through here.
"""

from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd

from gsf.core.errors import UserError
from gsf.evaluation.splits import SPLITS as SPLITS
from gsf.nets.acting import Mode
from gsf.suites import known_facts

KEYS = ["game", "method", "seed", "step", "split", "level", "mode"]
COLUMNS = [*KEYS, "return", "length", "completed"]
MODES: tuple[Mode, ...] = get_args(Mode)
REFERENCES = ("random", "behaviour")  # not trained: no grid of seeds, no last step to reach
IDENTITY = "agent"  # one column more: a digest of what played, so that rows are never mixed up


REFERENCES = ("random", "behaviour")  # not trained: no grid of seeds, no last step to reach


def check_rows(rows: pd.DataFrame, where: str) -> pd.DataFrame:
    """The rows with their columns typed and in order; a UserError says what is wrong with them."""
    missing = [name for name in COLUMNS if name not in rows]
    if missing:
        raise UserError(f"{where} has no column {missing[0]!r}; evaluate the run again.")
    if not len(rows):
        raise UserError(f"{where} has no rows; evaluate the run again.")
    rows = rows[COLUMNS].copy()
    for name in ("seed", "step", "return", "length"):
        rows[name] = _numbers(rows[name], f"{where}: column {name!r}")
    for name in ("seed", "step"):
        rows[name] = rows[name].astype(np.int64)
    for name, known in (("split", SPLITS), ("mode", MODES)):
        unknown = sorted(set(rows[name].astype(str)) - set(known))
        if unknown:
            raise UserError(f"{where}: {name} {unknown[0]!r} is not one of {', '.join(known)}.")
    for name in ("game", "method", "level"):
        if rows[name].isna().any():
            raise UserError(f"{where}: a row has no {name}; evaluate the run again.")
    played = [game for game in rows["game"].unique() if known_facts(game)]  # levels are seeds there
    _numbers(rows.loc[rows["game"].isin(played), "level"], f"{where}: column 'level'")
    if not rows["completed"].isin([True, False]).all():
        raise UserError(f"{where}: completed is neither True nor False; evaluate the run again.")
    for name in ("game", "method", "split", "mode"):
        rows[name] = rows[name].astype(str).astype("category")
    repeated = rows.duplicated(KEYS)
    if repeated.any():
        row = rows[repeated].iloc[0]
        raise UserError(
            f"{where} has two rows for {row['game']}/{row['method']}/seed{row['seed']}, "
            f"{row['split']} level {row['level']}, {row['mode']}: one episode per level and run "
            "is expected, more would be counted as runs."
        )
    return rows


def _numbers(column: pd.Series, what: str) -> pd.Series:
    numbers = pd.to_numeric(column, errors="coerce").astype(float)
    if not np.isfinite(numbers).all():
        first = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise UserError(
            f"{what} is not a finite number in row {first + 1}; evaluate the run again."
        )
    return numbers


def read_returns(path: Path) -> pd.DataFrame:
    """A returns.csv, checked."""
    return check_rows(read_table(path), str(path))


def read_table(path: Path) -> pd.DataFrame:
    """A CSV or Parquet file as it is."""
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        return pd.read_csv(path, dtype={IDENTITY: str})
    except (OSError, ValueError, ImportError) as error:  # pandas' parser errors are ValueErrors
        kind = "Parquet file" if path.suffix == ".parquet" else "CSV"
        raise UserError(f"{path} is not a readable {kind} ({type(error).__name__}).") from None
