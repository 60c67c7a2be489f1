"""What `gsf run` prints at its end: mean returns of methods, or what can be said without play."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

from gsf.core.logs import console, read_metrics
from gsf.core.results import Results, Stage
from gsf.core.stage import METRICS
from gsf.evaluation.held_out_rows import ANY, QUANTITIES, overall, read_held_out
from gsf.evaluation.intervals import intervals_over
from gsf.evaluation.players import can_play
from gsf.evaluation.rows import REFERENCES
from gsf.gvf.diagnostics import weakness
from gsf.nets.acting import explain
from gsf.reporting import stats
from gsf.reporting.gather import gather
from gsf.reporting.scores import scores

# Other modes are in the rows and in the report.
SHOWN = ("sampled", "greedy")
HELD_OUT = (("agreement", "greedy"), ("nll", ANY), ("fqe", "greedy"), ("wis", "sampled-1"))


def print_summary(out: Path) -> None:
    """Prints returns on seen and unseen levels with intervals, and what is missing."""
    rows, problems = gather([out])
    if len(rows):
        titles = {"seen": "seen levels", "unseen": "unseen levels"}
        splits = {split: title for split, title in titles.items() if split in set(rows["split"])}
        trained = rows[~rows["method"].isin(REFERENCES)]
        played = set(trained["mode"] if len(trained) else rows["mode"])
        for mode in (x for x in SHOWN if x in played):
            n_seeds = trained.groupby(["game", "method"], observed=True)["seed"].nunique()
            over = intervals_over(list(n_seeds))
            table = Table(title=f"mean return, {mode} actions, {over}")
            for heading in ("game", "method", *splits.values(), "seeds"):
                table.add_column(heading, overflow="fold")  # a name is never cut
            for cells in _summary_cells(rows, mode, list(splits)):
                table.add_row(*cells)
            Console().print(table)
    found = Results([out])
    _print_held_out(found)
    unplayed = [run for run in found.of_kind("run") if _is_unplayed(run)]
    if unplayed:
        _print_training(unplayed)
    for fit in found.of_kind("gvf"):
        if said := weakness(fit.path, fit.manifest):
            console.print(f"[yellow]{said}[/]", soft_wrap=True, highlight=False)
    for problem in problems:
        if not any(problem.startswith(f"{run.path} has not been evaluated") for run in unplayed):
            console.print(f"[yellow]{problem}[/]", soft_wrap=True, highlight=False)


def _is_unplayed(run: Stage) -> bool:
    """Whether a run has no rows because no suite can play it. Others have failed."""
    known = "game" in run.manifest and (run.path / METRICS).is_file()
    judged = any((run.path / name).is_file() for name in ("returns.csv", "held_out.csv"))
    return known and not (judged or can_play(run.manifest))


def _print_held_out(found: Results) -> None:
    """Prints what held-out data says of the last checkpoint of each run."""
    parts = [read_held_out(run.path / "held_out.csv") for run in found.of_kind("run")]
    parts = [overall(rows[rows["step"] == rows["step"].max()]) for rows in parts if len(rows)]
    if not parts:
        return
    rows = pd.concat(parts)
    title = "on contexts held out, 95 % intervals over these and their episodes"
    table = Table(title=title, caption=explain(mode for _, mode in HELD_OUT))
    columns = {
        (q, m): f"{QUANTITIES[q].title} {'' if m == ANY else m}".strip() for q, m in HELD_OUT
    }
    for heading in ("data", "method", "seed", *columns.values()):
        table.add_column(heading, overflow="fold")
    for (game, method, seed), mine in rows.groupby(["game", "method", "seed"], sort=False):
        cells = [
            f"{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
            for quantity, mode in columns
            for row in mine[(mine["quantity"] == quantity) & (mine["mode"] == mode)].to_dict(
                "records"
            )
            or [dict.fromkeys(("value", "low", "high"), float("nan"))]
        ]
        table.add_row(str(game), str(method), str(seed), *cells)
    Console().print(table)


def _print_training(runs: Sequence[Stage]) -> None:
    """Prints the last training metrics of runs that cannot be judged, and how they could be."""
    table = Table(title="training metrics at the end: they say nothing about new contexts")
    for heading in ("data", "method", "seed", "step", "metrics"):
        table.add_column(heading, overflow="fold")
    for run in runs:
        rows = read_metrics(run.path / METRICS)
        last = rows[-1] if rows else {"step": 0}
        shown = [f"{k} {x:.3g}" for k, x in last.items() if k.endswith(("/loss", "/accuracy"))]
        who = (str(run.manifest[name]) for name in ("game", "method", "seed"))
        table.add_row(*who, f"{last['step']:,}", ", ".join(shown))
    Console().print(table)
    names = ", ".join(sorted({run.manifest["game"] for run in runs}))
    console.print(
        f"no suite can play {names}: to see how good these agents are, name an environment "
        "(--env file.py:make) or data of contexts they were not trained on (--held-out DATASET).",
        soft_wrap=True,
    )


def _summary_cells(rows: pd.DataFrame, mode: str, splits: list[str]) -> list[list[str]]:
    found: dict[tuple[str, str, int], dict[str, str]] = {}
    for split in splits:
        tidy = stats.per_game(stats.bootstrap(scores(rows, split, mode)), raw=True)
        for row in tidy.to_dict("records"):
            cell = f"{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
            if (row["method"], mode) != ("random", "greedy"):  # random play has no best action
                found.setdefault((row["game"], row["method"], row["n_seeds"]), {})[split] = cell
    return [
        [game, method, *(cells.get(split, "-") for split in splits), str(n_seeds)]
        for (game, method, n_seeds), cells in found.items()
    ]
