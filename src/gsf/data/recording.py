"""Recordings: a dataset without its pixels. Where a suite repeats itself, actions are enough.

A file is magic, format, header (JSON) and blocks, each under a CRC of its own: any damaged byte
is found and named. Per slot and 1,024 steps two checksums of the play, one of its logic (level,
reward, ends) and one of its pixels, prove a replay right. A recording is one or more takes.
"""

import itertools
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from gsf.core.errors import UserError
from gsf.core.files import digest, write_atomic
from gsf.suites import ReplayableEnv, facts_of, find_game

FORMAT = 1
MAGIC = b"gsf-recording\n"
BLOCK = 1024  # steps under one checksum
BLOCK_BYTES = 1 << 25  # memory of each of a play's two buffers
SHIPPED = Path(__file__).parent / "shipped"
_LOGIC = np.dtype([("level", "<i4"), ("reward", "<f4"), ("ends", "u1")])  # ends: 1 or 2 truncated
_ARRAYS = ("actions", "logic", "pixels")
_PREFIX = struct.Struct("<III")  # format, bytes of the header, CRC of the header


@dataclass(frozen=True)
class Take:
    """Play of one vector env from its start: what was done, and checksums of what came of it."""

    seed: int
    first_level: int
    n_levels: int
    actions: NDArray[np.uint8]  # [n_steps, n_envs]
    logic: NDArray[np.uint64]  # [n_blocks, n_envs]
    pixels: NDArray[np.uint64]  # [n_blocks, n_envs]
    epsilon: dict[str, Any] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)  # where the actions came from
    returns: dict[str, float | None] = field(default_factory=dict)  # see Recorder.returns

    @property
    def n_steps(self) -> int:
        return self.actions.shape[0]

    @property
    def n_envs(self) -> int:
        return self.actions.shape[1]

    @property
    def levels(self) -> range:
        return range(self.first_level, self.first_level + self.n_levels)


@dataclass(frozen=True)
class Recording:
    """A game's play without its pixels, a few bits a step, which replays to the very same frames.

    recording = Recording.load("coinrun"); len(recording), recording.game, recording.digest
    """

    game: str
    difficulty: str
    takes: tuple[Take, ...]

    def __len__(self) -> int:
        return sum(take.actions.size for take in self.takes)

    @property
    def levels(self) -> list[int]:
        """The levels that play was drawn from, in order."""
        return sorted({level for take in self.takes for level in take.levels})

    @property
    def digest(self) -> str:
        return digest(self.to_bytes())

    def cut(self, transitions: int) -> Self:
        """The first slots of every take, over its whole time: epsilon keeps its range.

        Slot i of a vector env plays the same whatever the number of slots, so that a cut
        replays without the rest. Whole slots are kept: a few more transitions than asked for.
        """
        if not 0 < transitions <= len(self):
            raise UserError(
                f"cannot take {transitions} transitions of a recording that has {len(self)}."
            )
        if transitions == len(self):
            return self
        shares = (transitions * take.actions.size / len(self) for take in self.takes)
        per_slot = (take.n_steps for take in self.takes)
        return self.first_slots(
            [int(np.ceil(round(share / n, 9))) for share, n in zip(shares, per_slot, strict=True)]
        )

    def first_slots(self, counts: Sequence[int]) -> Self:
        """So many of each take."""
        kept = (
            take
            if n == take.n_envs
            else replace(
                take,
                actions=take.actions[:, :n],
                logic=take.logic[:, :n],
                pixels=take.pixels[:, :n],
                returns={},  # known of the whole only; a replay tells those of the cut
            )
            for take, n in zip(self.takes, counts, strict=True)
        )
        return replace(self, takes=tuple(kept))

    def to_bytes(self) -> bytes:
        blocks: list[bytes] = []
        takes = []
        for take in self.takes:
            # Slot by slot, time runs along a row: repeated actions stand together.
            rows = [take.actions[at : at + BLOCK].T for at in range(0, take.n_steps, BLOCK)]
            packed = [zlib.compress(np.ascontiguousarray(row).tobytes(), 9) for row in rows]
            packed += [take.logic.astype("<u8").tobytes(), take.pixels.astype("<u8").tobytes()]
            blocks += packed
            facts = {f.name: getattr(take, f.name) for f in fields(take) if f.name not in _ARRAYS}
            shape = {"n_steps": take.n_steps, "n_envs": take.n_envs}
            takes.append({**facts, **shape, "blocks": [[len(b), zlib.crc32(b)] for b in packed]})
        header = json.dumps({"game": self.game, "mode": self.difficulty, "takes": takes}).encode()
        prefix = _PREFIX.pack(FORMAT, len(header), zlib.crc32(header))
        return b"".join([MAGIC, prefix, header, *blocks])

    def save(self, path: Path) -> None:
        write_atomic(Path(path), self.to_bytes())

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Reads and checks a file, or a shipped recording by its name."""
        path = find_recording(path)
        with open(path, "rb") as file:
            return cls.from_bytes(file.read(), str(path))

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "recording") -> Self:
        head = len(MAGIC) + _PREFIX.size
        if data[: len(MAGIC)] != MAGIC:
            raise UserError(f"{name} is not a gsf recording (its first bytes are others).")
        if len(data) < head:
            raise UserError(f"{name} is truncated: it ends inside its header.")
        version, header_size, crc = _PREFIX.unpack(data[len(MAGIC) : head])
        if version != FORMAT:
            raise UserError(f"{name} has recording format {version}; this gsf reads {FORMAT}.")
        header_bytes = data[head : head + header_size]
        if zlib.crc32(header_bytes) != crc:
            raise UserError(f"{name} is damaged or truncated: its header fails its checksum.")
        header = json.loads(header_bytes)
        sizes = [size for take in header["takes"] for size, _ in take["blocks"]]
        expected = head + header_size + sum(sizes)
        if len(data) != expected:
            what = "truncated" if len(data) < expected else "too long"
            raise UserError(f"{name} is {what}: {len(data):,} bytes instead of {expected:,}.")
        n_actions = len(facts_of(header["game"]).actions)
        takes, at = [], head + header_size
        for number, facts in enumerate(header["takes"]):
            size = sum(size for size, _ in facts["blocks"])
            block = data[at : at + size]
            takes.append(_read_take(block, facts, n_actions, f"{name}: take {number}"))
            at += size
        return cls(header["game"], header["mode"], tuple(takes))


def _read_take(data: bytes, header: dict[str, Any], n_actions: int, where: str) -> Take:
    n_steps, n_envs = header.pop("n_steps"), header.pop("n_envs")
    starts = range(0, n_steps, BLOCK)
    names = [f"actions of steps {at}..{min(at + BLOCK, n_steps) - 1}" for at in starts]
    names += ["checksums of the logic", "checksums of the pixels"]
    blocks, at = [], 0
    for name, (size, crc) in zip(names, header.pop("blocks"), strict=True):
        block = data[at : at + size]
        if zlib.crc32(block) != crc:
            raise UserError(f"{where}: the {name} are damaged; get the file again.")
        blocks.append(block)
        at += size
    rows = [np.frombuffer(zlib.decompress(b), np.uint8).reshape(n_envs, -1).T for b in blocks[:-2]]
    sums = [np.frombuffer(b, "<u8").reshape(-1, n_envs) for b in blocks[-2:]]
    actions = np.concatenate(rows)
    if actions.shape != (n_steps, n_envs) or actions.max() >= n_actions:
        raise UserError(f"{where}: the actions do not fit the header; record it again.")
    return Take(actions=actions, logic=sums[0], pixels=sums[1], **header)


def concatenate(recordings: Sequence[Recording]) -> Recording:
    """Play of the same game, one take after the other."""
    kinds = {(r.game, r.difficulty) for r in recordings}
    if len(kinds) != 1:
        shown = ", ".join(sorted(f"{game} ({difficulty})" for game, difficulty in kinds))
        raise UserError(f"only recordings of one game and difficulty can be joined, got {shown}.")
    takes = tuple(take for r in recordings for take in r.takes)
    return replace(recordings[0], takes=takes)


def find_recording(path: Path | str) -> Path:
    shipped = SHIPPED / f"{path}.gsfrec"
    found = shipped if shipped.parent == SHIPPED and shipped.is_file() else Path(path)
    if not found.is_file():
        names = ", ".join(p.stem for p in list_shipped()) or "none"
        raise UserError(f"no recording at {path}; shipped ones are: {names}.")
    return found


def find_policy(name: Path | str) -> Path:
    """A policy file or the directory of a collect; a shipped policy by its name."""
    shipped = SHIPPED / f"{name}.policy.pt"
    is_shipped = shipped.parent == SHIPPED and shipped.is_file() and not Path(name).exists()
    return shipped if is_shipped else Path(name)


def shipped_policies() -> list[str]:
    return sorted(path.name.removesuffix(".policy.pt") for path in SHIPPED.glob("*.policy.pt"))


def list_shipped() -> list[Path]:
    return sorted(SHIPPED.glob("*.gsfrec"), key=lambda path: path.stem)


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


class Recorder:
    """Takes in the blocks of a play; keeps actions and checksums, and what returns it reached."""

    def __init__(self, n_envs: int) -> None:
        self.n_steps = 0
        self._actions: list[NDArray[np.uint8]] = []
        self._sums: list[tuple[list[int], list[int]]] = []  # of complete BLOCKs
        self._hashers = [(xxhash.xxh3_64(), xxhash.xxh3_64()) for _ in range(n_envs)]
        self._return = np.zeros(n_envs)
        self._returns: list[float] = []
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
        self._see_returns(block.reward, facts["ends"] > 0)
        self._levels.update(np.unique(block.level).tolist())
        self.n_steps += block.action.shape[1]
        if self.n_steps % BLOCK == 0:
            self._close_block()
        return self.n_steps % BLOCK == 0

    def _see_returns(self, reward: NDArray[np.float32], ended: NDArray[np.bool_]) -> None:
        for t in range(reward.shape[1]):
            self._return += reward[:, t]
            if ended[:, t].any():
                self._returns += self._return[ended[:, t]].tolist()
                self._return[ended[:, t]] = 0.0

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
        n = len(self._returns)
        mean = float(np.mean(self._returns)) if n else None
        return {"episodes": n, "mean_return": mean, "levels_covered": len(self._levels)}

    def state_dict(self) -> dict[str, Any]:
        """At the end of a BLOCK only: checksums in the making cannot be saved."""
        return {
            "actions": np.concatenate(self._actions).tobytes(),
            "sums": self._sums,
            "return": self._return.tolist(),
            "returns": self._returns,
            "levels": sorted(self._levels),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        actions = np.frombuffer(state["actions"], np.uint8).reshape(-1, len(self._hashers))
        self._actions, self.n_steps = [actions], len(actions)
        self._sums = [(list(logic), list(pixels)) for logic, pixels in state["sums"]]
        self._return[:] = state["return"]
        self._returns, self._levels = list(state["returns"]), set(state["levels"])


class Replay:
    """Iterates over the blocks of a take and verifies every checksum on the way.

    Logic that differs stops with an error. Pixels that differ (another CPU or system may render
    differently) are counted in `pixel_mismatches`.
    """

    def __init__(self, recording: Recording, take: Take, threads: int | None = None) -> None:
        self._suite, game = find_game(recording.game)
        self._take = take
        self._env = self._suite.make_env(
            game,
            take.levels,
            take.n_envs,
            take.seed,
            difficulty=recording.difficulty,
            threads=threads,
            copy=False,
        )
        self._recorder = Recorder(take.n_envs)
        self.pixel_mismatches = 0

    def __iter__(self) -> Iterator[Block]:
        actions = self._take.actions
        for block in play_blocks(self._env, lambda t, _: actions[t], len(actions)):
            if self._recorder.add(block):
                self._verify(self._recorder.n_steps // BLOCK - 1)
            yield block
        again = self._recorder.finish(self._env)
        self.returns = again.returns
        if len(actions) % BLOCK:
            self._verify(len(again.logic) - 1)
        self._env.close()

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
        self.pixel_mismatches += int((pixels[block] != self._take.pixels[block]).sum())
