"""Evaluation rows, one per (game, method, seed, step, split, level, mode): their columns, checked.

Whatever plays writes them, whatever reports reads them; both through here.
"""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gsf.core.errors import UserError
from gsf.core.files import digest, write_atomic
from gsf.core.sealed import KEY, MARK, damaged, open_table, write_table
from gsf.evaluation.splits import SPLITS as SPLITS
from gsf.learn.legend import REFERENCES as REFERENCES
from gsf.nets.acting import MODES as MODES
from gsf.suites import known_facts

KEYS = ["game", "method", "seed", "step", "split", "level", "mode"]
# What came of an episode; entropy: of the policy over actions that differ, mean over its steps, in
# nats.
RESULTS = ["return", "length", "completed", "entropy"]
COLUMNS = [*KEYS, "temperature", *RESULTS]
IDENTITY = "agent"  # one column more: a digest of what played, so that rows are never mixed up
# The same for rows that were just played and for those from a file.
TYPES: dict[str, Any] = dict.fromkeys([*COLUMNS, IDENTITY], str) | {
    **dict.fromkeys(("seed", "step", "level", "length"), np.int64),
    **dict.fromkeys(("temperature", "return", "entropy"), np.float64),
    "completed": bool,
}


def check_rows(rows: pd.DataFrame, where: str) -> pd.DataFrame:
    """The rows with their columns typed and in order; a UserError says what is wrong with them."""
    missing = [name for name in COLUMNS if name not in rows]
    if missing:
        raise UserError(f"{where} has no column {missing[0]!r}; evaluate the run again.")
    if not len(rows):
        raise UserError(f"{where} has no rows; evaluate the run again.")
    rows = rows[COLUMNS].copy()
    for name in ("seed", "step", "temperature", "return", "length"):
        rows[name] = _numbers(rows[name], f"{where}: column {name!r}")
    rows["entropy"] = pd.to_numeric(rows["entropy"], errors="coerce")  # older rows have none
    for name in ("seed", "step", "length"):
        wrong = (rows[name] < 0) | (rows[name] % 1 != 0) | (rows[name] >= 2**63)
        if wrong.any():
            found = rows[name][wrong].iloc[0]
            raise UserError(f"{where}: {name} {found:g} is no count; evaluate the run again.")
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


def read_rows(path: Path) -> pd.DataFrame:
    """The rows of a file, and who played them; none if there is no file."""
    if not path.is_file():
        return pd.DataFrame(columns=list(TYPES)).astype(TYPES)
    raw = read_table(path)
    rows = check_rows(raw, str(path))
    try:
        return rows.assign(**{IDENTITY: raw.get(IDENTITY, "unknown")}).astype(TYPES)
    except (ValueError, OverflowError):
        raise UserError(f"{path} has a level that is no number of 64 bits.") from None


def write_rows(path: Path, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, in an order that does not depend on the order of play."""
    order = {
        name: rows[name].map({x: i for i, x in enumerate(known)})
        for name, known in (("split", SPLITS), ("mode", MODES))
    }
    by = ["game", "method", "seed", "step", "_split", "_mode", "level"]
    rows = rows.assign(_split=order["split"], _mode=order["mode"])
    rows = rows.sort_values(by, ignore_index=True)[list(TYPES)].astype(TYPES)
    assert not rows.duplicated(KEYS).any()
    if path.suffix == ".parquet":
        buffer = io.BytesIO()
        sealed_rows(rows).to_parquet(buffer, index=False)
        write_atomic(path, buffer.getvalue())
    else:
        write_table(path, rows)
    return rows


def read_table(path: Path) -> pd.DataFrame:
    """A CSV, which may be compressed (.csv.gz), or a Parquet file as it is."""
    if path.suffix == ".parquet":
        return _read_parquet(path)
    try:
        text = open_table(path, path.read_bytes())
        return pd.read_csv(io.BytesIO(text), dtype={IDENTITY: str})
    except (OSError, ValueError, OverflowError) as error:  # pandas' own are ValueErrors
        raise UserError(f"{path} is not a readable CSV ({type(error).__name__}).") from None


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        found = pd.read_parquet(path)
        rows = found.drop(columns=KEY, errors="ignore")
        whole = KEY not in found or set(found[KEY]) == set(sealed_rows(rows)[KEY])
    except Exception as error:  # pyarrow raises many types for damaged files
        raise UserError(f"{path} is no readable Parquet file ({type(error).__name__}).") from None
    if not whole:
        raise damaged(path)
    return rows


def sealed_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """With the column of checksums that the same rows have in a CSV."""
    checksum = MARK + digest(rows.to_csv(index=False, lineterminator="\n"))
    return rows.assign(**{KEY: checksum})
