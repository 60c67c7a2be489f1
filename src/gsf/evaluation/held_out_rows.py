"""Rows of what held-out data says of an agent, one per quantity, mode and context: checked.

`gsf evaluate --held-out` writes them, reports and tuning read them; all through here.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gsf.core.errors import UserError
from gsf.core.sealed import open_table, write_table
from gsf.nets.acting import Mode

OVERALL = ""  # the context of rows over all of them
ANY = "any"  # the mode of quantities that are the same in every mode
JUDGED: tuple[Mode, ...] = ("greedy", "sampled-1")  # the modes that are judged


class Quantity(NamedTuple):
    title: str
    better: int  # 1: higher is better, -1: lower is, 0: neither
    about: str


QUANTITIES = {
    "agreement": Quantity(
        "agreement", 1, "share of steps at which the agent does what was logged, or is expected to"
    ),
    "nll": Quantity(
        "NLL", -1, "-log of the logged action's probability, at a temperature fitted elsewhere"
    ),
    "temperature": Quantity("temperature", 0, "at which the scores fit all held-out actions best"),
    "ece": Quantity("ECE", -1, "expected calibration error at the fitted temperature"),
    "ece_played": Quantity("ECE as played", -1, "the same at temperature 1, at which agents play"),
    "reliability": Quantity("reliability", 0, "how often the likeliest action was logged, by bin"),
    "fqe": Quantity("FQE", 1, "discounted return of the agent, by fitted Q evaluation"),
    "wis": Quantity("WIS", 1, "the same by per-decision weighted importance sampling"),
    "effective": Quantity("effective", 1, "share of the episodes that WIS effectively rests on"),
    "logged_return": Quantity("logged", 0, "discounted return of the logged episodes themselves"),
}
KEYS = ["game", "method", "seed", "step", "data", "quantity", "mode", "context", "at"]
IDENTITY = "agent"  # digest of what was judged and how, so that rows are never mixed up
TYPES: dict[str, Any] = {
    **dict.fromkeys(("game", "method"), str),
    **dict.fromkeys(("seed", "step"), np.int64),
    **dict.fromkeys(("data", "quantity", "mode", "context"), str),  # data: digest of the dataset
    **dict.fromkeys(("at", "value", "low", "high"), np.float64),  # at: of reliability, confidence
    **dict.fromkeys(("n_contexts", "n_episodes", "n_steps"), np.int64),
    IDENTITY: str,
}
_NUMBERS = [name for name, kind in TYPES.items() if kind is not str]


def check_held_out(
    who: str, trained: Mapping[str, Any], path: Path, facts: Mapping[str, Any]
) -> None:
    """Refuses a dataset that shares contexts with training, or is of another kind.

    `trained`: manifest of a run or of its dataset; `facts`: of the dataset at `path`.
    """
    known = set(trained["levels"])
    shared = [x for x in facts["levels"] if x in known]
    if shared:
        shown = ", ".join(map(str, shared[:5])) + (" ..." if len(shared) > 5 else "")
        raise UserError(
            f"{path} is not held out: {who} has trained on {len(shared)} of its "
            f"{len(facts['levels'])} contexts ({shown})."
        )
    if list(trained["obs_shape"]) != list(facts["obs_shape"]):
        raise UserError(
            f"{path} has images {list(facts['obs_shape'])}, {who} {list(trained['obs_shape'])}."
        )
    (n, ids), (n_trained, trained_ids) = (
        (x["n_actions"], x.get("actions")) for x in (facts, trained)
    )
    if n != n_trained or (ids and trained_ids and list(ids) != list(trained_ids)):
        raise UserError(
            f"{path} has {n} actions{f' {ids}' if ids else ''}, {who} {n_trained}"
            f"{f' {trained_ids}' if trained_ids else ''}."
        )


def read_held_out(path: Path) -> pd.DataFrame:
    """A held_out.csv, checked; no rows if there is no file."""
    if not path.is_file():
        return pd.DataFrame(columns=list(TYPES)).astype(TYPES)
    try:  # as text: a context may be called NA, or 007
        text = open_table(path, path.read_bytes())
        raw = pd.read_csv(io.BytesIO(text), dtype=str, keep_default_na=False)
        numbers = {name: raw[name].replace("", "nan").astype(float) for name in _NUMBERS}
        rows = raw.assign(**numbers)[list(TYPES)].astype(TYPES)
    except (OSError, ValueError) as error:  # pandas' parser errors are ValueErrors
        raise UserError(f"{path} is not readable ({error}); evaluate the run again.") from None
    except KeyError as error:
        raise UserError(f"{path} lacks a column ({error}); evaluate the run again.") from None
    unknown = sorted(set(rows["quantity"]) - set(QUANTITIES))
    if unknown:
        raise UserError(f"{path}: {unknown[0]!r} is not one of {', '.join(QUANTITIES)}.")
    if rows.duplicated(KEYS).any():
        raise UserError(f"{path} has the same row twice; evaluate the run again.")
    return rows


def write_held_out(path: Path, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, in the same order whatever order they came in."""
    order = {name: i for i, name in enumerate(QUANTITIES)}
    by = ["game", "method", "seed", "step", "data", "order", "mode", "single", "at"]
    rows = rows.assign(order=rows["quantity"].map(order), single=rows["context"] != OVERALL)
    rows = rows.sort_values(by, kind="stable", ignore_index=True)[list(TYPES)].astype(TYPES)
    write_table(path, rows)
    return rows


def overall(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows over all contexts, but for the points of the reliability figure."""
    return rows[(rows["context"] == OVERALL) & (rows["quantity"] != "reliability")]
