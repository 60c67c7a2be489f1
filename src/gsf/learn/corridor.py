"""A dataset that is learnt in seconds, for `gsf check`: corridors where the action can be seen."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gsf.core.files import digest_file
from gsf.core.sealed import write_json
from gsf.core.stage import MANIFEST, read_manifest
from gsf.data.dataset import Dataset
from gsf.data.format import DatasetWriter
from gsf.gvf.fit import FitConfig, fit
from gsf.gvf.label import LabelConfig, label

OBS_SHAPE = (12, 12, 3)
N_ACTIONS = 3
LENGTH = 12


def write_dataset(
    path: Path, n_levels: int = 4, n_episodes: int = 16, seed: int = 0, first_level: int = 100
) -> Dataset:
    """Level i has a background of its own; a bright column walks right, its height is the action.

    Actions come in turn, two of each, from a random place of the cycle on.
    Reward 1 + i at the end of an episode and 0.1 at every fourth step. Of four episodes one is
    truncated and one cut; these end without a next observation, as terminated ones do.
    """
    rng = np.random.default_rng(seed)
    columns: dict[str, list[npt.NDArray[Any]]] = {}
    writer = DatasetWriter(
        path,
        name="corridor",
        obs_shape=OBS_SHAPE,
        n_actions=N_ACTIONS,
        levels=list(range(first_level, first_level + n_levels)),
        region_frames=[LENGTH] * n_episodes,
    )
    with writer:
        for episode in range(n_episodes):
            level, t = episode % n_levels, np.arange(LENGTH)
            action = (t + rng.integers(2 * N_ACTIONS)) // 2 % N_ACTIONS
            frames = np.full((LENGTH, *OBS_SHAPE), 20 * level, np.uint8)
            for i in t:
                frames[i, : 4 * (action[i] + 1), i] = 255
            frames[..., 2] = rng.integers(0, 40, frames.shape[:3])
            writer.append(episode, frames)
            end = (t == LENGTH - 1).astype(bool)
            kind = (episode // n_levels) % 4
            row = {
                "action": action,
                "reward": 0.1 * (t % 4 == 3) + (1.0 + level) * end,
                "level": np.full(LENGTH, level),
                "episode": np.full(LENGTH, episode),
                "t": t,
                "terminated": end & (kind < 2),
                "truncated": end & (kind == 2),
                "has_next": ~end,
                "frame": episode * LENGTH + t,
            }
            for name, values in row.items():
                columns.setdefault(name, []).append(values)
        joined = {name: np.concatenate(parts) for name, parts in columns.items()}
        writer.finish(joined)
    return Dataset.open(path)


def write_labels(path: Path, dataset: Dataset, cumulant: str = "reward", n_bins: int = 3) -> Path:
    """What `gsf fit` and `gsf label` make of it, and a made-up G of every action."""
    gvf = path.with_name(f"{path.name}-gvf")
    fit(FitConfig(dataset.path, gvf, cumulant=cumulant, gamma=0.8, diagnose=False))
    values = np.load(gvf / "values.npy")
    if values.ndim == 1:
        steps = np.arange(N_ACTIONS, dtype=np.float32)
        np.save(gvf / "action_values.npy", values[:, None] + steps * dataset.t[:, None])
        manifest = read_manifest(gvf, "gvf")
        added = {"action_values.npy": digest_file(gvf / "action_values.npy")}
        write_json(gvf / MANIFEST, {**manifest, "files": manifest["files"] | added})
    return label(LabelConfig(gvf, path, n_bins=n_bins))
