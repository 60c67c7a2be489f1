"""Random play of a few steps, recorded."""

import numpy as np

from gsf.data.recording import BLOCK, Recording
from gsf.data.replay import Recorder, play_blocks
from gsf.suites.procgen import make_env


def record(game="coinrun", n_steps=BLOCK + 76, n_envs=3, seed=4, levels=range(20)):
    env = make_env(game, levels, n_envs, seed, copy=False)
    rng = np.random.default_rng(seed)
    recorder = Recorder(n_envs)
    for block in play_blocks(env, lambda t, obs: rng.integers(0, 15, n_envs), n_steps):
        recorder.add(block)
    take = recorder.finish(env, policy={"algorithm": "random"}, epsilon={"rule": "random"})
    return Recording(game, "easy", (take,))
