"""Plausible evaluation rows: difficulty of levels shared by all methods, skill of every run."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gsf.evaluation.rows import COLUMNS, KEYS, REFERENCES, check_rows
from gsf.learn.legend import in_order
from gsf.nets.acting import temperature_of
from gsf.reporting.scores import Scores
from gsf.suites.procgen import GAMES

FIRST_LEVEL = {"seen": 0, "validation": 500_000, "unseen": 1_000_000}
BASELINES = ("bc", "cql", "curl", "ctrl", "deepmdp", "vpn", "cssc", "pse")
METHODS = in_order([*REFERENCES, *BASELINES, "gsf-reward", "gsf-successor", "gsf-action"])
SKILL = dict(zip(METHODS, np.linspace(0.15, 0.6, len(METHODS)), strict=True))
SKILL |= {"random": 0.0, "behaviour": 0.65}


def evaluation_rows(
    games: Sequence[str] = tuple(GAMES),
    methods: Sequence[str] = tuple(METHODS),
    n_seeds: int = 5,
    n_levels: int = 200,
    steps: Sequence[int] = (1000,),
    splits: Sequence[str] = ("seen", "unseen"),
    modes: Sequence[str] = ("greedy", "sampled"),
    seed: int = 0,
) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    axes = [list(games), list(methods), range(n_seeds), list(steps), list(splits)]
    names = [*KEYS[:5], "mode", "level"]
    grid = pd.MultiIndex.from_product([*axes, list(modes), range(n_levels)], names=names)
    shape = tuple(map(len, grid.levels))
    # [game, method, seed, step, split, mode, level]
    skill = np.array([SKILL.get(m, 0.4) for m in methods]).reshape(1, -1, 1, 1, 1, 1, 1)
    skill = skill * rng.uniform(0.5, 1.3, (shape[0], 1, 1, 1, 1, 1, 1))
    skill = skill + rng.normal(0, 0.05, (*shape[:3], 1, 1, 1, 1))
    skill = skill - 0.08 * (np.array(splits) != "seen").reshape(-1, 1, 1)
    skill = skill * (1 - np.exp(-3 * np.array(steps) / max(steps))).reshape(-1, 1, 1, 1)
    difficulty = rng.normal(0, 0.15, (shape[0], 1, 1, 1, shape[4], 1, shape[6]))
    score = np.clip(skill + difficulty + rng.normal(0, 0.2, shape), -0.1, 1).ravel()
    rows = grid.to_frame(index=False)
    low, high = (
        rows["game"].map({g: GAMES[g].score_range[end] for g in games}).to_numpy() for end in (0, 1)
    )
    rows["return"] = low + score * (high - low)
    rows["level"] += rows["split"].map(FIRST_LEVEL)
    rows["length"], rows["completed"], rows["entropy"] = 100, score > 0.5, 1.0
    rows["temperature"] = rows["mode"].map(lambda mode: temperature_of(mode, 0.5))
    is_reference = rows["method"].isin(REFERENCES)
    rows = rows[~is_reference | ((rows["seed"] == 0) & (rows["step"] == max(steps)))]
    rows.loc[rows["method"].isin(REFERENCES), "step"] = 0
    return check_rows(rows[COLUMNS].reset_index(drop=True), "synthetic rows")


def table_rows(returns: dict[tuple[str, str], Sequence[Sequence[float]]], **keys: object):
    """Rows from {(game, method): returns [seeds, levels]}: for cases computed by hand."""
    keys = {"step": 10, "split": "unseen", "mode": "greedy", "length": 1, "completed": True, **keys}
    keys = {"temperature": 0.0, "entropy": 0.0, **keys}
    rows = [
        {"game": game, "method": method, "seed": s, "level": level, "return": value, **keys}
        for (game, method), runs in returns.items()
        for s, levels in enumerate(runs)
        for level, value in enumerate(levels)
    ]
    return check_rows(pd.DataFrame(rows), "rows")


def matrix(found: Scores, method: str) -> np.ndarray:
    """[seeds, games] of normalised run means: what rliable calls scores."""
    return np.stack([found.normalise(g, found.run_means(method, g)) for g in found.games], axis=1)
