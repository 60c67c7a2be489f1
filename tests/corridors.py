"""Corridors to walk along, to the end that is lit."""

import gymnasium
import numpy as np

from gsf.suites import Game, Suite, turns

LENGTH, MOST_STEPS = 12, 30


class Corridors(gymnasium.vector.VectorEnv):
    def __init__(self, game, levels, n_envs, seed, *, difficulty=None, threads=None, copy=True):
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
        self.num_envs = n_envs
        self._turns = turns(levels, n_envs, seed)  # the levels of each slot
        self._walls = np.zeros((n_envs, LENGTH, LENGTH, 3), np.uint8)
        self._place, self._goal, self._t = np.zeros((3, n_envs), np.int64)

    def reset(self, *, seed=None, options=None):
        self._begin(range(self.num_envs))
        return self._obs(), {}

    def step(self, actions):
        self._place = (self._place + np.array([-1, 0, 1])[actions]).clip(0, LENGTH - 1)
        self._t += 1
        won = self._place == self._goal
        truncated = ~won & (self._t == MOST_STEPS)
        self._begin(np.flatnonzero(won | truncated))
        return self._obs(), won.astype(np.float32), won, truncated, {"completed": won}

    def _begin(self, slots):
        for slot in slots:
            rng = np.random.default_rng(next(self._turns[slot]))
            self._walls[slot] = rng.integers(0, 100, self._walls[slot].shape)
            self._place[slot], self._t[slot] = rng.integers(2, LENGTH - 2), 0
            self._goal[slot] = rng.choice([0, LENGTH - 1])

    def _obs(self):
        obs, slots = self._walls.copy(), np.arange(self.num_envs)
        obs[slots, :, self._goal] = 255
        obs[slots, 6, self._place] = 200
        return obs


corridors = Suite(
    name="corridors",
    games={"corridor": Game((LENGTH, LENGTH, 3), ("left", "stay", "right"), noop=1)},
    make_env=Corridors,
)
