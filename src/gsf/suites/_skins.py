"""Procgen's own pictures of one state: which background, which of two ways to draw things.

A state's bytes say how it is drawn (suites/_state.py). What a game allows was found by
tests/scan_skins.py: each value in a forked child (a wrong one aborts it), and 80 random steps that
brought the same rewards, ends and levels.
"""

import functools
import struct
from typing import Any, NamedTuple

import numpy as np

from gsf.core.errors import UserError
from gsf.suites import Array, Suite
from gsf.suites._state import places

# How many pictures the background of each game can be.
N_BACKGROUNDS = {
    "bigfish": 7,
    "bossfight": 13,
    "caveflyer": 13,
    "chaser": 1,
    "climber": 62,
    "coinrun": 62,
    "dodgeball": 9,
    "fruitbot": 9,
    "heist": 9,
    "jumper": 62,
    "leaper": 9,
    "maze": 9,
    "miner": 62,
    "ninja": 62,
    "plunder": 4,
    "starpilot": 13,
}
SHUFFLE = 5  # stream of randomness


class Skin(NamedTuple):
    """How a state is drawn."""

    background: int | None  # None: there is none
    monochrome: bool


def wear(state: bytes, skin: Skin) -> bytes:
    """The same state, drawn otherwise."""
    found, changed = places(state), bytearray(state)
    struct.pack_into("<i", changed, found.monochrome, skin.monochrome)
    struct.pack_into("<i", changed, found.has_background, skin.background is not None)
    struct.pack_into("<i", changed, found.background, skin.background or 0)
    return bytes(changed)


@functools.cache
def skins_of(game: str) -> tuple[Skin, ...]:
    """All of a game, shuffled: the first half is for training."""
    backgrounds = (None, *range(N_BACKGROUNDS[game]))
    skins = [Skin(picture, plain) for picture in backgrounds for plain in (False, True)]
    order = np.random.default_rng(SHUFFLE).permutation(len(skins))
    return tuple(skins[i] for i in order)


class Skins:
    """What `looks.Dressed` asks for, of a game of Procgen."""

    def __init__(self, suite: Suite, game: str) -> None:
        self._suite, self._game, skins = suite, game, skins_of(game)
        half, quarter = len(skins) // 2, len(skins) // 4
        self._training, self._validation = skins[:half], skins[half : half + quarter]
        self._unseen = skins[half + quarter :]

    def _of(self, look: int) -> tuple[Skin, ...]:
        """Skins of training, validation and unseen looks are others."""
        if look >= self._suite.first_unseen:
            return self._unseen
        return self._training if look < self._suite.first_validation else self._validation

    def check(self, looks: int, first: int = 0) -> None:
        if looks > (n := len(self._of(first))):
            train, validate, unseen = map(len, (self._training, self._validation, self._unseen))
            raise UserError(
                f"{self._game} has {train} skins to train on, {validate} to validate on and "
                f"{unseen} unseen ones: here {n}, not {looks}."
            )

    def skin(self, look: int) -> Skin:
        skins = self._of(look)
        return skins[look % len(skins)]

    def dress(self, env: Any, slot: int, look: int) -> None:
        state, *rest = env.save(slot)
        env.restore(slot, (wear(state, self.skin(look)), *rest))

    def paint(self, obs: Array, looks: Array) -> Array:
        return obs
