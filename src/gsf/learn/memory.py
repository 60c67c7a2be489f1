"""What an agent remembers while it acts: of every slot of a vector env, its episode so far."""

import copy
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from gsf.core.errors import UserError
from gsf.learn.context import Past

Array = npt.NDArray[Any]


class Memory:
    """The latest `length` steps of the episode in each of n slots.

    A step is `see`, which `Agent.act` calls, then `after`, which says what came of it.
    """

    def __init__(self, n: int, length: int, z_dim: int, actions: Sequence[int]) -> None:
        """actions: the env's ids, by position."""
        self.slots = np.arange(n)  # those that are spoken of
        self._z = np.zeros((n, length, z_dim), np.float32)
        self._action = np.zeros((n, length), np.int64)  # by position
        self._received = np.zeros((n, length), np.float32)  # in the episode, before each step
        self._now = np.zeros(n, np.int64)  # where the present step is
        self._total = np.zeros(n)
        self._position = np.full(max(actions) + 1, -1)
        self._position[list(actions)] = np.arange(len(actions))

    def in_slots(self, slots: Array) -> Self:
        """The same memory, spoken of some slots alone; a slot may be there twice to be padded."""
        some = copy.copy(self)
        some.slots = self.slots[slots]
        return some

    def see(self, z: Array) -> Past:
        """z [n,z_dim] of what the slots see now, behind what they remember."""
        if len(z) != len(self.slots):
            raise UserError(f"the memory is of {len(self.slots)} slots, not of {len(z)} images.")
        slots, now = self.slots, self._now[self.slots]
        self._z[slots, now], self._received[slots, now] = z, self._total[slots]
        parts = (self._z, self._action, self._received, self._now)
        return Past(*(torch.from_numpy(x[slots]) for x in parts))

    def after(self, action: Array, reward: Array, ended: Array) -> None:
        """What the slots did, as the env calls it, what they got, and where an episode is over."""
        slots, now = self.slots, self._now[self.slots]
        position = self._position[np.asarray(action)]
        if (position < 0).any():
            raise UserError("a slot did what is none of the agent's actions.")
        self._action[slots, now] = position
        self._total[slots] += reward
        length = self._z.shape[1]
        full = slots[now == length - 1]
        for x in (self._z, self._action, self._received):
            x[full, :-1] = x[full, 1:]
        self._now[slots] = np.minimum(now + 1, length - 1)
        over = slots[np.asarray(ended, bool)]
        self._now[over], self._total[over] = 0, 0.0
