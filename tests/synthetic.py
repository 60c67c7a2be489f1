"""Plausible evaluation rows: level difficulty shared by all methods, a skill per method and seed."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gsf.games import GAMES
from gsf.returns import COLUMNS, REFERENCES, SPLITS, check_rows, in_order

FIRST_LEVEL = {"seen": 0, "validation": 500_000, "test": 1_000_000}
METHODS = in_order(
    "random behaviour bc cql curl ctrl deepmdp vpn cssc pse gsf-reward gsf-successor gsf-action".split()
)
SKILL = dict(zip(METHODS, np.linspace(0.15, 0.6, len(METHODS)), strict=True)) | {
    "random": 0.0,
    "behaviour": 0.65,
}


def evaluation_rows(
    games: Sequence[str] = tuple(GAMES),
    methods: Sequence[str] = tuple(METHODS),
    n_seeds: int = 5,
    n_levels: int = 200,
    steps: Sequence[int] = (1000,),
    splits: Sequence[str] = ("seen", "test"),
    modes: Sequence[str] = ("greedy", "softmax"),
    seed: int = 0,
) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    parts = []
    for game in games:
        low, high = GAMES[game].score_min, GAMES[game].score_max
        appetite = rng.uniform(0.5, 1.3)
        for split in splits:
            assert split in SPLITS
            levels = np.arange(n_levels) + FIRST_LEVEL[split]
            difficulty = rng.normal(0, 0.15, n_levels)
            for method in methods:
                is_reference = method in REFERENCES
                for run in range(1 if is_reference else n_seeds):
                    luck = 0 if is_reference else rng.normal(0, 0.05)
                    for step in (0,) if is_reference else steps:
                        learned = 1 if is_reference else 1 - np.exp(-3 * step / max(steps))
                        for mode in modes:
                            skill = (SKILL.get(method, 0.4) * appetite + luck) * learned
                            skill -= 0.08 * (split != "seen") * learned
                            noise = rng.normal(0, 0.2, n_levels)
                            score = np.clip(skill + difficulty + noise, -0.1, 1)
                            parts.append(
                                pd.DataFrame(
                                    {
                                        "game": game,
                                        "method": method,
                                        "seed": run,
                                        "step": step,
                                        "split": split,
                                        "level": levels,
                                        "mode": mode,
                                        "return": low + score * (high - low),
                                        "length": 100,
                                        "completed": score > 0.5,
                                    }
                                )
                            )
    return check_rows(pd.concat(parts, ignore_index=True)[COLUMNS], "synthetic rows")
