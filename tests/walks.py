"""A Gymnasium environment in a user's file: walk to the lit end. And ones that are wrong."""

import gymnasium
import numpy as np

LENGTH, MOST_STEPS = 12, 30


class Walk(gymnasium.Env):
    """Everything is drawn from the seed of `reset`."""

    action_space = gymnasium.spaces.Discrete(3)
    observation_space = gymnasium.spaces.Box(0, 255, (LENGTH, LENGTH, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.walls = self.np_random.integers(0, 100, (LENGTH, LENGTH, 3), np.uint8)
        self.place, self.t = int(self.np_random.integers(2, LENGTH - 2)), 0
        self.goal = int(self.np_random.choice([0, LENGTH - 1]))
        return self.look(), {}

    def step(self, action):
        self.place = min(max(self.place + int(action) - 1, 0), LENGTH - 1)
        self.t += 1
        won = self.place == self.goal
        out = not won and self.t == MOST_STEPS
        return self.look(), float(won), won, out, {"success": won}

    def look(self):
        obs = self.walls.copy()
        obs[:, self.goal] = 255
        obs[6, self.place] = 200
        return obs


class Changed(Walk):
    def __init__(self, **changes):
        vars(self).update(changes)


def make(level):
    return Walk()


def continuous(level):
    return Changed(action_space=gymnasium.spaces.Box(-1, 1, (2,)))


def with_floats(level):
    env = Changed()
    env.look = lambda: Walk.look(env) / 255
    return env


def small(level):
    env = Changed()
    env.look = lambda: Walk.look(env)[:8, :8]
    return env


def five_actions(level):
    return Changed(action_space=gymnasium.spaces.Discrete(5))


def grey(level):
    env = Changed()
    env.look = lambda: Walk.look(env)[..., 0]
    return env


def raises(level):
    raise FileNotFoundError("no map")


def breaks(level):
    env = Changed()
    env.step = lambda action: 1 / (env.t - 3) if env.t == 3 else Walk.step(env, action)
    return env


def grows(level):
    return Changed(observation_space=None) if level < 1_000 else small(level)


def nothing(level):
    return None


NOISE = np.random.default_rng(0)  # shared: no two plays are the same


def noisy(level):
    env = Changed()
    env.look = lambda: Walk.look(env) // 2 + NOISE.integers(0, 9, (LENGTH, LENGTH, 3), np.uint8)
    return env


class Late(Walk):
    """As `Walk`, until it was looked at 2,600 times: a check of the first steps finds nothing."""

    looks = 0

    def look(self):
        Late.looks += 1
        return super().look() // (1 if Late.looks < 2_600 else 1 + Late.looks % 3)


def late(level):
    return Late()
