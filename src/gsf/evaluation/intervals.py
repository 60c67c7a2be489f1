"""The bootstrap behind every interval: draw again with replacement, take the middle 95 %."""

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


def mean_over_levels(x: Any, level: Any) -> dict[str, float]:
    """Mean of x [n]; levels are redrawn whole, with all that was measured on them."""
    x = np.asarray(x, float)
    levels, place = np.unique(level, return_inverse=True)
    total, count = (np.bincount(place, w, len(levels)) for w in (x, np.ones_like(x)))
    weights = redraw(len(levels), np.random.default_rng(0))
    return estimate(x.mean(), (weights @ total) / (weights @ count))
