"""Anyone's own agent under a protocol, by evaluation alone: rows of an *open* entry.

    from gsf.benchmark.anyone import play

    play(act, "grid-1", method="mine", seed=0, out="mine.csv")  # act(obs) -> actions

`act` sees uint8 images [n, H, W, C] of n levels at once and gives n actions; it may not remember.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gsf.benchmark import catalogue
from gsf.benchmark.judge import SPLITS
from gsf.core.sealed import write_table
from gsf.evaluation.episodes import evaluate_agent
from gsf.evaluation.rollout import Array
from gsf.evaluation.rows import COLUMNS, check_rows
from gsf.evaluation.splits import split_levels
from gsf.suites import facts_of


class _Actor:
    """All on the action that is chosen."""

    def __init__(self, act: Callable[[Array], Any], n_actions: int) -> None:
        self._act, self._each = act, np.eye(n_actions)

    def policy(self, obs: Array, temperature: Array) -> Array:
        return self._each[np.asarray(self._act(obs), dtype=np.int64)]


def play(
    act: Callable[[Array], Any], protocol: str, *, method: str, seed: int, out: Path | str
) -> pd.DataFrame:
    """Plays the protocol's levels of all its games once, into a file for `gsf benchmark report`."""
    rules = catalogue.find(protocol)
    parts = []
    for game in rules.games:
        actor = _Actor(act, len(facts_of(game).actions))
        for split in SPLITS:
            levels = split_levels(game, split, rules.said["evaluate"][f"n_{split}"])
            rows = evaluate_agent(actor, game, levels, seed=seed)
            names: dict[str, Any] = {
                "game": game,
                "method": method,
                "seed": seed,
                "step": 0,
                "split": split,
            }
            parts.append(rows.assign(**names, mode=rules.measure["mode"]))
    rows = check_rows(pd.concat(parts)[COLUMNS], f"play of {method}").reset_index(drop=True)
    write_table(Path(out), rows)
    return rows
