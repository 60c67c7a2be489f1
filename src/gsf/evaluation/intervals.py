"""The bootstrap behind every interval: draw again with replacement, take the middle 95 %."""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
REPLICATES = 2000


def redraw(n: int, rng: np.random.Generator, replicates: int = REPLICATES) -> Array:
    """Share of each of n things in every replicate, [replicates, n]: weights of a mean."""
    return rng.multinomial(n, np.full(n, 1 / n), size=replicates) / n


def estimate(value: Any, draws: Array) -> dict[str, float]:
    """A number with its 95 % interval, from its replicates [n]."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return {"value": float(value), "low": float(low), "high": float(high)}


def intervals_over(n_seeds: Collection[int]) -> str:
    """What intervals are over, in words. A single seed cannot be redrawn."""
    if max(n_seeds, default=1) == 1:
        return "95 % intervals over levels"
    if min(n_seeds) == 1:
        return "95 % intervals over levels, and over seeds where there are several"
    return "95 % intervals over seeds and levels"


def mean_over_levels(x: Any, level: Any) -> dict[str, float]:
    """Mean of x [n]; levels are redrawn whole, with all that was measured on them."""
    x = np.asarray(x, float)
    levels, which = np.unique(level, return_inverse=True)
    total, count = (np.bincount(which, w, len(levels)) for w in (x, np.ones_like(x)))
    weights = redraw(len(levels), np.random.default_rng(0))
    return estimate(x.mean(), (weights @ total) / (weights @ count))


def redraw_within(group: Any, rng: np.random.Generator, replicates: int = REPLICATES) -> Array:
    """How often each of n things is in each replicate, [replicates, n]: groups are redrawn, then
    the things in each group drawn. With one group, only the things are redrawn."""
    groups, which = np.unique(group, return_inverse=True)
    drawn = np.round(redraw(len(groups), rng, replicates) * len(groups)).astype(np.int64)
    counts = np.empty((replicates, len(which)))
    for k in range(len(groups)):
        mine = np.flatnonzero(which == k)
        n = len(mine)
        counts[:, mine] = rng.multinomial(drawn[:, k] * n, np.full(n, 1 / n))
    return counts


def estimate_sums(
    statistic: Callable[[Array], Array], sums: Array, counts: Array
) -> dict[str, float]:
    """A statistic of sums over n things, [..., k] -> [...], with its interval.

    sums: what each thing adds, [n, k]; counts: of `redraw_within`. Replicates in which it has no
    value do not count.
    """
    draws = statistic(counts @ sums)
    draws = draws[np.isfinite(draws)]
    return estimate(statistic(sums.sum(0)), draws if len(draws) else np.array([np.nan]))
