"""Top BC: behaviour cloning of the best episodes of each level, a tenth of them by default.

As BC (bc.py) on fewer data: "10 % BC" of Chen et al. (2021), "Decision Transformer". Levels differ
in what can be earned, so episodes are compared within their level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt

from gsf.core.options import above
from gsf.learn.bases import Spec
from gsf.learn.bases.bc import BC

if TYPE_CHECKING:
    from gsf.data.dataset import Batch, Dataset


def best_rows(dataset: Dataset, share: float) -> npt.NDArray[np.int64]:
    """Rows of the best `share` of every level's episodes, by return, at least one of each level."""
    bounds = np.array(dataset.episodes())  # [episodes, 2]
    returns = np.add.reduceat(dataset.reward.astype(np.float64), bounds[:, 0])
    level = dataset.level[bounds[:, 0]]
    chosen = []
    for one in np.unique(level):
        mine = np.flatnonzero(level == one)
        order = np.argsort(-returns[mine], kind="stable")
        chosen.append(bounds[mine[order[: max(1, round(share * len(mine)))]]])
    return np.concatenate([np.arange(*x) for x in np.concatenate(chosen)])


class TopBC(BC):
    name = "top_bc"
    colour = "#837b8b"

    @dataclass(frozen=True)
    class Config:
        share: Annotated[float, above(0, 1)] = 0.1
        """Of each level's episodes, by return; 1 is BC."""

    def __init__(self, config: Any, spec: Spec) -> None:
        super().__init__(config, spec)
        self.config = config

    def prepare(self, dataset: Dataset) -> None:
        self._rows = best_rows(dataset, self.config.share)

    def sample(
        self, dataset: Dataset, n: int, rng: np.random.Generator, n_levels: int | None
    ) -> Batch:
        rows = self._rows
        if n_levels is not None:
            levels = rng.permutation(np.unique(dataset.level[rows]))[:n_levels]
            rows = rows[np.isin(dataset.level[rows], levels)]
        return dataset.gather(rows[rng.integers(len(rows), size=n)])
