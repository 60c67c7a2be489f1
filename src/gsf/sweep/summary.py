"""What `gsf run` prints at its end: mean returns of every method, with intervals."""

from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

from gsf.core.logs import console
from gsf.reporting import stats
from gsf.reporting.gather import gather
from gsf.reporting.scores import scores

# At every run's own temperature, and the best action; more is in the rows and in the report.
SHOWN = ("sampled", "greedy")


def print_summary(out: Path) -> None:
    """Returns of every method on seen and unseen levels, with intervals, failures not hidden."""
    rows, problems = gather([out])
    if len(rows):
        titles = {"seen": "seen levels", "unseen": "unseen levels"}
        splits = {split: title for split, title in titles.items() if split in set(rows["split"])}
        for mode in SHOWN:
            table = Table(
                title=f"mean return, {mode} actions, 95 % intervals over seeds and levels"
            )
            for heading in ("game", "method", *splits.values(), "seeds"):
                table.add_column(heading)
            for cells in _summary_cells(rows, mode, list(splits)):
                table.add_row(*cells)
            Console().print(table)
    for problem in problems:
        console.print(f"[yellow]{problem}[/]", soft_wrap=True, highlight=False)


def _summary_cells(rows: pd.DataFrame, mode: str, splits: list[str]) -> list[list[str]]:
    found: dict[tuple[str, str, int], dict[str, str]] = {}
    for split in splits:
        tidy = stats.per_game(stats.bootstrap(scores(rows, split, mode)), raw=True)
        for row in tidy.to_dict("records"):
            cell = f"{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
            found.setdefault((row["game"], row["method"], row["n_seeds"]), {})[split] = cell
    return [
        [game, method, *(cells.get(split, "-") for split in splits), str(n_seeds)]
        for (game, method, n_seeds), cells in found.items()
    ]
