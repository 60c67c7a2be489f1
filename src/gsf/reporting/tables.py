"""Tables of the report: tidy frames of `stats` as CSV (numbers), Markdown and LaTeX (for reading).

The paper's own per-game numbers, (x - CQL)/CQL, ship as assets/paper_table.csv.
"""

import functools
import math
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import trim_mean

from gsf.core.files import write_atomic
from gsf.learn.legend import in_order

PAPER = " (paper)"  # marks the paper's columns beside ours
_OVERALL = ("iqm", "mean", "median")  # rows below the games


@functools.cache
def paper_games() -> frozenset[str]:
    return frozenset(paper_table()["game"]) - set(_OVERALL)


def paper_table(games: Iterable[str] | None = None) -> pd.DataFrame:
    """The paper's numbers: method, game, value; rows iqm, mean and median over `games` (all 16)."""
    with (files("gsf.reporting") / "assets" / "paper_table.csv").open() as file:
        table = pd.read_csv(file, index_col="game")
    among = table if games is None else table[table.index.isin(list(games))]
    overall = among.agg(["mean", "median"])
    if len(among):
        overall.loc["iqm"] = trim_mean(among, 0.25)
    table = pd.concat([table, overall]).rename_axis("game").reset_index()
    return table.melt("game", var_name="method", value_name="value")[["method", "game", "value"]]


def beside_paper(relative: pd.DataFrame, weak: Iterable[str] = ()) -> pd.DataFrame:
    """`contrasts.relative` with the paper's numbers as methods "bc (paper)"... beside ours.

    Its IQM, mean and median are over the games that ours are over, so that the two can be compared:
    not over those that are too `weak`.
    """
    by_game = relative[~relative["game"].isin(_OVERALL)]
    averaged = set(relative["method"][relative["game"] == "mean"])
    values = by_game[by_game["method"].isin(averaged)].pivot(
        index="game", columns="method", values="value"
    )
    paper = paper_table(values.dropna().index.difference(list(weak)))
    paper = paper[paper["game"].isin([*by_game["game"], *_OVERALL])]
    paper = paper.assign(method=paper["method"] + PAPER, unit="(x - cql) / cql")
    return pd.concat([relative, paper], ignore_index=True)


def wide(
    tidy: pd.DataFrame, index: str = "game", columns: str = "method", digits: int = 2
) -> pd.DataFrame:
    """Cells "0.31 [0.20, 0.43]", n/a where there is no value, empty where there is no run."""
    cells = [
        _cell(row["value"], row.get("low", math.nan), row.get("high", math.nan), digits)
        for row in tidy.to_dict("records")
    ]
    table = tidy.assign(cell=cells).pivot(index=index, columns=columns, values="cell").fillna("")
    table = table.loc[_ordered(table.index), _ordered(table.columns)]
    table.columns.name = None
    return table.reset_index()


def _cell(value: float, low: float, high: float, digits: int) -> str:
    if math.isnan(value):
        return "n/a"
    if math.isnan(low):
        return f"{value:z.{digits}f}"
    return f"{value:z.{digits}f} [{low:z.{digits}f}, {high:z.{digits}f}]"


def _ordered(names: Any) -> list[str]:
    """Methods as everywhere, the paper's after ours; games by name; aggregates below them."""
    plain = {str(name).removesuffix(PAPER) for name in names}
    rank = {name: i for i, name in enumerate([*in_order(plain - set(_OVERALL)), *_OVERALL])}
    return sorted(names, key=lambda n: (rank[str(n).removesuffix(PAPER)], str(n).endswith(PAPER)))


def to_markdown(table: pd.DataFrame) -> str:
    """By hand: pandas needs one more dependency for this."""
    lines = [list(map(str, table.columns)), ["---"] + ["---:"] * (table.shape[1] - 1)]
    lines += [[str(cell).replace("|", "\\|") for cell in row] for row in table.to_numpy()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def to_latex(table: pd.DataFrame) -> str:
    """A booktabs tabular."""
    form = "l" + "r" * (table.shape[1] - 1)
    return str(table.to_latex(index=False, escape=True, column_format=form))


def _unlike_formulas(tidy: pd.DataFrame) -> pd.DataFrame:
    """Spreadsheets compute what begins like a formula, and names may come from anybody's files."""

    def plain(cell: Any) -> Any:
        risky = isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r"))
        return f"'{cell}" if risky else cell

    texts = tidy.select_dtypes(exclude="number").columns
    return tidy.assign(**{name: tidy[name].astype(object).map(plain) for name in texts})


def write_table(
    tidy: pd.DataFrame, stem: Path, index: str = "game", columns: str = "method", digits: int = 2
) -> list[Path]:
    """stem.csv with every number of the tidy frame, stem.md and stem.tex with its wide form."""
    table = wide(tidy, index, columns, digits)
    stem = Path(stem)
    texts = {
        "csv": _unlike_formulas(tidy).to_csv(index=False, float_format="%.6g", lineterminator="\n"),
        "md": to_markdown(table),
        "tex": to_latex(table),
    }
    paths = []
    for kind, text in texts.items():
        paths.append(stem.with_name(f"{stem.name}.{kind}"))
        write_atomic(paths[-1], text)
    return paths
