"""Labels to compare with: of true values, which nothing beats, and of chance, which teach nothing.

`oracle`: the suite's own values of each state, where it knows them.  `noise`: every transition
gets a number by chance.  `permuted`: the fit's values, dealt out anew within each level, so that
every level keeps its labels and each is of another transition.
"""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gsf.core.errors import UserError
from gsf.data.dataset import Dataset
from gsf.suites import all_suites, find_game, known_facts

Array = npt.NDArray[Any]
Source = Literal["values", "oracle", "noise", "permuted"]
BY_CHANCE: tuple[Source, ...] = ("noise", "permuted")


def check_source(source: Source, game: str) -> None:
    """One sentence if there can be no such labels of a game."""
    knows = known_facts(game) is not None and find_game(game)[0].true_values is not None
    if source == "oracle" and not knows:
        knowing = [suite.name for suite in all_suites() if suite.true_values]
        raise UserError(
            f"nobody knows the true values of {game}, so it has no oracle labels; those of "
            f"{', '.join(knowing)} are known, and noise and permuted are for every game."
        )


def values_of(source: Source, values: Array, dataset: Dataset, gamma: float, seed: int) -> Array:
    """What labels are made of instead of a fit's `values` [n] or [n,d]; shaped like them."""
    rng = np.random.default_rng(seed)
    if source == "noise":
        return rng.standard_normal(values.shape, np.float32)
    if source == "permuted":
        return _permuted(values, dataset.level, rng)
    return _true_values(dataset, gamma) if source == "oracle" else values


def _permuted(values: Array, level: Array, rng: np.random.Generator) -> Array:
    """Within each level the known ones change places; what is unknown stays so."""
    known = ~np.isnan(values.reshape(len(values), -1)).any(1)
    dealt = np.array(values)
    for number in np.unique(level):
        rows = np.flatnonzero(known & (level == number))
        dealt[rows] = values[rng.permutation(rows)]
    return dealt


def _true_values(dataset: Dataset, gamma: float) -> Array:
    suite, game = find_game(dataset.name)
    ids = np.array(dataset.manifest.get("actions", range(dataset.n_actions)))
    assert suite.true_values is not None
    found: Array = suite.true_values(
        game,
        np.array(dataset.levels)[dataset.level],
        np.asarray(dataset.t),
        ids[dataset.action],
        np.asarray(dataset.terminated),
        gamma,
    )
    return found.astype(np.float32)
