"""Where agents play: a `Suite` is its games and the function that makes their vector env.

Suites are the files of this folder, entry points `gsf.suites` of installed packages, and
`file.py:Name`. A game is named alone (coinrun) or with its suite (file.py:Name/corridor). Facts
of games are read without what it takes to play them.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gsf.core.errors import UserError, did_you_mean
from gsf.core.registry import Registry

Levels = range | Sequence[int]
# Data of a player nearer to random play than this `Game.way` cannot tell methods apart. It was
# fixed before any game was compared.
LEAST_WAY = 0.1
LAST_LEVEL = 2**31 - 2  # recordings have 32 bits for each
MOST_REWARD = float(np.finfo(np.float32).max)  # what datasets can hold
Array = NDArray[Any]


@dataclass(frozen=True)
class Game:
    """What is known of a game before it is played."""

    obs_shape: tuple[int, ...]  # [H,W,C] of its uint8 images
    actions: tuple[str, ...]  # their names, for people; an action's id is its place
    noop: int = 0  # the action that does nothing, or any
    same_actions: tuple[tuple[int, ...], ...] = ()  # ids that lead to one future, plainest first
    score_range: tuple[float, float] | None = None  # of min-max scores
    random: float | None = None  # return of play at random among actions that differ, seen levels
    published: tuple[float, float] | None = None  # returns on seen and unseen levels

    @property
    def distinct_actions(self) -> NDArray[np.int64]:
        """Ids of the actions that differ in what follows, one of each class, ascending."""
        repeated = {action for same in self.same_actions for action in same[1:]}
        return np.array([a for a in range(len(self.actions)) if a not in repeated])

    @property
    def action_classes(self) -> NDArray[np.int64]:
        """Of every id, the position in `distinct_actions` of the one it equals."""
        plain = np.arange(len(self.actions))
        for same in self.same_actions:
            plain[list(same)] = same[0]
        return np.searchsorted(self.distinct_actions, plain)

    def action_ids(self, which: str) -> NDArray[np.int64]:
        """Ids of the `distinct` actions, or of `all`."""
        return self.distinct_actions if which == "distinct" else np.arange(len(self.actions))

    def way(self, mean_return: float) -> float | None:
        """How far a return is from random play (0) to the published one (1), on seen levels."""
        if self.random is None or self.published is None:
            return None
        return (mean_return - self.random) / (self.published[0] - self.random)


class LevelEnv(Protocol):
    """A Gymnasium vector env (autoreset in the same step) whose episodes are levels.

    Of a list of levels slot i plays levels[i::n_envs] in turn, each from its start and exactly;
    of a `range` every slot draws its levels at random, by the seed. `step` says in
    `info["completed"]` [n_envs] which of the episodes that ended were won, if the game can tell.
    It may have `keep(slots)`: only these go on, each as it was; their observations are returned.
    """

    num_envs: int

    def reset(self) -> tuple[Array, dict[str, Any]]: ...
    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]: ...
    def close(self) -> None: ...


class ReplayableEnv(LevelEnv, Protocol):
    """What recording needs besides: `info["level"]` on every step, and states to go on from."""

    seed: int
    levels: Levels

    def observe(self) -> tuple[Array, Array]:
        """The current observations and their levels, without a step."""
        ...

    def latent_state(self) -> list[bytes]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class RestorableEnv(ReplayableEnv, Protocol):
    """What planning needs besides: a slot's state, which any slot of such an env can go on from.

    Where the best play is known it also has `best_actions()` [n_envs], for `--player best`.
    """

    def save(self, slot: int) -> Any: ...
    def restore(self, slot: int, state: Any) -> None: ...


@runtime_checkable
class ChancyEnv(RestorableEnv, Protocol):
    """What planning without knowing the future needs besides."""

    def with_chance(self, state: Any, seed: int) -> Any:
        """The same state, with other random numbers to come."""
        ...


@dataclass(frozen=True)
class Suite:
    """`make_env(game, levels, n_envs, seed, *, difficulty=None, threads=None, copy=True)` gives a
    `LevelEnv`; difficulty None is the first of `difficulties`, `copy=False` may lend buffers that
    the next step overwrites."""

    name: str
    games: Mapping[str, Game]
    make_env: Callable[..., Any]
    difficulties: tuple[str, ...] = ("default",)
    training_levels: range = range(200)  # of the benchmark; a dataset may have others
    first_validation: int = 500_000
    first_unseen: int = 1_000_000
    published_by: str = ""  # whose returns `Game.published` are
    replays_with: str | None = None  # the build that repeats a play exactly; None: cannot be
    # Options of `make_env` for an env that plays exactly the same and is drawn more simply: to plan
    # in, and for policies that see it so.
    plain: Mapping[str, Any] = field(default_factory=dict)
    named: bool = False  # its games were named by the user one by one, so they come first
    on_request: bool = False  # its games are played where they are named, not as one of `all`
    # Where the best play is known: (game, level, t, action, terminated, gamma) of the rows of
    # whole episodes -> the most that can be earned from each row on (`gsf label --source oracle`).
    true_values: Callable[..., Array] | None = None

    def drawn(self, view: str) -> Mapping[str, Any]:
        """Options of `make_env` for a view: `plain`, or the game's own images."""
        return self.plain if view == "plain" else {}

    def first_level(self, split: str) -> int:
        """Where the levels of `validation` or `unseen` begin."""
        return self.first_validation if split == "validation" else self.first_unseen


def turns(levels: Levels, n_envs: int, seed: int) -> list[Iterator[int]]:
    """The levels of each slot, without an end: as `LevelEnv` has them, for suites that follow."""
    if not isinstance(levels, range):
        return [itertools.cycle(levels[slot::n_envs]) for slot in range(n_envs)]
    rngs = np.random.default_rng(seed).spawn(n_envs)
    return [_draws(levels, rng) for rng in rngs]


def checked(levels: Levels, n_envs: int) -> Levels:
    """A range of consecutive levels as it is, anything else as a list; refused if that many slots
    cannot play them."""
    drawn = isinstance(levels, range) and levels.step == 1
    chosen = levels if drawn else [int(level) for level in levels]
    if not len(chosen):
        raise UserError("levels is empty; give at least one level.")
    if min(chosen) < 0 or max(chosen) > LAST_LEVEL:
        raise UserError(f"levels lie in 0..{LAST_LEVEL}, got {min(chosen)}..{max(chosen)}.")
    if n_envs < 1:
        raise UserError(f"n_envs must be positive, got {n_envs}.")
    if not drawn and n_envs > len(chosen):
        raise UserError(
            f"{n_envs} envs for a list of {len(chosen)} levels would leave slots without a level; "
            f"use at most {len(chosen)}."
        )
    return chosen


def _draws(levels: range, rng: np.random.Generator) -> Iterator[int]:
    while True:
        yield levels[int(rng.integers(len(levels)))]


_IN_FILE = re.compile(r"(?P<suite>.+\.py:\w+)/(?P<game>.+)")
REGISTRY: Registry[Suite] = Registry("suite", "gsf.suites", lambda x: isinstance(x, Suite))


def all_suites() -> list[Suite]:
    """Those that are installed, and those of files that were named in this process."""
    installed = [REGISTRY.find(name).value for name in REGISTRY.names()]
    return list({suite.name: suite for suite in [*REGISTRY.of_files(), *installed]}.values())


def name_game(spec: str) -> tuple[Suite, str]:
    """As `find_game`, of a name that the user gives: in `file.py:Suite/game` the file is run."""
    if match := _IN_FILE.fullmatch(spec):
        return _only([REGISTRY.find(match["suite"]).value], match["game"])
    return find_game(spec)


def find_game(spec: str) -> tuple[Suite, str]:
    """The suite of a game, and the game's own name; one sentence if there is no such game.

    Names come from files, too (recordings, rows, manifests), so none of them runs a file.
    """
    suites = all_suites()
    owner, _, name = spec.partition("/")
    if not name or any(spec in suite.games for suite in suites):  # an imported name may have a /
        return _only(suites, spec)
    if owner not in REGISTRY.names():
        raise UserError(
            f"unknown game {spec!r}: unknown suite {owner!r}; one of your own is named with --code "
            "first."
        )
    return _only([REGISTRY.find(owner).value], name)


def _only(suites: Sequence[Suite], name: str) -> tuple[Suite, str]:
    having = [suite for suite in suites if name in suite.games]
    having = [suite for suite in having if suite.named] or having
    if len(having) > 1:
        raise UserError(
            f"{name} is a game of {' and of '.join(s.name for s in having)}; "
            f"say which: {having[0].name}/{name}."
        )
    if not having:
        known = [game for suite in suites for game in suite.games]
        raise UserError(
            f"unknown game {name!r}; {did_you_mean(name, known)}There are {', '.join(known)}, "
            "or your own as file.py:Suite/game."
        )
    return having[0], name


def facts_of(game: str) -> Game:
    """What its suite knows of a game."""
    suite, name = find_game(game)
    return suite.games[name]


def known_facts(game: str) -> Game | None:
    """The same; None of a game that no suite has, such as that of imported data."""
    return facts_of(game) if any(game in suite.games for suite in all_suites()) else None


def make_env(game: str, levels: Levels, n_envs: int, seed: int, **options: Any) -> Any:
    """A vector env that plays exactly these levels of a game, the options being its suite's.

    A list is played in order, slot i taking levels[i::n_envs]; from a range levels are drawn.

    env = make_env("coinrun", levels=[1_000_000, 1_000_001], n_envs=2, seed=0)
    """
    suite, name = find_game(game)
    return suite.make_env(name, levels, n_envs, seed, **options)
