"""The only loop that plays episodes: for rows of returns, for videos and for the report.

A step is a function of the agent, its temperature, its seed and the level alone: not of the order
of levels, nor of who plays beside it.
"""

import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gsf.core.errors import UserError
from gsf.nets.acting import entropy, sample
from gsf.suites import find_game

Array = NDArray[Any]
# Matrix kernels take rows in eights and round the odd ones at the end differently.
ROWS = 8


class Actor(Protocol):
    """All an agent needs to be evaluated."""

    def policy(self, obs: Array, temperature: Array) -> Array:
        """Probabilities [n,A] of the game's actions for images uint8 [n,H,W,C].

        `temperature` [n]: 0 asks for the best action alone, 1 for the policy as it is.
        `nets.acting.tempered` does that for scores.

        One that acts by what was before has `memory(n)`, too, as `learn.agent.Agent`: it is asked
        with what that returned, and told what came of every step. One that sees the game
        drawn otherwise has `drawn`, options of the suite's make_env.
        """
        ...


@dataclass(frozen=True, eq=False)
class Step:
    """One step in every slot that is still playing, k of them; all arrays [k]."""

    at: NDArray[np.int64]  # index into the list of levels
    obs: NDArray[np.uint8]  # [k,H,W,C], before the action
    action: Array
    entropy: Array  # of the policy it was drawn from, over actions that differ, in nats
    reward: Array
    ended: NDArray[np.bool_]
    completed: NDArray[np.bool_]  # ended, and won


def rollout(
    actor: Actor,
    game: str,
    levels: Sequence[int],
    temperature: float | Sequence[float] | Array,
    *,
    seed: int,
    n_envs: int | None = None,
    difficulty: str | None = None,
    threads: int | None = None,
    max_frames: int | None = None,
) -> Generator[Step, None, None]:
    """Plays one episode on each level, `n_envs` at once (default: all), or its first frames.

    `temperature`: one, or that of every level in the list, which may name a level repeatedly.
    """
    m = len(levels)
    n = min(n_envs or m, m)
    temperatures = np.broadcast_to(np.asarray(temperature, np.float64), m)
    env: dict[str, Any] = {"difficulty": difficulty, "threads": threads}
    env |= getattr(actor, "drawn", {})
    # If episodes are cut, no slot begins its next level before its env ends.
    size = n if max_frames and n < m else m
    for first in range(0, max(m, 1), max(size, 1)):
        part = slice(first, first + size)
        played = _play(actor, game, levels[part], temperatures[part], seed, n, max_frames, env)
        with contextlib.closing(played):
            for step in played:
                yield replace(step, at=step.at + first)


def _play(
    actor: Actor,
    game: str,
    levels: Sequence[int],
    temperatures: Array,
    seed: int,
    n_envs: int,
    max_frames: int | None,
    options: Mapping[str, Any],
) -> Generator[Step, None, None]:
    """`rollout` in one env, of `options`."""
    suite, name = find_game(game)
    facts, m = suite.games[name], len(levels)
    n = min(n_envs, m)
    to_class = np.eye(len(facts.distinct_actions))[facts.action_classes]  # [A, classes]
    env = suite.make_env(name, list(levels), n, 0, copy=False, **options)
    with contextlib.closing(env):
        obs, _ = env.reset()
        at = np.arange(n)  # what each slot plays
        streams = [stream(seed, levels[i]) for i in at]
        memory = actor.memory(n) if hasattr(actor, "memory") else None
        frame = 0
        while (playing := np.flatnonzero(at < m)).size:
            if 2 * playing.size <= len(at) and hasattr(env, "keep"):
                obs = env.keep(playing)
                at, streams = at[playing], [streams[slot] for slot in playing]
                memory = None if memory is None else memory.in_slots(playing)
                playing = np.arange(len(at))
            uniform = np.array([streams[slot].random() for slot in playing])
            seen = obs[playing]  # a copy: the next step overwrites obs
            past = None if memory is None else memory.in_slots(playing)
            policy = ask(actor, seen, temperatures[at[playing]], len(facts.actions), past)
            chosen = sample(policy, uniform)
            actions = np.full(len(at), facts.noop)  # slots whose levels are over wait
            actions[playing] = chosen
            obs, reward, terminated, truncated, info = env.step(actions)
            frame += 1
            ended = (terminated | truncated)[playing] | (frame == max_frames)
            completed = ended & info.get("completed", np.zeros(len(at), bool))[playing]
            if past is not None:
                past.after(chosen, reward[playing], ended)
            entropies = entropy(policy @ to_class[: policy.shape[1]])
            yield Step(at[playing], seen, chosen, entropies, reward[playing], ended, completed)
            over = playing[ended]
            at[over] += n
            for slot in over[at[over] < m]:
                streams[slot] = stream(seed, levels[at[slot]])


def stream(seed: int, level: int) -> np.random.Generator:
    """The random numbers that choose actions on a level, one a step: always the same ones."""
    return np.random.default_rng([seed, level])


def ask(actor: Actor, obs: Array, temperature: Array, n_actions: int, past: Any = None) -> Array:
    """The actor's policy, checked, and independent of how many images it is asked about at once.

    Images are padded to a multiple of 8: with that, a row's result was the same bit for bit in
    every batch and with one or two threads. On other hardware only rounding can differ.
    """
    n = len(obs)
    rows = np.minimum(np.arange(n + -n % ROWS), n - 1)
    memory = () if past is None else (past.in_slots(rows),)
    policy = np.asarray(actor.policy(obs[rows], temperature[rows], *memory))
    if policy.ndim != 2 or len(policy) != len(rows) or not 0 < policy.shape[1] <= n_actions:
        raise UserError(
            f"the agent's policy() gave {list(policy.shape)} for {len(rows)} images; it must give "
            f"probabilities of at most {n_actions} actions for each."
        )
    if not (policy.min() >= 0 and np.allclose(policy.sum(1), 1, atol=1e-3)):  # NaN is neither
        raise UserError("the agent's policy() gave numbers that are no probabilities: sum to 1.")
    return policy[:n]
