"""Random play of a few steps, recorded."""

from pathlib import Path

import numpy as np

from gsf.behaviour.collect import CollectConfig, collect
from gsf.data.recording import BLOCK, Recording
from gsf.data.replay import Recorder, play_blocks
from gsf.suites import make_env


def record(game="coinrun", n_steps=BLOCK + 76, n_envs=3, seed=4, levels=range(20)):
    env = make_env(game, levels, n_envs, seed, copy=False)
    rng = np.random.default_rng(seed)
    recorder = Recorder(n_envs)
    for block in play_blocks(env, lambda t, obs: rng.integers(0, 15, n_envs), n_steps):
        recorder.add(block)
    take = recorder.finish(env, policy={"algorithm": "random"}, epsilon={"rule": "random"})
    return Recording(game, "easy", (take,))


def record_grid(home: Path, game="grid5_looks", n_levels=6, transitions=800) -> str:
    """The path of a recording of good play on a grid."""
    played = {"game": game, "n_levels": n_levels, "transitions": transitions}
    config = CollectConfig(**played, player="best", skill=0.7, n_envs=4, out=home / "collect")
    return str(collect(config))


def save_short_episodes(home: Path, name="play", levels=range(4)) -> str:
    """The path of a recording whose episodes are short enough to sweep over."""
    path = home / f"{name}.gsfrec"
    record("starpilot", n_steps=400, n_envs=8, levels=levels).save(path)
    return str(path)
