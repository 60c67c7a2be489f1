"""What stands below figures and tables: where numbers are from, what intervals are over."""

import pandas as pd

from gsf.evaluation.intervals import intervals_over
from gsf.evaluation.rows import REFERENCES
from gsf.reporting.stats import FEW_SEEDS


def caveat(frame: pd.DataFrame) -> str:
    """The warning that belongs to numbers from fewer than three seeds, else nothing."""
    n_seeds = _seeds(frame)
    if not n_seeds or min(n_seeds) >= FEW_SEEDS:
        return ""
    if max(n_seeds) == 1:
        return "Only 1 seed: intervals are over levels, they do not show how training runs differ."
    if min(n_seeds) == 1:
        return "Intervals of methods with 1 seed do not show how training runs differ."
    return f"Only {min(n_seeds)} seeds: intervals are too narrow to rank methods by."


def describe(frame: pd.DataFrame) -> str:
    """Where the numbers of a frame are from: split, actions, seeds, games."""
    if not len(frame):
        return "no results yet"
    seeds = sorted({min(_seeds(frame), default=0), max(_seeds(frame), default=0)})
    parts = [f"{frame['split'].iloc[0]} levels", str(frame["actions"].iloc[0])]
    parts.append(f"{'-'.join(map(str, seeds))} seed{'s' if seeds != [1] else ''}")
    n_games = frame["n_games"].max() if "n_games" in frame else frame["game"].nunique()
    parts.append(f"{n_games} game{'s' if n_games != 1 else ''}")
    return ", ".join(parts)


def _seeds(frame: pd.DataFrame) -> list[int]:
    if "method" in frame and not frame["method"].isin(REFERENCES).all():
        frame = frame[~frame["method"].isin(REFERENCES)]
    return [int(n) for n in frame["n_seeds"]]


def over(*frames: pd.DataFrame) -> str:
    """What the intervals of these frames are over."""
    return intervals_over([n for frame in frames for n in _seeds(frame)])


def source(*frames: pd.DataFrame, note: str = "") -> str:
    """What stands below a figure of these frames."""
    return "; ".join([*dict.fromkeys(map(describe, frames)), note or over(*frames)])
