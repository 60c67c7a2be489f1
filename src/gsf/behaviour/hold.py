"""Actions that are held: several steps of a game are one step to whoever learns in it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsf.suites import ReplayableEnv

Array = NDArray[Any]


def held(env: ReplayableEnv, steps: int, noop: int) -> ReplayableEnv:
    """The env in which every action is held for so many steps."""
    return Held(env, steps, noop) if steps > 1 else env


class Held:
    """The reward of a step is that of all it holds.

    Where an episode ends on the way, the next one begins, and its slot waits for the others; what
    it earns in the meantime counts in the next step.
    """

    def __init__(self, env: ReplayableEnv, steps: int, noop: int) -> None:
        self._env, self._steps, self._noop = env, steps, noop
        self.num_envs, self.seed, self.levels = env.num_envs, env.seed, env.levels
        self._owed = np.zeros(env.num_envs, np.float32)

    def reset(self) -> tuple[Array, dict[str, Any]]:
        self._owed[:] = 0
        return self._env.reset()

    def observe(self) -> tuple[Array, Array]:
        return self._env.observe()

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        reward, self._owed = self._owed, np.zeros_like(self._owed)
        ended = {name: np.zeros(self.num_envs, bool) for name in ("terminated", "truncated")}
        for _ in range(self._steps):
            over = ended["terminated"] | ended["truncated"]
            obs, earned, terminated, truncated, info = self._env.step(
                np.where(over, self._noop, actions)
            )
            reward += np.where(over, 0, earned)
            self._owed += np.where(over, earned, 0)
            ended["terminated"] |= terminated & ~over
            ended["truncated"] |= truncated & ~over
        return obs, reward, ended["terminated"], ended["truncated"], {"level": info["level"]}

    def latent_state(self) -> list[bytes]:
        return self._env.latent_state()

    def state_dict(self) -> dict[str, Any]:
        return {"env": self._env.state_dict(), "owed": self._owed.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._env.load_state_dict(state["env"])
        self._owed[:] = state["owed"]

    def close(self) -> None:
        self._env.close()
