"""Choosing actions, without torch: the one place where they are drawn."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Mode = Literal["greedy", "sampled"]


def sample(probabilities: Array, uniform: npt.ArrayLike) -> Array:
    """The inverse CDF at `uniform` in [0, 1).  [...,A], [...] -> int64 [...]."""
    below = probabilities.cumsum(-1) <= np.asarray(uniform)[..., None]
    last = probabilities.shape[-1] - 1  # probabilities may sum to a little less than 1
    return np.asarray(np.minimum(below.sum(-1), last))[()]
