"""What a campaign counts, and its table."""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Row:
    """Of one stage, artefact or option: cases tried, and those that went wrong, by what was."""

    campaign: str
    what: str
    tried: int = 0
    wrong: dict[str, list[str]] = field(default_factory=dict)  # what went wrong -> the cases

    def fail(self, what: str, case: str) -> None:
        self.wrong.setdefault(what, []).append(case)


def table(rows: Iterable[Row]) -> str:
    """Markdown: a line for each thing attacked, and the sums of each campaign."""
    rows = list(rows)
    lines = ["| campaign | attacked | cases | wrong |", "|---|---|---:|---|"]
    for campaign in dict.fromkeys(row.campaign for row in rows):
        mine = [row for row in rows if row.campaign == campaign]
        lines += [f"| {campaign} | {row.what} | {row.tried:,} | {_counts([row])} |" for row in mine]
        total = sum(row.tried for row in mine)
        lines.append(f"| **{campaign}** | **all** | **{total:,}** | **{_counts(mine)}** |")
    return "\n".join(lines)


def _counts(rows: Iterable[Row]) -> str:
    counts: dict[str, int] = {}
    for row in rows:
        for what, cases in row.wrong.items():
            counts[what] = counts.get(what, 0) + len(cases)
    return ", ".join(f"{n:,} {what}" for what, n in counts.items()) or "0"


def faults(rows: Iterable[Row]) -> list[str]:
    """Every case that went wrong, one line each."""
    return [
        f"{row.campaign}, {row.what}: {what}: {case}"
        for row in rows
        for what, cases in row.wrong.items()
        for case in cases
    ]
