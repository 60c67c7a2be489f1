"""Datasets of chains: states are colours, every value is known in closed form."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from gsf.data.dataset import Dataset
from gsf.data.format import DatasetWriter

LENGTH = 5
OBS_SHAPE = (8, 8, 3)


def write_chain(
    path: Path,
    scales: Sequence[float] = (1.0, 1000.0),
    *,
    n_episodes: int = 8,
    length: int = LENGTH,
    n_actions: int = 2,
    reward: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
    alternate: bool = False,
    end: str = "terminated",
    final_frame: bool = False,
    levels: Sequence[int] | None = None,
    seed: int = 0,
) -> Dataset:
    """Level i: episodes through states 0..length-1, reward(state, action) * scales[i] in each.

    A scale of None declares a level without transitions. `alternate`: each step's action is
    the one after the last step's; which comes first, in turn. `end`: terminated, truncated or cut.
    """
    rng = np.random.default_rng(seed)
    colour = np.linspace(0, 255, length + 1).astype(np.uint8)
    palette = np.stack([colour, colour[::-1], np.roll(colour, 2)], 1)
    frames_per_episode = length + final_frame
    full = [i for i, scale in enumerate(scales) if scale is not None]
    n_total = len(full) * n_episodes
    columns = {name: [] for name in ("action", "reward", "level", "episode", "t", "frame")}
    writer = DatasetWriter(
        path,
        name="chain",
        obs_shape=OBS_SHAPE,
        n_actions=n_actions,
        levels=list(levels or range(len(scales))),
        region_frames=[frames_per_episode] * n_total,
    )
    with writer:
        for episode in range(n_total):
            i, t = full[episode % len(full)], np.arange(length)
            action = rng.integers(n_actions, size=length)
            if alternate:
                action = (episode // len(full) + t) % n_actions
            frames = np.broadcast_to(
                palette[:frames_per_episode, None, None], (frames_per_episode, *OBS_SHAPE)
            )
            writer.append(episode, np.ascontiguousarray(frames))
            earned = (t + 1.0) if reward is None else reward(t, action)
            for name, value in (
                ("action", action),
                ("reward", earned * scales[i]),
                ("level", np.full(length, i)),
                ("episode", np.full(length, episode)),
                ("t", t),
                ("frame", episode * frames_per_episode + t),
            ):
                columns[name].append(value)
        joined = {name: np.concatenate(parts) for name, parts in columns.items()}
        last = joined["t"] == length - 1
        none = np.zeros_like(last)
        writer.finish(
            {
                **joined,
                "terminated": last if end == "terminated" else none,
                "truncated": last if end == "truncated" else none,
                "has_next": ~last | final_frame,
            },
        )
    return Dataset.open(path)


def chain_values(gamma: float, length: int = LENGTH) -> np.ndarray:
    """V(s) = sum_{k>=s} gamma^(k-s) (k+1), for the default reward and scale 1."""
    return np.array(
        [sum(gamma ** (k - s) * (k + 1) for k in range(s, length)) for s in range(length)]
    )
