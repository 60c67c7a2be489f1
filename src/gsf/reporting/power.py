"""How small a difference between methods can be seen, before it is looked for.

A return is mean + seed + level + rest. How much each varies in (method - baseline), paired by
level, is estimated from rows that are there; more seeds and more levels divide its parts. The
smallest effect is what the report's 95 % interval excludes from 0 with probability `power`.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm

from gsf.core.errors import UserError
from gsf.evaluation.rows import REFERENCES
from gsf.reporting.contrasts import positive_games
from gsf.reporting.scores import Array, Scores
from gsf.reporting.stats import Replicates

POWER = 0.8
SEEDS = tuple(range(1, 11))
LEVELS = (50, 100, 200, 500, 1000)


class Noise(NamedTuple):
    """Variances of a difference: of one seed's mean, of one level's, and of what is left."""

    seeds: float
    levels: float
    rest: float

    def scaled(self, by: float) -> "Noise":
        return Noise(*(by**2 * variance for variance in self))

    def of_mean(self, n_seeds: int, n_levels: int) -> float:
        """The variance of the mean difference over so many seeds and levels."""
        return self.seeds / n_seeds + self.levels / n_levels + self.rest / (n_seeds * n_levels)

    def of_bootstrap(self, n_seeds: int, n_levels: int) -> float:
        """What `stats.bootstrap` takes it to be: seeds count too little where they are few, and
        `rest` too much, as it is redrawn with the seeds and with the levels."""
        q = (n_seeds - 1) / n_seeds
        rest = (1 + 2 * q) * self.rest / (n_seeds * n_levels)
        return q * self.seeds / n_seeds + self.levels / n_levels + rest


def noise(x: Array, y: Array) -> Noise | None:
    """The noise of x - y, both [seeds, levels] on the same levels; None if it cannot be told, with
    fewer than two seeds or levels."""
    if min(*x.shape, *y.shape) < 2:
        return None
    rests = [_rest(runs) for runs in (x, y)]
    n_levels = x.shape[1]
    seeds = [
        max(float(runs.mean(axis=1).var(ddof=1)) - rest / n_levels, 0.0)
        for runs, rest in zip((x, y), rests, strict=True)
    ]
    by_level = x.mean(axis=0) - y.mean(axis=0)
    levels = float(by_level.var(ddof=1)) - rests[0] / len(x) - rests[1] / len(y)
    return Noise(sum(seeds), max(levels, 0.0), sum(rests))


def _rest(runs: Array) -> float:
    """Variance of what neither the seed nor the level explains.  [seeds, levels]"""
    left = runs - runs.mean(axis=0) - runs.mean(axis=1, keepdims=True) + runs.mean()
    return float((left**2).sum() / ((runs.shape[0] - 1) * (runs.shape[1] - 1)))


def effect(games: Iterable[tuple[Noise, int, int]], power: float = POWER) -> float:
    """The smallest effect on the mean over games, each with its noise, seeds and levels.

    Over few seeds the bootstrap's interval is too narrow, and would see effects where there are
    none. Then the interval is taken to be as wide as it should be.
    """
    each = list(games)
    variance = sum(noise.of_mean(*design) for noise, *design in each)
    interval = max(variance, sum(noise.of_bootstrap(*design) for noise, *design in each))
    both = norm.ppf(0.975) * np.sqrt(interval) + norm.ppf(power) * np.sqrt(variance)
    return float(both / len(each))


def smallest_effect(
    scores: Scores,
    method: str,
    baseline: str,
    n_seeds: int | None = None,
    n_levels: int | None = None,
    power: float = POWER,
) -> float | None:
    """In `scores.unit`, of the mean over its games; None if a game has one seed of either.

    Seeds and levels: those of the rows, unless others are given.
    """
    games = []
    for game in scores.games:
        found = _noise(scores, game, method, baseline)
        if found is None:
            return None
        own = min(len(scores.seeds[m][game]) for m in (method, baseline))
        played = scores.returns[method][game].shape[1]
        games.append((found, n_seeds or own, n_levels or played))
    return effect(games, power)


def _noise(scores: Scores, game: str, method: str, baseline: str) -> Noise | None:
    x, y = (scores.normalise(game, scores.returns[m][game]) for m in (method, baseline))
    return noise(x, y)


def smallest_effects(replicates: Replicates, baseline: str = "cql") -> pd.DataFrame:
    """game (and "mean") x seeds x levels: the smallest effect, of a method whose noise is average.

    value: of (x - baseline) / baseline where the baseline's interval is above 0; if it is nowhere,
    as `score`, which is in `scores.unit`. Games with one seed are left out.
    """
    scores, usable = replicates.scores, positive_games(replicates, baseline)
    known = {
        game: found
        for game in scores.games
        if (found := _typical(scores, game, baseline)) is not None
    }
    if not known:
        raise UserError(f"power needs two seeds of {baseline} and of another method in one game.")
    shares = {g: known[g].scaled(1 / _earned(scores, g, baseline)) for g in usable if g in known}
    records = []
    for game in [*known, "mean"]:
        of_game, of_share = (
            list(x.values()) if game == "mean" else [x[game]] if game in x else []
            for x in (known, shares)
        )
        for design in ((n_seeds, n_levels) for n_seeds in SEEDS for n_levels in LEVELS):
            share = effect((x, *design) for x in of_share) if of_share else np.nan
            score = effect((x, *design) for x in of_game)
            records.append((game, *design, share if shares else score, score))
    effects = pd.DataFrame(records, columns=["game", "n_seeds", "n_levels", "value", "score"])
    unit = f"(x - {baseline}) / {baseline}" if shares else scores.unit
    return effects.assign(n_games=len(shares or known), unit=unit, score_unit=scores.unit)


def _earned(scores: Scores, game: str, method: str) -> float:
    """The method's mean return, in what a point is worth in `scores.unit`."""
    nothing, one = scores.normalise(game, np.array([0.0, 1.0]))
    return float(scores.run_means(method, game).mean() * (one - nothing))


def _typical(scores: Scores, game: str, baseline: str) -> Noise | None:
    """The mean noise of all trained methods against the baseline."""
    others = [m for m in scores.methods if m not in (*REFERENCES, baseline)]
    found = [_noise(scores, game, m, baseline) for m in others]
    known = [one for one in found if one is not None]
    return Noise(*np.mean(known, axis=0).tolist()) if known else None
