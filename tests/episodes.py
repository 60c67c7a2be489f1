"""Datasets of random frames whose episodes end in every way there is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gsf.data.dataset import Dataset
from gsf.data.format import DatasetWriter

ENDS = ("terminated", "truncated", "cut", "terminated, final frame", "cut, final frame")


def write_episodes(
    path: Path,
    lengths: Sequence[int] = (5, 3, 1, 4, 6, 2, 7, 3),
    levels: Sequence[Any] = (10, 11, 12, 13),
    obs_shape: tuple[int, int, int] = (16, 16, 3),
    n_actions: int = 5,
    seed: int = 0,
) -> Dataset:
    """Episode k has lengths[k] steps, belongs to levels[k % len(levels)] and ends as ENDS[k % 5];
    episodes of levels 1, 3, ... join the record at t = 2."""
    rng = np.random.default_rng(seed)
    frames = [n + ("final frame" in ENDS[k % 5]) for k, n in enumerate(lengths)]
    columns: dict[str, list[np.ndarray]] = {}
    with DatasetWriter(
        path,
        name="random",
        obs_shape=obs_shape,
        n_actions=n_actions,
        levels=levels,
        region_frames=frames,
    ) as writer:
        for k, n in enumerate(lengths):
            writer.append(k, rng.integers(0, 256, (frames[k], *obs_shape), dtype=np.uint8))
            step, level = np.arange(n), k % len(levels)
            last = step == n - 1
            episode = {
                "action": rng.integers(n_actions, size=n),
                "reward": rng.normal(size=n),
                "level": np.full(n, level),
                "episode": np.full(n, k),
                "t": step + 2 * (level % 2),
                "terminated": last & ("terminated" in ENDS[k % 5]),
                "truncated": last & ("truncated" in ENDS[k % 5]),
                "has_next": step + 1 < frames[k],
                "frame": step + sum(frames[:k]),
            }
            for name, values in episode.items():
                columns.setdefault(name, []).append(values)
        joined = {name: np.concatenate(parts) for name, parts in columns.items()}
        writer.finish(joined)
    return Dataset.open(path)
