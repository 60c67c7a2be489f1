"""With what probability the logged actions were taken: told by the data, or by a recorded policy."""

from typing import Any

import numpy as np
import numpy.typing as npt

from gsf.core.errors import UserError
from gsf.data.dataset import Dataset

Array = npt.NDArray[Any]


def logged_probabilities(dataset: Dataset, policy: str | None, device: str) -> Array | None:
    """mu(a|o) of every row, float64 [n]; None where nobody knows it."""
    return None
