"""Values along logged trajectories (mc): sums to an episode's end, or to where it was cut.

What comes after a cut is left out, or a td fit says what it is worth (--bootstrap).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from gsf.core.errors import UserError
from gsf.core.registry import Found
from gsf.core.stage import read_manifest
from gsf.data.dataset import Dataset
from gsf.gvf import td
from gsf.gvf.cumulants import Cumulant
from gsf.gvf.levels import check_known_levels
from gsf.gvf.monte_carlo import monte_carlo
from gsf.gvf.options import FitConfig

Array = npt.NDArray[Any]


def along_trajectories(
    dataset: Dataset, found: Found[Cumulant], c: Array, rows: Array, config: FitConfig
) -> Array:
    episode, terminated = dataset.episode[rows], dataset.terminated[rows]
    at_cut = None
    if config.bootstrap:
        last = np.append(episode[1:] != episode[:-1], True)
        at_cut = np.zeros_like(c)
        cut = np.flatnonzero(last & ~terminated)
        at_cut[cut] = _bootstrap(dataset, found, rows[cut], config, c.shape[1])
    return monte_carlo(c, episode, terminated, config.gamma, at_cut)


def _bootstrap(
    dataset: Dataset, found: Found[Cumulant], rows: Array, config: FitConfig, d: int
) -> Array:
    """Values of a td fit at the given rows, [n,d]."""
    assert config.bootstrap is not None
    manifest = read_manifest(config.bootstrap, "gvf")
    other = manifest["config"]
    made = manifest["cumulant"], manifest["inputs"].get("cumulant"), other["gamma"], manifest["d"]
    same = made == (found.name, found.code, config.gamma, d)
    same_seed = not found.value.random or other["seed"] == config.seed
    if not (other["estimator"] == "td" and same and same_seed):
        raise UserError(
            f"--bootstrap {config.bootstrap} must be a td fit of the same cumulant, gamma and, if "
            "it has random parts, seed."
        )
    check_known_levels(dataset, config.bootstrap, manifest)
    chunk_of = {level: i for i, level in enumerate(manifest["levels"])}
    level = np.array([chunk_of[x] for x in dataset.levels])[dataset.level[rows]]
    value = td.load_learner(config.bootstrap, config.device).values(dataset, rows, level)
    return logged_slot(value, dataset.action[rows])


def logged_slot(value: Array, action: Array) -> Array:
    """[n,slots,d] -> [n,d]: of SARSA's actions the logged one."""
    slot = action if value.shape[1] > 1 else np.zeros(len(action), np.int64)
    chosen: Array = value[np.arange(len(value)), slot]
    return chosen
