"""Play in blocks: recorded with checksums of what came of it, and replayed against them.

In: a vector env and who acts, or a recording. Out: blocks of consecutive steps, slot by slot, in
buffers that are used again: memory stays flat however long the play.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from gsf.core.errors import UserError
from gsf.data.recording import BLOCK, Recording, Take
from gsf.suites import ReplayableEnv, find_game
from gsf.suites.looks import Draw, Dressed, wardrobe

BLOCK_BYTES = 1 << 25  # memory of each of a play's two buffers
# ends: 1 terminated, 2 truncated, 3 both
_LOGIC = np.dtype([("level", "<i4"), ("reward", "<f4"), ("ends", "u1")])


@dataclass(frozen=True)
class Block:
    """Some consecutive steps, slot by slot; views of a buffer that `play_blocks` uses again."""

    obs: NDArray[np.uint8]  # [n_envs, n, H, W, C], before the action
    level: NDArray[np.int32]  # [n_envs, n], of obs
    action: NDArray[np.uint8]
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]

    @classmethod
    def empty(cls, n_envs: int, n: int, obs_shape: tuple[int, ...]) -> "Block":
        shape = (n_envs, n)
        return cls(
            obs=np.empty((*shape, *obs_shape), np.uint8),
            level=np.empty(shape, np.int32),
            action=np.empty(shape, np.uint8),
            reward=np.empty(shape, np.float32),
            terminated=np.empty(shape, np.bool_),
            truncated=np.empty(shape, np.bool_),
        )

    def first(self, n: int) -> "Block":
        return Block(*(getattr(self, f.name)[:, :n] for f in fields(self)))


def play_blocks(
    env: ReplayableEnv,
    act: Callable[[int, NDArray[np.uint8]], NDArray[Any]],
    n_steps: int,
    start: int = 0,
) -> Iterator[Block]:
    """Steps start..n_steps of an env, action t being act(t, obs).

    A block stays valid while the next one is played: it can be written in the meantime.
    """
    obs, level = env.observe()
    size = min(BLOCK, 1 << int(np.log2(max(1, BLOCK_BYTES // obs.nbytes))))
    buffers = itertools.cycle([Block.empty(len(obs), size, obs.shape[1:]) for _ in range(2)])
    for at in range(start, n_steps, size):
        n, block = min(size, n_steps - at), next(buffers)
        for i in range(n):
            block.obs[:, i], block.level[:, i] = obs, level
            block.action[:, i] = action = act(at + i, obs)
            obs, reward, terminated, truncated, info = env.step(action)
            block.reward[:, i], level = reward, info["level"]
            block.terminated[:, i], block.truncated[:, i] = terminated, truncated
        yield block.first(n)


class Returns:
    """Returns of the episodes of envs side by side."""

    def __init__(self, n_envs: int) -> None:
        self.under_way = np.zeros(n_envs)
        self.ended: list[float] = []

    def add(self, reward: NDArray[Any], ended: NDArray[np.bool_]) -> None:
        """Of one step, both [n_envs]."""
        self.under_way += reward
        if ended.any():
            self.ended += self.under_way[ended].tolist()
            self.under_way[ended] = 0.0

    @property
    def mean(self) -> float | None:
        """None as long as no episode has ended."""
        return float(np.mean(self.ended)) if self.ended else None

    def state_dict(self) -> dict[str, Any]:
        return {"return": self.under_way.tolist(), "returns": self.ended}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.under_way[:] = state["return"]
        self.ended = list(state["returns"])


class Recorder:
    """Collects the blocks of a play: its actions, checksums, and returns of episodes."""

    def __init__(self, n_envs: int) -> None:
        self.n_steps = 0
        self._actions: list[NDArray[np.uint8]] = []
        self._sums: list[tuple[list[int], list[int]]] = []  # of complete BLOCKs
        self._hashers = [(xxhash.xxh3_64(), xxhash.xxh3_64()) for _ in range(n_envs)]
        self._returns = Returns(n_envs)
        self._levels: set[int] = set()

    def add(self, block: Block) -> bool:
        """True at the end of a BLOCK: only there can a play be interrupted and resumed."""
        self._actions.append(block.action.T.copy())
        facts = np.empty(block.level.shape, _LOGIC)  # step by step: however long a block is
        facts["level"], facts["reward"] = block.level, block.reward
        facts["ends"] = block.terminated + 2 * block.truncated
        for slot, (logic, pixels) in enumerate(self._hashers):
            logic.update(facts[slot].tobytes())
            pixels.update(np.ascontiguousarray(block.obs[slot]).data)
        for t in range(block.action.shape[1]):
            self._returns.add(block.reward[:, t], facts["ends"][:, t] > 0)
        self._levels.update(np.unique(block.level).tolist())
        self.n_steps += block.action.shape[1]
        if self.n_steps % BLOCK == 0:
            self._close_block()
        return self.n_steps % BLOCK == 0

    def _close_block(self) -> None:
        logic = [logic.intdigest() for logic, _ in self._hashers]
        self._sums.append((logic, [pixels.intdigest() for _, pixels in self._hashers]))
        for hasher in (hasher for pair in self._hashers for hasher in pair):
            hasher.reset()

    @property
    def checksums(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Of the logic and of the pixels, each [n_blocks, n_envs]."""
        sums = np.array(self._sums, np.uint64).reshape(-1, 2, len(self._hashers))
        return sums[:, 0], sums[:, 1]

    def finish(self, env: ReplayableEnv, **provenance: Any) -> Take:
        if self.n_steps % BLOCK:
            self._close_block()
        if not isinstance(env.levels, range):
            raise UserError("only play on a range of levels can be recorded, not on a list.")
        logic, pixels = self.checksums
        return Take(
            seed=env.seed,
            first_level=env.levels.start,
            n_levels=len(env.levels),
            actions=np.concatenate(self._actions),
            logic=logic,
            pixels=pixels,
            returns=self.returns(),
            **provenance,
        )

    def returns(self) -> dict[str, float | None]:
        facts = {"episodes": len(self._returns.ended), "mean_return": self._returns.mean}
        return {**facts, "levels_covered": len(self._levels)}

    def state_dict(self) -> dict[str, Any]:
        """At the end of a BLOCK only: checksums in the making cannot be saved."""
        return {
            "actions": np.concatenate(self._actions).tobytes(),
            "sums": self._sums,
            **self._returns.state_dict(),
            "levels": sorted(self._levels),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        actions = np.frombuffer(state["actions"], np.uint8).reshape(-1, len(self._hashers))
        self._actions, self.n_steps = [actions], len(actions)
        self._sums = [(list(logic), list(pixels)) for logic, pixels in state["sums"]]
        self._returns.load_state_dict(state)
        self._levels = set(state["levels"])


class Replay:
    """Iterates over the blocks of a take and verifies every checksum on the way.

    Logic that differs stops with an error. Pixels that differ (another CPU or system may render
    differently) are counted in `pixel_mismatches`. Drawn with `looks`, or by other options of the
    suite (`drawn`), it has other pixels, which nothing is known of; with looks the level of a step
    is its look.
    """

    def __init__(
        self,
        recording: Recording,
        take: Take,
        threads: int | None = None,
        looks: Draw | None = None,
        drawn: Mapping[str, Any] | None = None,
    ) -> None:
        self._suite = recording.find_suite()
        self._take = take
        self._env = self._suite.make_env(
            find_game(recording.game)[1],
            take.levels,
            take.n_envs,
            take.seed,
            difficulty=recording.difficulty,
            threads=threads,
            copy=False,
            **(drawn or {}),
        )
        self._own_pixels = not (looks or drawn)
        self._looks, self._begun = looks, np.zeros(take.n_envs, np.int64)
        if looks:
            self._env = Dressed(self._env, wardrobe(looks.kind, recording.game), looks)
        self._recorder = Recorder(take.n_envs)
        self.pixel_mismatches = 0

    def __iter__(self) -> Iterator[Block]:
        actions = self._take.actions
        for block in play_blocks(self._env, lambda t, _: actions[t], len(actions)):
            if self._recorder.add(block):
                self._verify(self._recorder.n_steps // BLOCK - 1)
            yield block if self._looks is None else self._by_look(block, self._looks)
        again = self._recorder.finish(self._env)
        self.returns = again.returns
        if len(actions) % BLOCK:
            self._verify(len(again.logic) - 1)
        self._env.close()

    def _by_look(self, block: Block, look_of: Draw) -> Block:
        ended = block.terminated | block.truncated
        begun = self._begun[:, None] + ended.cumsum(1) - ended
        self._begun = begun[:, -1] + ended[:, -1]
        look = np.empty_like(block.level)
        for slot, episodes in enumerate(begun):
            for episode in np.unique(episodes).tolist():
                look[slot, episodes == episode] = look_of(slot, episode)
        return replace(block, level=look)

    def _verify(self, block: int) -> None:
        logic, pixels = self._recorder.checksums
        wrong = np.flatnonzero(logic[block] != self._take.logic[block])
        if wrong.size:
            raise UserError(
                f"the replay departs from the recording in steps {block * BLOCK}.."
                f"{min((block + 1) * BLOCK, self._take.n_steps) - 1} of slot {wrong[0]} (rewards, "
                f"levels or episode ends differ): most likely another build of {self._suite.name}; "
                f"gsf needs {self._suite.replays_with}."
            )
        if self._own_pixels:
            self.pixel_mismatches += int((pixels[block] != self._take.pixels[block]).sum())
