"""A player that plans: it tries many futures in copies of the game and plays the best of them.

It needs a game whose states can be saved and restored (`RestorableEnv`); a policy, if there is one,
plays half of the futures, random actions the others. It knows the random numbers to come, so not
all that it does can be told from images, unless it tries each future with several (`--chances`).
Out: actions [n_steps, n_envs]. Killed at any moment, the same command goes on to the same ones.
"""

import contextlib
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gsf.behaviour.options import CollectConfig, PlanConfig
from gsf.behaviour.policy import BehaviourPolicy
from gsf.behaviour.record import RECORDING, from_tensors, to_tensors
from gsf.core.errors import UserError
from gsf.core.interrupts import stoppable
from gsf.core.logs import progress
from gsf.core.schema import NUMBER
from gsf.core.sealed import fitting, load_checkpoint, save_checkpoint
from gsf.data.replay import Returns
from gsf.suites import ChancyEnv, RestorableEnv, find_game

PLAN = "plan.pt"
SEGMENT = 16  # steps after which futures that fall behind become copies of those ahead
LONGEST_HOLD = 8  # steps for which a random action is held
GAMMA = 0.99  # a reward sooner is worth more
BLOCKS, SHADES = 8, 8  # a place is an image of so many blocks a side, each of so many shades
LEAST_WORTH = 1e-3  # of being in the game, while no reward was ever seen

Actions = NDArray[np.uint8]
Array = NDArray[Any]


def places(obs: NDArray[np.uint8]) -> list[bytes]:
    """What is left of images if one steps back: alike for states that are hardly different."""
    n, height, width, channels = obs.shape
    rows, columns = min(BLOCKS, height), min(BLOCKS, width)
    obs = obs[:, : height // rows * rows, : width // columns * columns]
    blocks = obs.reshape(n, rows, height // rows, columns, width // columns, channels)
    sums = blocks.sum(2, np.uint32).sum(3, np.uint32)  # by rows first: ten times as fast
    largest = 255 * blocks.shape[2] * blocks.shape[4]
    return [place.tobytes() for place in (sums * SHADES // (largest + 1)).astype(np.uint8)]


class Futures:
    """Futures of one state, tried side by side: actions [n, depth] and what came of them.

    Each is tried with as many `chances`, one beside the other, and goes by their mean.
    """

    def __init__(self, actions: Actions, chances: int = 1) -> None:
        n, depth = actions.shape
        self.actions, self.chances = actions, chances
        self.earned = np.zeros(n)  # discounted
        self.alive = np.ones(n, bool)
        self.won = np.zeros(n, bool)  # or ended with a reward
        self.length = np.full(n, depth)  # to the episode's end
        self.changes = np.zeros(n)  # from one action to another

    def see(self, t: int, reward: Array, ended: Array, completed: Array) -> None:
        """What step t brought each future; one that has ended gets nothing more."""
        self.earned += GAMMA**t * reward * self.alive
        if t:
            self.changes += (self.actions[:, t] != self.actions[:, t - 1]) & self.alive
        now = self.alive & ended
        self.won |= now & (completed | (reward > 0))
        self.length[now] = t + 1
        self.alive &= ~ended

    def value(self, worth: float, smooth: float) -> NDArray[np.float64]:
        """What was earned, and `worth` if it goes on or was won, less for needless changes."""
        changes = smooth * self.changes / self.actions.shape[1]
        value: NDArray[np.float64] = self.earned + worth * ((self.alive | self.won) - changes)
        return value

    def mean(self, facts: Array) -> NDArray[np.float64]:
        """[n] -> [n / chances]"""
        return np.asarray(facts.reshape(-1, self.chances).mean(1), np.float64)

    def tries(self, future: int) -> range:
        """The slots in which it is tried."""
        return range(future * self.chances, (future + 1) * self.chances)

    def copy(self, source: int, to: int, t: int) -> None:
        """One future begins like another: its first t steps, then its own."""
        self.actions[to, :t] = self.actions[source, :t]
        for facts in (self.earned, self.alive, self.won, self.length, self.changes):
            facts[to] = facts[source]


class Plan(NamedTuple):
    """The actions of a future, and how many to play before another one is looked for."""

    actions: Actions
    play: int


class Planner:
    """Looks for good futures of a state in `simulator`, with all of its slots."""

    def __init__(
        self,
        config: PlanConfig,
        simulator: RestorableEnv,
        action_ids: NDArray[np.int64],
        rng: np.random.Generator,
        policy: BehaviourPolicy | None = None,
    ) -> None:
        self._config, self._env, self._rng, self._policy = config, simulator, rng, policy
        self._ids = action_ids.astype(np.uint8)

    def plan(self, state: Any, kept: Actions, seen: Counter[bytes], worth: float) -> Plan:
        """The best future that was found of a state.

        kept: what is left of the last plan, tried again.  seen: how often this episode was at each
        place; with no reward in sight the plan leads to where it has been least.  worth: of being
        in the game when the future ends, or of having won it.
        """
        config, env, rng = self._config, self._env, self._rng
        n = config.width // config.chances
        futures = Futures(self._begin(state, n), config.chances)
        futures.actions[: config.chances, : len(kept)] = kept[: config.depth]
        for t in range(config.depth):
            if self._policy:
                guided = slice((n - n // 2) * config.chances, None)
                seen_by_it = env.observe()[0][guided][:: config.chances]
                chosen = self._policy.sample(seen_by_it, rng)
                futures.actions[guided, t] = chosen.repeat(config.chances)
            obs, reward, terminated, truncated, info = env.step(futures.actions[:, t])
            ended = terminated | truncated
            futures.see(t, reward, ended, info.get("completed", np.zeros_like(ended)))
            if not futures.alive.any():
                break
            last = t + 1 == config.depth
            if last or (t + 1) % SEGMENT == 0:
                order = self._order(futures, obs, seen, worth)
                if not last:
                    self._regroup(futures, order, t + 1)
        best = futures.tries(int(self._order(futures, obs, seen, worth)[-1]))
        lengths = futures.length[best]
        surely = int(lengths.min())
        play = surely if futures.won[best].all() else min(config.commit, surely)
        return Plan(futures.actions[best[0], : lengths.max()].copy(), play)

    def _begin(self, state: Any, n: int) -> Actions:
        """Puts the state into every slot, if asked for with other random numbers to come, the same
        ones for each of the n futures. Their actions [width, depth], before a policy's."""
        config, rng, chances = self._config, self._rng, self._config.chances
        states = [state]
        if chances > 1:
            seeds = rng.integers(2**31, size=chances).tolist()
            assert isinstance(self._env, ChancyEnv)
            states = [self._env.with_chance(state, seed) for seed in seeds]
        for slot in range(n * chances):
            self._env.restore(slot, states[slot % chances])
        drawn = held_at_random(n, config.depth, self._ids, rng)
        return drawn.repeat(chances, axis=0)

    def _order(
        self, futures: Futures, obs: NDArray[np.uint8], seen: Counter[bytes], worth: float
    ) -> NDArray[np.int64]:
        """The futures, best last: by value, then by how new their places are, then by length.

        Each of these is the mean over a future's chances.
        """
        now = places(obs)
        crowd = Counter(place for place, alive in zip(now, futures.alive, strict=True) if alive)
        novelty = np.array([1 / (1 + seen[place]) ** 0.5 / max(crowd[place], 1) for place in now])
        value = futures.value(worth, self._config.smooth)
        by = (futures.length, novelty * futures.alive, value)
        order: NDArray[np.int64] = np.lexsort([futures.mean(facts) for facts in by])
        return order

    def _regroup(self, futures: Futures, order: NDArray[np.int64], t: int) -> None:
        """The worse half becomes copies of those of the better half that are still alive."""
        half = len(order) // 2
        alive = order[futures.mean(futures.alive)[order] > 0]
        ahead = alive[np.isin(alive, order[half:])]
        ahead = (ahead if len(ahead) else alive[-1:])[::-1]
        states = {
            source: [self._env.save(slot) for slot in futures.tries(source)]
            for source in ahead[:half].tolist()
        }
        for to, source in zip(order[:half].tolist(), np.resize(ahead, half).tolist(), strict=True):
            if to not in states:
                both = zip(futures.tries(source), futures.tries(to), states[source], strict=True)
                for one, other, state in both:
                    self._env.restore(other, state)
                    futures.copy(one, other, t)


def held_at_random(n: int, depth: int, ids: Actions, rng: np.random.Generator) -> Actions:
    """Random actions [n, depth], each held for 1 to LONGEST_HOLD steps."""
    holds = rng.integers(1, LONGEST_HOLD + 1, (n, depth))
    starts = np.zeros((n, depth), np.int64)
    for row, ends in zip(starts, holds.cumsum(1), strict=True):
        row[ends[ends < depth]] = 1
    drawn = ids[rng.integers(len(ids), size=(n, depth))]
    return np.take_along_axis(drawn, starts.cumsum(1), 1)


class PlannedPlay:
    """A vector env played by plans, slot by slot; `actions` are those taken so far."""

    def __init__(self, config: CollectConfig, policy: BehaviourPolicy | None = None) -> None:
        drawn = policy.drawn if policy else find_game(config.played)[0].plain
        rng = np.random.default_rng([config.seed, RECORDING])
        self.config, self.n_envs = config, config.schedule.n_envs
        self.env: RestorableEnv = config.make_env(rng, **drawn)  # as `record` will make it
        slots = config.width // config.chances * config.chances
        simulator = config.make_env(rng, n_envs=slots, **drawn)
        if config.chances > 1 and not isinstance(simulator, ChancyEnv):
            raise UserError(
                f"--chances {config.chances}: the random numbers to come cannot be changed in "
                f"{config.played}; leave it out."
            )
        self._rng, self._simulator = rng, simulator
        self._planner = Planner(config, simulator, config.action_ids, rng, policy)
        self.actions: list[Actions] = []
        self.returns = Returns(self.n_envs)
        self._plans = [Plan(np.empty(0, np.uint8), 0)] * self.n_envs
        self._seen: list[Counter[bytes]] = [Counter() for _ in range(self.n_envs)]
        self._earned = 0.0  # of all rewards that are gains

    def step(self) -> None:
        steps = max(1, len(self.actions) * self.n_envs)
        worth = max(LEAST_WORTH, self._earned / steps * self.config.depth)
        for slot, (kept, play) in enumerate(self._plans):
            if not play:
                state = self.env.save(slot)
                self._plans[slot] = self._planner.plan(state, kept, self._seen[slot], worth)
        action = np.array([plan.actions[0] for plan in self._plans])
        obs, reward, terminated, truncated, _ = self.env.step(action)
        ended = terminated | truncated
        self.actions.append(action)
        self.returns.add(reward, ended)
        self._earned += float(np.maximum(reward, 0).sum())
        for slot, place in enumerate(places(obs)):
            actions, play = self._plans[slot]
            self._plans[slot] = Plan(actions[1:], play - 1)
            if ended[slot]:
                self._plans[slot], self._seen[slot] = Plan(actions[:0], 0), Counter()
            else:
                self._seen[slot][place] += 1

    def state_dict(self) -> dict[str, Any]:
        return {
            "actions": np.array(self.actions).tobytes(),
            "env": self.env.state_dict(),
            "returns": self.returns.state_dict(),
            "plans": [(plan.actions.tobytes(), plan.play) for plan in self._plans],
            "seen": [b"".join(seen.elements()) for seen in self._seen],
            "earned": self._earned,
            "rng": json.dumps(self._rng.bit_generator.state),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.actions = [*np.frombuffer(state["actions"], np.uint8).reshape(-1, self.n_envs)]
        self.env.load_state_dict(state["env"])
        self.returns.load_state_dict(state["returns"])
        self._plans = [Plan(np.frombuffer(x, np.uint8), play) for x, play in state["plans"]]
        size = len(places(self.env.observe()[0])[0])
        self._seen = [
            Counter(x[i : i + size] for i in range(0, len(x), size)) for x in state["seen"]
        ]
        self._earned = state["earned"]
        self._rng.bit_generator.state = json.loads(state["rng"])

    def close(self) -> None:
        self.env.close()
        self._simulator.close()


def planned(config: CollectConfig, out: Path, policy: BehaviourPolicy | None = None) -> Actions:
    """All actions of a play, [n_steps, n_envs]; what is done of it is kept in `out`."""
    form = {"actions": object, "earned": NUMBER, "rng": str}
    with contextlib.closing(PlannedPlay(config, policy)) as play:
        n_envs, n_steps = play.n_envs, config.n_transitions // play.n_envs
        if (out / PLAN).is_file():
            with fitting(out / PLAN):
                play.load_state_dict(from_tensors(load_checkpoint(out / PLAN, form)))
        saved = time.monotonic()
        with (
            stoppable() as stop,
            progress(f"plan {config.game}", config.n_transitions, "frames") as advance,
        ):
            advance(len(play.actions) * n_envs)
            while len(play.actions) < n_steps and not stop.asked:
                play.step()
                mean = play.returns.mean
                advance(len(play.actions) * n_envs, **({} if mean is None else {"return": mean}))
                last = len(play.actions) == n_steps
                if stop.asked or last or time.monotonic() - saved >= config.checkpoint_seconds:
                    save_checkpoint(out / PLAN, to_tensors(play.state_dict()))
                    saved = time.monotonic()
                    n_saved = len(play.actions) * n_envs
                    stop.kept = f"{n_saved:,} of {config.n_transitions:,} planned frames are saved"
        return np.array(play.actions)
