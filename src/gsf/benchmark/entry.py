"""Entries: a folder with card.toml, which says whose it is and how it was chosen, and rows.csv.gz.

The card's number of trials is declared, and cannot be checked: how many settings were tried on
validation levels before the test levels were played.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gsf.benchmark import catalogue
from gsf.benchmark.catalogue import Protocol
from gsf.benchmark.judge import check_levels, read_benchmark
from gsf.core.errors import UserError
from gsf.core.files import write_atomic
from gsf.core.schema import DIGEST, POSITIVE, TEXT, Form, misfit
from gsf.evaluation.rows import REFERENCES

CARD, ROWS = "card.toml", "rows.csv.gz"
_FORM: Form = {
    "title": TEXT,
    "authors": TEXT,
    "code": TEXT,
    "protocol": TEXT,
    "digest": DIGEST,
    "method": TEXT,
    "trials": POSITIVE,
    "settings": TEXT,
    "date": TEXT,
}
EXPLAINED = {
    "title": "what the page calls it",
    "authors": "who answers questions",
    "code": "where the code is, with its commit",
    "trials": "settings tried on validation levels, this one among them",
    "settings": "what was chosen, where it is no default",
    "date": "of the run",
}


@dataclass(frozen=True)
class Entry:
    path: Path
    card: dict[str, Any]
    protocol: Protocol
    rows: pd.DataFrame  # of its method alone

    @property
    def method(self) -> str:
        return str(self.card["method"])


def read_entry(path: Path) -> Entry:
    """An entry's folder, checked: its card, its rows, and that both are of the protocol here."""
    card = _read_card(path / CARD)
    protocol = catalogue.find(card["protocol"])
    if card["digest"] != protocol.digest:
        raise UserError(
            f"{path / CARD} is of {protocol.name} with digest {card['digest']}, which has "
            f"{protocol.digest} here: the protocol was changed, or is of another version."
        )
    if not (path / ROWS).is_file():
        raise UserError(f"{path} has no {ROWS}; `gsf benchmark run` makes it.")
    rows = read_benchmark(path / ROWS, protocol)
    mine = rows[rows["method"] == card["method"]]
    if card["method"] in (*protocol.methods, *REFERENCES):
        raise UserError(f"{path / CARD}: {card['method']} is a baseline; call the method else.")
    if not len(mine):
        raise UserError(f"{path / ROWS} has no rows of {card['method']}, which the card names.")
    check_levels(path / ROWS, mine, protocol)
    return Entry(path, card, protocol, mine)


def _read_card(path: Path) -> dict[str, Any]:
    try:
        card = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise UserError(f"there is no {path}; `gsf benchmark run` writes one to fill in.") from None
    except ValueError as error:
        raise UserError(f"{path} is not TOML ({error}).") from None
    if wrong := misfit(card, _FORM):
        raise UserError(f"{path} is no card of an entry: {wrong}.")
    if unfilled := [key for key in EXPLAINED if card[key] in ("", "?")]:
        raise UserError(f"{path}: fill in {unfilled[0]}: {EXPLAINED[unfilled[0]]}.")
    return card


def write_card(path: Path, protocol: Protocol, method: str) -> None:
    """A card to fill in, unless there is one."""
    if path.exists():
        return
    lines = [
        f'protocol = "{protocol.name}"',
        f'digest = "{protocol.digest}"',
        f'method = "{method}"',
        *(f'{key} = "?"  # {why}' for key, why in EXPLAINED.items() if key != "trials"),
        f"trials = 0  # {EXPLAINED['trials']}",
    ]
    write_atomic(path, "\n".join(lines) + "\n")
