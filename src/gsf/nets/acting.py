"""Choosing actions, without torch: how sharp a policy is made, and the one place where it is drawn.

A temperature divides what a policy is the softmax of: 1 leaves it as it was learnt, 0 is the limit
in which the best action is all that is left.
"""

from collections.abc import Iterable
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
TEMPERATURES = (1.0, 0.7, 0.5, 0.35, 0.25)  # that validation levels choose from
CHOSEN = "temperature.json"  # beside a run: which one, by step
# greedy: the best action; sampled: drawn at the temperature that goes with the run, sampled-T at T.
Mode = Literal[
    "greedy",
    "sampled",
    "sampled-1",
    "sampled-0.7",
    "sampled-0.5",
    "sampled-0.35",
    "sampled-0.25",
]
MODES: tuple[Mode, ...] = get_args(Mode)


def explain(modes: Iterable[Any]) -> str:
    """What these modes are, in words."""
    own = {"greedy": "the best action", "sampled": "drawn at the temperature chosen for the run"}
    drawn = {mode: f"drawn at temperature {mode.removeprefix('sampled-')}" for mode in MODES}
    asked = set(modes)
    return "; ".join(f"{mode}: {(drawn | own)[mode]}" for mode in MODES if mode in asked)


def mode_at(temperature: float) -> Mode:
    """The mode of a temperature that may be chosen."""
    return cast(Mode, f"sampled-{temperature:g}")


def temperature_of(mode: Mode, chosen: float) -> float:
    """What a mode comes to for an agent with this temperature."""
    if mode not in MODES:
        raise ValueError(f"mode is one of {', '.join(MODES)}, not {mode!r}")
    own = {"greedy": 0.0, "sampled": chosen}
    return own[mode] if mode in own else float(mode.removeprefix("sampled-"))


def tempered(scores: Array, temperature: float | Array) -> Array:
    """softmax(scores / temperature); 0: all on the best, the first of equals.

    [...,A], one temperature or [...] of them -> float64 [...,A].
    """
    scores = np.asarray(scores, np.float64)
    t = np.broadcast_to(temperature, scores.shape[:-1])[..., None]
    shifted = scores - scores.max(-1, keepdims=True)
    weights = np.exp(np.divide(shifted, t, out=np.zeros_like(shifted), where=t > 0))
    best = np.arange(scores.shape[-1]) == scores.argmax(-1)[..., None]
    weights = np.where(t > 0, weights, best)
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def entropy(probabilities: Array) -> Array:
    """In nats.  [...,A] -> [...]."""
    p = np.asarray(probabilities, np.float64)
    return np.asarray(-(p * np.log(np.where(p > 0, p, 1.0))).sum(-1))


def sample(probabilities: Array, uniform: npt.ArrayLike) -> Array:
    """The inverse CDF at `uniform` in [0, 1).  [...,A], [...] -> int64 [...]."""
    below = probabilities.cumsum(-1) <= np.asarray(uniform)[..., None]
    last = probabilities.shape[-1] - 1  # probabilities may sum to a little less than 1
    return np.asarray(np.minimum(below.sum(-1), last))[()]
