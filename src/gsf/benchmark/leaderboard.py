"""`gsf benchmark leaderboard`: the page of all entries beside the baselines, as Markdown with HTML.

Made from docs/benchmark/entries/*/ (card.toml, rows.csv.gz) and the shipped rows alone, so that the
same files give the same page. Sorting is a few lines of script in the page; nothing is fetched.
"""

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

import pandas as pd

from gsf.benchmark import catalogue
from gsf.benchmark.catalogue import Protocol
from gsf.benchmark.compare import Comparison, Row, compare
from gsf.benchmark.entry import CARD, Entry, read_entry
from gsf.benchmark.judge import OPEN, at_its_temperature, shipped
from gsf.benchmark.options import BoardConfig
from gsf.benchmark.report import first_look, spell
from gsf.benchmark.show import state
from gsf.core.files import write_atomic
from gsf.evaluation.rows import REFERENCES

WIDTH, HEIGHT = 120, 12  # of a drawn interval


def leaderboard(config: BoardConfig) -> Path:
    """Checks every entry and writes the page."""
    entries = [read_entry(card.parent) for card in sorted(config.entries.glob(f"*/{CARD}"))]
    assets = files("gsf.benchmark") / "assets"
    parts = [(assets / "board.md").read_text()]
    for protocol in map(catalogue.find, catalogue.names()):
        mine = {x.path.name: x for x in entries if x.protocol.name == protocol.name}
        parts += [f"## {protocol.name}", "", f"{protocol.said['about']} ({state(protocol)})", ""]
        parts += [board(protocol, mine, config.replicates) if _is_shown(protocol, mine) else ""]
    parts += [f"<style>\n{(assets / 'board.css').read_text()}</style>", ""]
    parts += [f"<script>\n{(assets / 'board.js').read_text()}</script>", ""]
    write_atomic(config.out, "\n".join(parts))
    print(f"{len(entries)} entries: {config.out}")
    return config.out


def _is_shown(protocol: Protocol, entries: Mapping[str, Entry]) -> bool:
    return bool(entries) or protocol.rows.is_file()


def board(protocol: Protocol, entries: Mapping[str, Entry], replicates: int) -> str:
    """A table: baselines and entries, an entry called by its folder."""
    parts = [at_its_temperature(x.rows, protocol).assign(method=n) for n, x in entries.items()]
    base = [shipped(protocol)] if protocol.rows.is_file() else []
    found = compare(pd.concat([*base, *parts], ignore_index=True), protocol, [*entries], replicates)
    ends = [x for row in found.table for x in row["mean"]]
    low, high = min(ends), max(ends)
    heads = ["method", "mean", "rank", *(f"minus {x}" for x in found.against), "seeds", "trials"]
    lines = ['<table class="board"><thead><tr>']
    lines += [f'<th><button type="button">{escape(x)}</button></th>' for x in heads]
    lines += ["</tr></thead><tbody>"]
    for row in found.table:
        cells = _cells(row, found, protocol, entries, (low, max(high, low + 1e-9)))
        kind = "entry" if row["method"] in entries else "baseline"
        lines += [f'<tr class="{kind}">{"".join(cells)}</tr>']
    return "\n".join([*lines, "</tbody></table>", ""])


def _cells(
    row: Row,
    found: Comparison,
    protocol: Protocol,
    entries: Mapping[str, Entry],
    ends: tuple[float, float],
) -> list[str]:
    name = str(row["method"])
    entry = entries.get(name)
    cells = [_cell(name, _who(row, protocol, entry, found.n_games))]
    cells += [_cell(row["mean"][0], interval(row["mean"], *ends) + f" {spell(row['mean'])}")]
    for key in ("rank", *(f"minus {x}" for x in found.against)):
        numbers = row.get(key)
        cells += [_cell(numbers[0] if numbers else "", spell(numbers))]
    trials = entry.card["trials"] if entry else ""
    return [*cells, _cell(row["n_seeds"], str(row["n_seeds"])), _cell(trials, str(trials))]


def _cell(value: object, text: str) -> str:
    return f'<td data-v="{escape(str(value))}">{text}</td>'


def _who(row: Row, protocol: Protocol, entry: Entry | None, n_games: int) -> str:
    name = str(row["method"])
    marks = []
    if entry is None:
        kind = "reference" if name in REFERENCES else "control" if "+" in name else "baseline"
        return f"{escape(name)} <small>{kind}</small>"
    n_games = min(n_games, entry.rows["game"].nunique())
    marks += ["open"] if row["track"] == OPEN else []
    marks += [short] if (short := first_look(n_games, row["n_seeds"], protocol)) else []
    title, authors = (escape(str(entry.card[x])) for x in ("title", "authors"))
    link = f'<a href="benchmark/entries/{escape(name)}/{CARD}">{title}</a>'
    return f"<b>{link}</b> <small>{' · '.join([authors, *marks])}</small>"


def interval(numbers: Sequence[float], low: float, high: float) -> str:
    """The interval as a line and the value as a dot, on a scale that the whole table shares."""
    value, *ends = ((x - low) / (high - low) * (WIDTH - 8) + 4 for x in numbers)
    middle = HEIGHT / 2
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{spell(list(numbers))}"><line x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" '
        f'y1="{middle}" y2="{middle}"/><circle cx="{value:.1f}" cy="{middle}" r="3"/></svg>'
    )
