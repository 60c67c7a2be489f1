"""Fixed lists of levels: seen, validation and unseen, the same for every method.

An unseen level that plays like a training level (Procgen repeats itself) is left out and the next
seed takes its place. Levels that repeat each other inside a list stay: they are draws from the
game's own distribution, and leaving them out would favour its rarer levels.
"""

import functools
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import xxhash
from numpy.typing import NDArray

from gsf.core.errors import UserError
from gsf.suites import facts_of, find_game, make_env

Split = Literal["seen", "validation", "unseen"]
SPLITS: tuple[Split, ...] = get_args(Split)
MOST_TRIED = 100  # candidates for each level of a split
N_ENVS = 64  # levels whose play is compared at once


class Play(NamedTuple):
    """Digests of what is seen of a level under a fixed list of actions."""

    first: str  # of the first image
    whole: str  # of all images, rewards and ends


def split_levels(
    game: str,
    split: Split,
    n: int,
    training: Sequence[int] | None = None,
    difficulty: str | None = None,
) -> list[int]:
    """The first n levels of a split; `training` are the levels the agent has learnt from, by
    default those of the benchmark."""
    suite, name = find_game(game)
    training = suite.training_levels if training is None else training
    if n < 0:
        raise UserError(f"a split cannot have {n} levels; 0 leaves it out.")
    if split == "seen":
        return [int(level) for level in training[:n]]
    if split not in SPLITS:
        raise UserError(f"unknown split {split!r}; choose one of {', '.join(SPLITS)}.")
    # The benchmark's, too: agents trained on any part of them meet the same unseen levels.
    avoided = tuple(sorted({*suite.training_levels, *map(int, training)}))
    return list(_unlike(name, suite.first_level(split), n, avoided, difficulty))


def parse_levels(words: Sequence[str]) -> list[int]:
    """The levels in words such as 7 and 1000..1099 (both ends count), each once."""
    found: list[int] = []
    for word in words:
        match = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", word, re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if last < first:
            raise UserError(f"--levels {word}: a level is a number, a list of them first..last.")
        found += range(first, last + 1)
    return list(dict.fromkeys(found))


@functools.lru_cache(maxsize=64)
def _unlike(
    game: str, first: int, n: int, avoided: tuple[int, ...], difficulty: str | None
) -> tuple[int, ...]:
    """The first n levels from `first` on that do not play like one of `avoided`."""
    known = {play.whole for play in plays(game, avoided, difficulty)}
    kept: list[int] = []
    last = first + MOST_TRIED * n
    while len(kept) < n:
        if first >= last:
            raise UserError(f"hardly a level of {game} does not play like a training level.")
        candidates = range(first, first + n - len(kept))
        found = zip(candidates, plays(game, tuple(candidates), difficulty), strict=True)
        kept += [level for level, play in found if play.whole not in known]
        first = candidates.stop
    return tuple(kept)


@functools.lru_cache(maxsize=64)
def plays(game: str, levels: tuple[int, ...], difficulty: str | None) -> tuple[Play, ...]:
    """Of each level, under the fixed list of actions."""
    parts = [levels[at : at + N_ENVS] for at in range(0, len(levels), N_ENVS)]
    return tuple(play for part in parts for play in _play_at_once(game, part, difficulty))


def fixed_actions(game: str) -> NDArray[np.int64]:
    """The fixed list: 64 actions, drawn once and for all."""
    return np.random.default_rng(0).integers(len(facts_of(game).actions), size=64)


def _play_at_once(game: str, levels: tuple[int, ...], difficulty: str | None) -> list[Play]:
    """Plays each level in a slot of its own; one that ends early begins again."""
    env = make_env(game, levels, len(levels), seed=0, difficulty=difficulty, copy=False)
    digests = [xxhash.xxh3_64(obs.data) for obs in env.reset()[0]]
    first = [state.hexdigest() for state in digests]
    for action in fixed_actions(game):
        obs, reward, terminated, truncated, _ = env.step(np.full(len(levels), action))
        for slot, state in enumerate(digests):
            state.update(reward[slot].tobytes())
            state.update((terminated[slot] | truncated[slot]).tobytes())
            state.update(obs[slot].data)
    env.close()
    return [Play(x, state.hexdigest()) for x, state in zip(first, digests, strict=True)]
