"""`gsf benchmark report`: entrants beside the rows that come with gsf, as Markdown."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from gsf.benchmark.catalogue import Protocol
from gsf.benchmark.compare import Comparison, Row, compare
from gsf.benchmark.entry import ROWS
from gsf.benchmark.judge import (
    OPEN,
    at_its_temperature,
    check_levels,
    find_protocol,
    read_benchmark,
    shipped,
)
from gsf.benchmark.options import BesideConfig
from gsf.core.errors import UserError
from gsf.core.files import write_atomic
from gsf.core.version import __version__
from gsf.evaluation.rows import REFERENCES


def report(config: BesideConfig) -> Path | None:
    """Prints the tables and writes them beside the first file of rows, or to --out."""
    paths = [path / ROWS if path.is_dir() else path for path in config.rows]
    if not paths and config.protocol is None:
        raise UserError("name rows of yours, or --protocol NAME for the baselines alone.")
    protocol = find_protocol(paths[0] if paths else Path(), config.protocol)
    rows = gather(paths, protocol)
    entrants = [m for m in pd.unique(rows["method"]) if is_entrant(m, protocol)]
    text = as_markdown(compare(rows, protocol, entrants), protocol, entrants)
    print(text)
    out = config.out or (paths[0].with_name("report.md") if paths else None)
    if out is not None:
        write_atomic(out, text)
    return out


def is_entrant(method: str, protocol: Protocol) -> bool:
    return method not in (*protocol.methods, *REFERENCES)


def gather(paths: Sequence[Path], protocol: Protocol) -> pd.DataFrame:
    """Shipped rows and the given ones; a baseline that is shipped stays as it is."""
    parts = [shipped(protocol)] if protocol.rows.is_file() else []
    known: set[str] = set(parts[0]["method"]) if parts else set()
    for path in paths:
        rows = read_benchmark(path, protocol)
        check_levels(path, rows, protocol)
        rows = rows[~rows["method"].isin(known & {*protocol.methods, *REFERENCES})]
        if twice := sorted(set(rows["method"]) & known):
            raise UserError(f"{path}: another entry is called {twice[0]}, too; rename the method.")
        known |= set(rows["method"])
        parts.append(at_its_temperature(rows, protocol))
    if not parts or not sum(map(len, parts)):
        raise UserError(f"no rows of {protocol.name} come with this gsf yet; name some.")
    return pd.concat(parts, ignore_index=True)


def first_look(n_games: int, n_seeds: int, protocol: Protocol) -> str | None:
    """What a result is short of; None: it is all that the protocol asks for."""
    if n_games == len(protocol.games) and n_seeds >= protocol.seeds:
        return None
    return (
        f"first look: {n_games} of {len(protocol.games)} games, {n_seeds} of {protocol.seeds} seeds"
    )


def as_markdown(found: Comparison, protocol: Protocol, entrants: Sequence[str]) -> str:
    measure = protocol.measure
    head = f"protocol digest {protocol.digest}{', a draft' * protocol.is_draft}; gsf {__version__}"
    short = first_look(found.n_games, found.n_seeds, protocol) if entrants else None
    lines = [f"# {protocol.name}: {', '.join(entrants) or 'the baselines'}", "", head, ""]
    if short:
        lines += [f"**A {short}. This is no entry.**", ""]
    split, mode = measure["split"], measure["mode"]
    lines += [
        f"Mean {found.unit} on {split} levels, {mode} actions, over {found.n_games} game"
        f"{'s' * (found.n_games > 1)}; 95 % intervals over seeds and levels; differences are "
        f"between the same levels. The best baseline is {found.best}, chosen by these numbers.",
        "",
    ]
    closed = [row for row in found.table if row["track"] != OPEN]
    lines += _table(closed, entrants, ["rank"], found)
    opened = [row for row in found.table if row["track"] == OPEN]
    if opened:
        lines += ["", "## Open", "", "Another recording, network or budget, or nobody can tell."]
        lines += ["", *_table(opened, entrants, ["rank"], found)]
    if found.n_games > 1:
        for game in dict.fromkeys(row["game"] for row in found.games):
            mine = [row for row in found.games if row["game"] == game]
            lines += ["", f"## {game}", "", *_table(mine, entrants, [], found)]
    lines += ["", _power(found, protocol), ""]
    return "\n".join(lines)


def _table(
    rows: Sequence[Row], entrants: Sequence[str], more: Sequence[str], found: Comparison
) -> list[str]:
    columns = ["mean", *more, *(f"minus {x}" for x in found.against)]
    seeds = ["seeds"] if more else []
    lines = [f"| {' | '.join(['method', *columns, *seeds])} |"]
    lines += ["|---" * (1 + len(columns) + len(seeds)) + "|"]
    for row in rows:
        name = str(row["method"])
        cells = [f"**{name}**" if name in entrants else name]
        cells += [spell(row.get(x)) for x in columns]
        cells += [str(row["n_seeds"])] if seeds else []
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def spell(numbers: object) -> str:
    """0.12 [0.10, 0.14]; nothing where there is none."""
    if not isinstance(numbers, list):
        return ""
    value, low, high = numbers
    return f"{value:z.2f} [{low:z.2f}, {high:z.2f}]"


def _power(found: Comparison, protocol: Protocol) -> str:
    n = protocol.said["evaluate"]["n_unseen"]
    design = f"{found.n_games} game{'s' * (found.n_games > 1)}, {found.n_seeds} "
    design += f"seed{'s' * (found.n_seeds > 1)} and {n} levels"
    if found.effect is None:
        return f"What {design} could have shown is not known: it needs two seeds of the baselines."
    return (
        f"With {design}, a difference to {found.against[0]} of {found.effect:.2f} or more would "
        "have been seen in four of five cases; a smaller one may be there all the same."
    )
