"""GVFs without a network: the discounted sum along the logged trajectory, NaN near a cut."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from gsf.equations import gvf_return

Array = npt.NDArray[Any]
MC_ROWS = 1 << 18  # whole episodes are added up in blocks of about this size


def cut_horizon(gamma: float) -> float:
    """ceil(ln .05 / ln gamma): so many steps hold 95 % of the discounted future's weight."""
    if gamma in (0, 1):
        return gamma * math.inf if gamma else 0
    return math.ceil(math.log(0.05) / math.log(gamma))


def monte_carlo(
    c: Array, episode: Array, terminated: Array, gamma: float, at_cut: Array | None = None
) -> Array:
    """G along whole logged episodes, float32 [n,d]; c [n,d], episode [n], terminated [n].

    An episode whose last row is not terminated was cut: its rows with less than `cut_horizon`
    steps to go are NaN, unless `at_cut` [n,d] holds a value (not NaN) to take for the cut's row.
    """
    last = np.append(episode[1:] != episode[:-1], True) if len(episode) else np.zeros(0, bool)
    cut = last & ~np.asarray(terminated)
    if at_cut is not None:
        bootstrapped = cut & ~np.isnan(at_cut).any(1)
        c = np.where(bootstrapped[:, None], at_cut, c)
        cut &= ~bootstrapped
    stops = np.flatnonzero(last) + 1
    value = np.empty(c.shape, np.float32)
    start = 0
    while start < len(c):  # as many whole episodes as fit, at least one
        whole = stops[(stops > start) & (stops <= start + MC_ROWS)]
        stop = int(whole[-1] if len(whole) else stops[stops > start][0])
        value[start:stop] = gvf_return(c[start:stop], gamma, last[start:stop])
        start = stop
    ends = np.repeat(stops, np.diff(stops, prepend=0))  # row after the episode's last
    steps_left = ends - np.arange(len(c))
    value[cut[ends - 1] & (steps_left < cut_horizon(gamma))] = np.nan
    return value
