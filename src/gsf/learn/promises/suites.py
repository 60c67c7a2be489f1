"""What evaluation, recording and planning rely on in a suite, tried on a game of it.

In: a suite and one of its games. Levels are played alone and side by side with the same actions:
what is shown and given must be the same.
"""

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsf.behaviour.record import from_tensors, to_tensors
from gsf.core.errors import UserError, did_you_mean
from gsf.core.sealed import load_checkpoint, save_checkpoint
from gsf.learn.promises import require
from gsf.suites import MOST_REWARD, REGISTRY, Levels, Suite

STEPS = 100  # of most plays
MOST_STEPS = 10_000  # until an episode has to end
Array = NDArray[Any]


@dataclass(frozen=True)
class Moment:
    """What a slot showed, and what came of the action that was taken then."""

    images: Array
    reward: float
    ends: tuple[bool, bool, bool]  # terminated, truncated, won


@dataclass(frozen=True)
class Subject:
    suite: Suite
    game: str

    @property
    def levels(self) -> list[int]:
        """Two to train on, and one each for choosing and for reporting."""
        suite = self.suite
        return [*range(2), suite.first_validation, suite.first_unseen]

    @contextlib.contextmanager
    def env(self, levels: Levels, n_envs: int, seed: int = 0, **options: Any) -> Iterator[Any]:
        with contextlib.closing(
            self.suite.make_env(self.game, levels, n_envs, seed, **options)
        ) as env:
            yield env

    def actions(self, seed: int) -> Iterator[int]:
        """Random ones, without an end."""
        rng, n = np.random.default_rng(seed), len(self.suite.games[self.game].actions)
        return (int(rng.integers(n)) for _ in itertools.count())

    def play(
        self, levels: Sequence[int], n_envs: int, n_steps: int = STEPS, **options: Any
    ) -> list[list[Moment]]:
        """The first episode on each level, or what there was of it after so many steps.

        A level's actions are its own, whoever plays beside it.
        """
        played: list[list[Moment]] = [[] for _ in levels]
        streams = [self.actions(level) for level in levels]
        with self.env(levels, n_envs, **options) as env:
            at, (obs, _) = np.arange(n_envs), env.reset()
            for _ in range(n_steps):
                busy = [slot for slot in range(n_envs) if at[slot] < len(levels)]
                if not busy:
                    break
                actions = np.full(n_envs, self.suite.games[self.game].noop)
                for slot in busy:
                    actions[slot] = next(streams[at[slot]])
                before, (obs, *what) = np.array(obs), env.step(actions)
                for slot in busy:
                    moment = _moment(before, what, slot)
                    played[at[slot]].append(moment)
                    at[slot] += n_envs * any(moment.ends[:2])
        return played


def owns(spec: str) -> bool:
    """Whether `spec` is a suite, or a game of one as suite/game."""
    return any(REGISTRY.owns(x) for x in (spec, spec.rpartition("/")[0]) if x)


def subjects(spec: str) -> list[Subject]:
    whole = REGISTRY.owns(spec)
    suite = REGISTRY.find(spec if whole else spec.rpartition("/")[0]).value
    games = list(suite.games) if whole else [spec.rpartition("/")[2]]
    if not games:
        raise UserError(f"{spec} has no games.")
    if missing := [x for x in games if x not in suite.games]:
        meant = did_you_mean(missing[0], suite.games)
        raise UserError(f"{suite.name} has no game {missing[0]!r}; {meant}see its `games`.")
    return [Subject(suite, game) for game in games]


def _moment(obs: Array, what: Sequence[Any], slot: int) -> Moment:
    reward, terminated, truncated, info = what
    won = bool(np.asarray(info.get("completed", np.zeros(len(obs), bool)))[slot])
    ends = bool(terminated[slot]), bool(truncated[slot]), won
    return Moment(obs[slot], float(reward[slot]), ends)


def _alike(one: Sequence[Moment], other: Sequence[Moment], where: str, images: bool = True) -> None:
    for t, (x, y) in enumerate(zip(one, other, strict=False)):
        require(not images or np.array_equal(x.images, y.images), f"{where}: images differ, {t=}")
        require(x.reward == y.reward, f"{where}: rewards differ, {t=}: {x.reward} and {y.reward}")
        require(x.ends == y.ends, f"{where}: ends differ, {t=}: {x.ends} and {y.ends}")


def describes_its_games(subject: Subject) -> None:
    """Each game has images [H,W,C], actions with names, and classes of ids that there are."""
    suite = subject.suite
    require(bool(suite.difficulties), "difficulties is empty")
    require(subject.game in suite.games, f"there is no game {subject.game}")
    facts = suite.games[subject.game]
    whole = len(facts.obs_shape) == 3 and all(type(x) is int for x in facts.obs_shape)
    require(whole, f"obs_shape {facts.obs_shape} is not (H, W, C)")
    named = bool(facts.actions) and all(isinstance(x, str) for x in facts.actions)
    require(named, f"actions {facts.actions} are not names")
    ids = [action for same in facts.same_actions for action in same]
    known = set(ids) <= set(range(len(facts.actions))) and len(set(ids)) == len(ids)
    require(known, f"same_actions {facts.same_actions} are not classes of ids")


def shows_and_gives_what_it_says(subject: Subject) -> None:
    """`reset` and `step` give arrays of as many as there are slots: uint8 images, finite rewards,
    flags."""
    facts = subject.suite.games[subject.game]
    n, stream = 3, subject.actions(0)
    for difficulty in (None, *subject.suite.difficulties):
        with subject.env(subject.levels, n, difficulty=difficulty, threads=1) as env:
            require(env.num_envs == n, f"num_envs is {env.num_envs} of {n} slots")
            obs, _ = env.reset()
            for t in range(STEPS):
                _is_array(obs, "images", np.uint8, (n, *facts.obs_shape), t)
                actions = np.array([next(stream) for _ in range(n)])
                obs, reward, terminated, truncated, info = env.step(actions)
                require(isinstance(info, Mapping), f"info is {type(info).__name__}, {t=}")
                small = np.abs(np.asarray(reward, float)) <= MOST_REWARD  # NaN is not
                require(bool(small.all()), f"a reward is {reward}, {t=}")
                _is_array(reward, "rewards", None, (n,), t)
                _is_array(terminated, "terminated", np.bool_, (n,), t)
                _is_array(truncated, "truncated", np.bool_, (n,), t)
                if "completed" in info:
                    _is_array(info["completed"], "info['completed']", np.bool_, (n,), t)


def _is_array(x: Any, what: str, kind: Any, shape: tuple[int, ...], t: int) -> None:
    require(isinstance(x, np.ndarray), f"{what} are {type(x).__name__}, not an array, {t=}")
    right = x.dtype.kind in "biuf" if kind is None else x.dtype == kind
    require(right, f"{what} are of type {x.dtype}, {t=}")
    require(x.shape == shape, f"{what} have shape {list(x.shape)}, not {list(shape)}, {t=}")


def ends_its_episodes(subject: Subject) -> None:
    """Episodes end, by random play too, either terminated or truncated."""
    (played,) = subject.play(subject.levels[:1], 1, MOST_STEPS)
    terminated, truncated, _ = played[-1].ends
    require(terminated or truncated, f"none has ended after {MOST_STEPS:,} steps: set a limit")
    require(not (terminated and truncated), "one is terminated and truncated at once")


def shows_the_next_level_at_an_end(subject: Subject) -> None:
    """When an episode ends, the same step shows the first image of the slot's next level."""
    levels = subject.levels[:2]
    first = len(subject.play(levels[:1], 1, MOST_STEPS)[0])
    _, after = subject.play(levels, 1, first + STEPS)
    _alike(after, subject.play(levels[1:], 1)[0], f"level {levels[1]} after another and alone")


def plays_a_level_alike(subject: Subject) -> None:
    """A level is the same in every slot, whoever plays beside it, and again."""
    together = subject.play(subject.levels, len(subject.levels))
    for level, played in zip(subject.levels, together, strict=True):
        for again in range(2):
            alone = subject.play([level], 1)[0]
            _alike(played, alone, f"level {level} beside others and alone ({again + 1})")


def draws_its_levels_by_the_seed(subject: Subject) -> None:
    """Of a `range` each slot draws its levels by the seed: the same seed, the same play."""
    one, other = (_steps(subject, seed=1) for _ in range(2))
    for slot, pair in enumerate(zip(one, other, strict=True)):
        _alike(*pair, f"slot {slot} of two envs of one seed")


def _steps(subject: Subject, seed: int, **options: Any) -> list[list[Moment]]:
    """STEPS of each of four slots that draw their levels."""
    streams = [subject.actions(slot) for slot in range(4)]
    played: list[list[Moment]] = [[] for _ in streams]
    with subject.env(range(50), len(streams), seed, **options) as env:
        obs, _ = env.reset()
        for _ in range(STEPS):
            before, (obs, *what) = np.array(obs), env.step(np.array([next(x) for x in streams]))
            for slot, moments in enumerate(played):
                moments.append(_moment(before, what, slot))
    return played


def lends_no_images_unasked(subject: Subject) -> None:
    """Without `copy=False` an image that was given stays what it was."""
    stream = subject.actions(0)
    with subject.env(subject.levels[:1], 1) as env:
        obs, _ = env.reset()
        for _ in range(STEPS):
            kept, before = obs, np.array(obs)
            obs, *_ = env.step(np.array([next(stream)]))
            require(np.array_equal(kept, before), "a step overwrote the images before it")


def goes_on_with_the_slots_it_keeps(subject: Subject) -> None:
    """`keep(slots)` lets the others go; these go on as they would have."""
    levels, slots = subject.levels, np.array([1, 3])
    streams = [subject.actions(level) for level in levels]
    with subject.env(levels, 4) as whole, subject.env(levels, 4) as part:
        (obs, _), _ = whole.reset(), part.reset()
        for _ in range(STEPS // 2):
            actions = np.array([next(x) for x in streams])
            (obs, *_), _ = whole.step(actions), part.step(actions)
        mine = part.keep(slots)
        for t in range(STEPS):
            before, own, actions = (
                np.array(obs),
                np.array(mine),
                np.array([next(x) for x in streams]),
            )
            (obs, *what), (mine, *its) = whole.step(actions), part.step(actions[slots])
            for i, slot in enumerate(slots):
                pair = _moment(before, what, slot), _moment(own, its, i)
                _alike(pair[:1], pair[1:], f"slot {slot}, {t} steps after others went")


def says_which_level_it_shows(subject: Subject) -> None:
    """`info["level"]` is that of the image shown; `observe` shows both without a step."""
    levels, stream = range(3), subject.actions(0)
    with subject.env(levels, 1, seed=3) as env:
        require(env.seed == 3 and env.levels == levels, "it has no `seed` and `levels` as given")
        (obs, info), begun, compared = env.reset(), True, 0
        for _ in range(MOST_STEPS):
            level, (shown, its) = int(info["level"][0]), env.observe()
            require(level in levels, f"info['level'] is {level}, which it was not given")
            same = np.array_equal(shown, obs) and int(its[0]) == level
            require(same, "observe shows something else than the last step")
            if begun:
                alone = subject.play([level], 1, 1)[0][0].images
                require(np.array_equal(obs[0], alone), f"what is called level {level} is another")
                compared += 1
            if compared == 2:
                break
            obs, _, terminated, truncated, info = env.step(np.array([next(stream)]))
            begun = bool(terminated[0] | truncated[0])


def goes_on_from_its_state(subject: Subject) -> None:
    """What `state_dict` gave, saved and loaded into another env, goes on exactly."""
    streams = [subject.actions(slot) for slot in range(3)]
    with subject.env(range(50), 3, 1) as whole, subject.env(range(50), 3, 1) as again:
        whole.reset()
        for _ in range(STEPS // 2):
            whole.step(np.array([next(x) for x in streams]))
        again.load_state_dict(_saved_and_loaded(whole.state_dict()))
        for t in range(STEPS):
            (obs, level), (other, its) = whole.observe(), again.observe()
            require(np.array_equal(obs, other), f"images differ {t} steps after it was loaded")
            require(np.array_equal(level, its), f"levels differ {t} steps after it was loaded")
            actions = np.array([next(x) for x in streams])
            (_, *one), (_, *two) = whole.step(actions), again.step(actions)
            for slot in range(3):
                pair = _moment(obs, one, slot), _moment(other, two, slot)
                _alike(pair[:1], pair[1:], f"slot {slot}, {t} steps after it was loaded")


def _saved_and_loaded(state: dict[str, Any]) -> Any:
    with tempfile.TemporaryDirectory(prefix="gsf-check-") as directory:
        path = Path(directory) / "state.pt"
        save_checkpoint(path, to_tensors(state))
        return from_tensors(load_checkpoint(path))


def restores_a_slot(subject: Subject) -> None:
    """What `save(slot)` gave, restored in any slot, goes on as the first did."""
    stream = subject.actions(5)
    with subject.env(range(50), 2, 1) as env:
        env.reset()
        for _ in range(STEPS // 4):
            env.step(np.array([next(stream), next(stream)]))
        state, actions = env.save(0), [next(stream) for _ in range(STEPS // 2)]
        first = _from_here(env, 0, actions)
        env.restore(1, state)
        _alike(first, _from_here(env, 1, actions), "a state in another slot")
        env.restore(0, state)
        _alike(first, _from_here(env, 0, actions), "a state restored twice")


def _from_here(env: Any, slot: int, actions: Sequence[int]) -> list[Moment]:
    played: list[Moment] = []
    for action in actions:
        obs = np.array(env.observe()[0])
        _, *what = env.step(np.full(env.num_envs, action))
        played.append(_moment(obs, what, slot))
        if any(played[-1].ends[:2]):
            break
    return played


def plays_the_same_drawn_plainly(subject: Subject) -> None:
    """With the options `plain` everything but the images is the same."""
    one, other = _steps(subject, 1), _steps(subject, 1, **subject.suite.plain)
    for slot, pair in enumerate(zip(one, other, strict=True)):
        _alike(*pair, f"slot {slot} drawn plainly", images=False)


Promise = Callable[[Subject], None]
OF_SUITES: tuple[Promise, ...] = (
    describes_its_games,
    shows_and_gives_what_it_says,
    ends_its_episodes,
    shows_the_next_level_at_an_end,
    plays_a_level_alike,
    draws_its_levels_by_the_seed,
    lends_no_images_unasked,
)


def of_suite(subject: Subject) -> tuple[Promise, ...]:
    """What this one promises: more, if it offers more."""
    with subject.env(subject.levels, len(subject.levels)) as env:
        offered = {
            goes_on_with_the_slots_it_keeps: hasattr(env, "keep"),
            says_which_level_it_shows: subject.suite.replays_with is not None,
            goes_on_from_its_state: subject.suite.replays_with is not None,
            restores_a_slot: hasattr(env, "save"),
            plays_the_same_drawn_plainly: bool(subject.suite.plain),
        }
    return (*OF_SUITES, *(promise for promise, there in offered.items() if there))
