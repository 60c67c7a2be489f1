"""The paper's Theorem 2 on a chain: visits per label."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsf.equations import quantile_labels

Array = NDArray[Any]


def visits_per_label(
    n_states: int, n_steps: int, gamma: float, n_bins: int, rng: np.random.Generator
) -> dict[str, Array]:
    """Theorem 2 on a chain: visits and label of each state, and mean visits per label.

    A walk that steps right with probability 1/4, left with 3/4, starts at the left end; G(o) is
    the successor representation of the counts, P~(o,o') = n(o,o') / (n(o) + 1), ranked by its L1
    norm. "visits" [S], "norm" [S], "label" [S], "mean_visits" [K] (NaN for an empty bin).
    """
    steps = np.where(rng.random(n_steps) < 0.25, 1, -1)
    counts = np.zeros((n_states, n_states))
    state = 0
    for step in steps:
        following = min(max(state + step, 0), n_states - 1)
        counts[state, following] += 1
        state = following
    visits = counts.sum(1)
    transition = counts / (visits + 1)[:, None]
    norm = np.linalg.inv(np.eye(n_states) - gamma * transition).sum(1)
    found = quantile_labels(norm, np.zeros(n_states, np.int64), n_bins)
    sizes = np.bincount(found[found >= 0], minlength=n_bins)
    sums = np.bincount(found[found >= 0], visits[found >= 0], minlength=n_bins)
    mean_visits = np.where(sizes > 0, sums / np.maximum(sizes, 1), np.nan)
    return {"visits": visits, "norm": norm, "label": found, "mean_visits": mean_visits}
