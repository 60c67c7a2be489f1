"""What lies where in the bytes of a Procgen state, as its structure tells.

A header (version, the game's name, options, seeds), two random number generators as text, counters,
the entities, 31 numbers each, and the rest. The first generator draws the levels to come, the
second what happens in play (tests/suites/test_state.py).
"""

import struct
from typing import NamedTuple

import numpy as np

WORD = 4  # bytes of every number
OPTIONS, SEEDS, COUNTERS, ENTITY = 12, 5, 15, 31  # how many numbers there are of each
MONOCHROME, HAS_BACKGROUND = 2, 4  # among the options: things are plain shapes; there is one


class Places(NamedTuple):
    monochrome: int
    has_background: int
    chance: int  # the second generator's text, headed by its length
    background: int


def places(state: bytes) -> Places:
    options = after_text(state, WORD)  # behind the version, the game's name
    # Of each generator: whether it is seeded, then its text.
    chance = after_text(state, options + WORD * (OPTIONS + SEEDS + 1)) + WORD
    n_entities = after_text(state, chance) + WORD * (COUNTERS + 1)  # behind them the grid's size
    # Behind the entities, whether the background is made by a program.
    background = n_entities + WORD * (1 + ENTITY * number(state, n_entities) + 1)
    return Places(options + WORD * MONOCHROME, options + WORD * HAS_BACKGROUND, chance, background)


def after_text(state: bytes, at: int) -> int:
    return at + WORD + number(state, at)


def number(state: bytes, at: int) -> int:
    return int(struct.unpack_from("<i", state, at)[0])


def with_chance(state: bytes, seed: int) -> bytes:
    """The same state with other random numbers to come."""
    at = places(state).chance
    drawn = np.random.MT19937(seed).state["state"]  # the generator that Procgen has, too
    text = " ".join(map(str, [*drawn["key"].tolist(), drawn["pos"]])).encode()
    return state[:at] + struct.pack("<i", len(text)) + text + state[after_text(state, at) :]
