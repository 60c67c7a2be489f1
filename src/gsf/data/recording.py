"""Recordings: a dataset without its pixels. Where a suite repeats itself, actions are enough.

A file is magic, format, header (JSON) and blocks, each under a CRC of its own: any damaged byte
is found and named. Per slot and 1,024 steps two checksums of the play, one of its logic (level,
reward, ends) and one of its pixels, prove a replay right. A recording is one or more takes.
"""

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gsf.core.errors import UserError
from gsf.core.files import digest, write_atomic
from gsf.core.schema import COUNT, DIGEST, NUMBER, POSITIVE, SEED, Maybe, Where, between, parse_json
from gsf.core.sealed import checked
from gsf.data.tiers import find_recording
from gsf.suites import Suite, facts_of, find_game

FORMAT = 1
MAGIC = b"gsf-recording\n"
BLOCK = 1024  # steps under one checksum
MOST_LEVELS = 1_000_000  # that a take may declare: they are listed
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

    recording = Recording.load("coinrun")
    len(recording), recording.game, recording.digest
    """

    game: str
    difficulty: str
    takes: tuple[Take, ...]
    # Of play in a user's own environment: its `spec` (file.py:make), the file's digest `code`, and
    # `obs_shape` and `n_actions`.
    env: dict[str, Any] | None = None

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
            said = {f.name: getattr(take, f.name) for f in fields(take) if f.name not in _ARRAYS}
            shape = {"n_steps": take.n_steps, "n_envs": take.n_envs}
            takes.append({**said, **shape, "blocks": [[len(b), zlib.crc32(b)] for b in packed]})
        facts: dict[str, Any] = {"game": self.game, "mode": self.difficulty, "takes": takes}
        facts |= {} if self.env is None else {"env": self.env}
        header = json.dumps(facts).encode()
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
        header = _header(header_bytes, name)
        sizes = [size for take in header["takes"] for size, _ in take["blocks"]]
        expected = head + header_size + sum(sizes)
        if len(data) != expected:
            what = "truncated" if len(data) < expected else "too long"
            raise UserError(f"{name} is {what}: {len(data):,} bytes instead of {expected:,}.")
        env = header.get("env")
        n_actions = env["n_actions"] if env else len(facts_of(header["game"]).actions)
        takes, at = [], head + header_size
        for number, facts in enumerate(header["takes"]):
            size = sum(size for size, _ in facts["blocks"])
            block = data[at : at + size]
            takes.append(_read_take(block, facts, n_actions, f"{name}: take {number}"))
            at += size
        return cls(header["game"], header["mode"], tuple(takes), env)

    def find_suite(self) -> Suite:
        """What plays it again; a user's environment only where the user has named its file."""
        if self.env is not None:
            from gsf.suites.gymnasium import name_again  # late: only such suites need it

            name_again(self.env["spec"], self.env["code"], self.game, self.levels[0])
        return find_game(self.game)[0]


def _header(data: bytes, name: str) -> dict[str, Any]:
    """What a header of a right checksum says, if it can be true."""
    try:
        return checked(name, parse_json(data), _HEADER)
    except ValueError as error:
        raise UserError(f"{name} has a header that is no JSON: {error}; record it again.") from None


def _fits_its_blocks(take: dict[str, Any]) -> bool:
    """The blocks of its actions, and two of the checksums of each block and slot."""
    n_blocks, sizes = -(-take["n_steps"] // BLOCK), [size for size, _ in take["blocks"]]
    sums = 8 * n_blocks * take["n_envs"]
    return len(sizes) == n_blocks + 2 and sizes[-2:] == [sums, sums]


_RETURNS = {"episodes", "mean_return", "levels_covered"}
_TAKE = {
    "seed": SEED,
    "first_level": between(0, 2**31 - MOST_LEVELS),
    "n_levels": between(1, MOST_LEVELS),
    "epsilon": dict,
    "policy": {"frames": Maybe(COUNT), "digest": Maybe(DIGEST)},
    "returns": Where(
        {str: (None, NUMBER)}, "empty or all of them", lambda x: not x or {*x} >= _RETURNS
    ),
    "n_steps": POSITIVE,
    "n_envs": POSITIVE,
    "blocks": [Where([COUNT], "a size and a checksum", lambda pair: len(pair) == 2)],
}
_HEADER = {
    "game": str,
    "mode": str,
    "env": Maybe({"spec": str, "code": (None, DIGEST), "n_actions": between(1, 256)}),
    "takes": Where([Where(_TAKE, "a take with its blocks", _fits_its_blocks)], "some", bool),
}


def _read_take(data: bytes, header: dict[str, Any], n_actions: int, where: str) -> Take:
    n_steps, n_envs = header["n_steps"], header["n_envs"]
    starts = range(0, n_steps, BLOCK)
    names = [f"actions of steps {at}..{min(at + BLOCK, n_steps) - 1}" for at in starts]
    names += ["checksums of the logic", "checksums of the pixels"]
    blocks, at = [], 0
    for name, (size, crc) in zip(names, header["blocks"], strict=True):
        block = data[at : at + size]
        if zlib.crc32(block) != crc:
            raise UserError(f"{where}: the {name} are damaged; get the file again.")
        blocks.append(block)
        at += size
    sums = [np.frombuffer(b, "<u8").reshape(-1, n_envs) for b in blocks[-2:]]
    rows = []
    for first, block in zip(starts, blocks, strict=False):
        n = min(BLOCK, n_steps - first)
        rows.append(_unpacked(block, n_envs, n))
        if rows[-1] is None or rows[-1].max() >= n_actions:
            raise UserError(f"{where}: the actions do not fit the header; record it again.")
    facts = {f.name: header[f.name] for f in fields(Take) if f.name not in _ARRAYS}
    return Take(actions=np.concatenate(rows), logic=sums[0], pixels=sums[1], **facts)


def _unpacked(block: bytes, n_envs: int, n: int) -> Any:
    """Actions [n,n_envs]; None if there are more or fewer, however many more."""
    packed = zlib.decompressobj()
    try:
        actions = packed.decompress(block, n * n_envs + 1)
    except zlib.error:
        return None
    if len(actions) != n * n_envs or not packed.eof or packed.unused_data:
        return None
    return np.frombuffer(actions, np.uint8).reshape(n_envs, n).T


def concatenate(recordings: Sequence[Recording]) -> Recording:
    """Play of the same game, one take after the other."""
    kinds = {(r.game, r.difficulty, (r.env or {}).get("code", "")) for r in recordings}
    if len(kinds) != 1:
        shown = ", ".join(sorted(f"{kind[0]} ({kind[1]}) {kind[2]}".strip() for kind in kinds))
        raise UserError(f"only recordings of one game and difficulty can be joined, got {shown}.")
    takes = tuple(take for r in recordings for take in r.takes)
    return replace(recordings[0], takes=takes)
