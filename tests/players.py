"""Agents and runs that are quick to make, for evaluation and play."""

from pathlib import Path

import numpy as np

from gsf.data.dataset import Dataset
from gsf.data.format import DatasetWriter
from gsf.learn.train import TrainConfig, train

LEVELS = (4, 2, 9, 7)


class HashAgent:
    """Acts by a hash of the image; drawn, by one of four hashes of it. No rounding anywhere."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def policy(self, obs, temperature):
        self.batches.append(len(obs))
        seen = obs.reshape(len(obs), -1).astype(np.int64)
        best = seen @ (np.arange(seen.shape[1]) % 31 + 1)
        policy = np.zeros((len(obs), 15))
        for at in range(4):
            policy[np.arange(len(obs)), (best + 4 * at) % 15] += 0.25
        greedy = np.asarray(temperature)[:, None] == 0
        return np.where(greedy, np.eye(15)[best % 15], policy)


def write_dataset(
    path: Path, game: str = "starpilot", obs_shape=(64, 64, 3), **facts: object
) -> Dataset:
    """Noise that claims to be a game's, on four levels."""
    n, n_actions = 16, len(facts.get("actions") or range(15))
    rng, rows = np.random.default_rng(0), np.arange(n)
    end = rows % 4 == 3
    columns = {
        "action": rng.integers(0, n_actions, n),
        "reward": rng.normal(size=n),
        "level": rows // 4,
        "episode": rows // 4,
        "t": rows % 4,
        "terminated": end,
        "truncated": np.zeros(n, bool),
        "has_next": ~end,
        "frame": rows,
    }
    shape = {"name": game, "obs_shape": obs_shape, "n_actions": n_actions, "levels": LEVELS}
    with DatasetWriter(path, **shape, region_frames=[n]) as writer:
        writer.append(0, rng.integers(0, 256, (n, *obs_shape)).astype(np.uint8))
        writer.finish(columns, difficulty="easy", **facts)
    return Dataset.open(path)


def train_run(dataset: Dataset, out: Path, seed: int = 3, **options) -> Path:
    """Two steps of CQL, both kept."""
    small = {"encoder": "patches", "grad_steps": 2, "batch": 4, "keep": 2, "device": "cpu"}
    return train(TrainConfig(dataset=dataset.path, out=out, seed=seed, **(small | options)))
