"""Looks: any suite's games with other pictures of the same states (the paper's formal setting).

coinrun@filters: each level has its colours, brightness and texture; any game of images has these.
coinrun@skins: Procgen's own pictures, another background or plain shapes (`_skins.py`).
A level is a look. What it looks like is by chance and fixed; what is played under it is the game's
own level L modulo the number of layouts: 200, or N of coinrun@filters-N.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from gsf.core.errors import UserError
from gsf.core.images import turned_hue
from gsf.suites import Array, Game, Levels, Suite, find_game, known_facts
from gsf.suites._skins import Skins

LookKind = Literal["filters", "skins"]
LAYOUTS = 200
GAIN = (0.6, 1.1)  # brightness
SHIFT = 40  # of all pixels, or of a corner
TEXTURE = 0.15  # how much brighter or darker a block is
BLOCKS = 16  # of a texture, a side
LOOK, TURNS = 3, 4  # streams of randomness
EPISODES = 10_000  # of each slot, after which those drawn of a range come again
_NAME = re.compile(
    rf"(?P<game>.+)@(?P<kind>{'|'.join(get_args(LookKind))})(?:-(?P<layouts>[1-9]\d*))?"
)


class Wardrobe(Protocol):
    """Draws states otherwise: it changes a slot as its episode begins, or every image."""

    def check(self, looks: int, first: int = 0) -> None:
        """One sentence if there are not so many from `first` on."""
        ...

    def dress(self, env: Any, slot: int, look: int) -> None: ...

    def paint(self, obs: Array, looks: Array) -> Array: ...


class Filter(NamedTuple):
    """out = gain * (image @ colours) + shift, per pixel."""

    colours: Array  # [C,C]
    gain: Array  # [H,W,1]
    shift: Array  # [H,W,C]


@functools.lru_cache(maxsize=1024)
def draw_filter(shape: tuple[int, ...], look: int) -> Filter:
    """Of images [H,W,C]: hue or channels turned, darker or brighter, a texture, a tinted corner."""
    height, width, channels = shape
    rng = np.random.default_rng([LOOK, look])
    colours = np.eye(channels)[rng.permutation(channels)]
    if channels == 3:
        colours = colours @ turned_hue(rng.uniform(0, 2 * np.pi))
    blocks = rng.uniform(1 - TEXTURE, 1 + TEXTURE, (BLOCKS, BLOCKS))
    rows, columns = (np.arange(n) * BLOCKS // n for n in (height, width))
    gain = rng.uniform(*GAIN) * blocks[rows][:, columns]
    down, right = np.linspace(0, 1, height)[:, None], np.linspace(0, 1, width)[None]
    corners = rng.uniform(-SHIFT, SHIFT, (3, channels))
    shift = corners[0] + down[..., None] * corners[1] + right[..., None] * corners[2]
    return Filter(*(x.astype(np.float32) for x in (colours, gain[..., None], shift)))


@functools.lru_cache(maxsize=2)
def _filters(shape: tuple[int, ...], looks: tuple[int, ...]) -> Filter:
    """Those of all slots; they stay while episodes go on."""
    return Filter(*map(np.stack, zip(*(draw_filter(shape, look) for look in looks), strict=True)))


class Filters:
    """Pictures of any game, changed after they are drawn."""

    def check(self, looks: int, first: int = 0) -> None:
        """There are as many as anybody wants."""

    def dress(self, env: Any, slot: int, look: int) -> None:
        """The state stays as it is."""

    def paint(self, obs: Array, looks: Array) -> Array:
        colours, gain, shift = _filters(obs.shape[1:], tuple(looks.tolist()))
        pixels = obs.reshape(len(obs), -1, obs.shape[-1]).astype(np.float32)
        mixed = (pixels @ colours).reshape(obs.shape)
        painted: Array = np.clip(gain * mixed + shift, 0, 255).astype(np.uint8)
        return painted


def wardrobe(kind: str, game: str) -> Wardrobe:
    """How a game is drawn otherwise; one sentence if it cannot be."""
    suite, name = find_game(game)
    if kind == "filters":
        return Filters()
    if suite.name != "procgen":
        raise UserError(f"{game} has no skins, which are Procgen's; filters are for any game.")
    return Skins(suite, name)


class Draw(NamedTuple):
    """By chance: which of so many looks each episode of a slot has; its views are all unlike."""

    kind: str
    n: int
    seed: int
    view: int = 0
    first: int = 0

    def __call__(self, slot: int, episode: int) -> int:
        rng = np.random.default_rng([TURNS, self.seed, slot, episode])
        return self.first + int(rng.permutation(self.n)[self.view])


class Dressed:
    """A vector env drawn otherwise. `look_of(slot, episode)` says how; `info["look"]` repeats it.

    With `by_look` it is what `info["level"]` says, too.
    """

    def __init__(self, env: Any, clothes: Wardrobe, look_of: Any, by_look: bool = False) -> None:
        self._env, self._clothes, self._look_of, self._by_look = env, clothes, look_of, by_look
        self.num_envs, self.seed = env.num_envs, env.seed
        self.levels: Levels = env.levels
        if hasattr(env, "keep"):
            self.keep = self._keep
        self._start(range(self.num_envs), [0] * self.num_envs)

    def _start(self, slots: Any, begun: Any) -> None:
        self._slot, self._begun = np.array(slots), np.array(begun)
        self.look = np.empty(self.num_envs, np.int32)
        for slot in range(self.num_envs):
            self._dress(slot)

    def _dress(self, slot: int, look: int | None = None) -> None:
        if look is None:
            look = self._look_of(int(self._slot[slot]), int(self._begun[slot]))
        self.look[slot] = look
        self._clothes.dress(self._env, slot, look)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, **options: Any) -> tuple[Array, dict[str, Any]]:
        self._env.reset(**options)
        self._start(range(self.num_envs), [0] * self.num_envs)
        obs, level = self.observe()
        return obs, {"level": level, "look": self.look.copy()}

    def observe(self) -> tuple[Array, Array]:
        obs, level = self._env.observe()
        return self._clothes.paint(obs, self.look), self.look.copy() if self._by_look else level

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        _, reward, terminated, truncated, info = self._env.step(actions)
        for slot in np.flatnonzero(terminated | truncated):
            self._begun[slot] += 1
            self._dress(slot)
        obs, level = self.observe()
        info = {**info, "level": level, "look": self.look.copy()}
        return obs, reward, terminated, truncated, info

    def state_dict(self) -> dict[str, Any]:
        begun = {"slot": self._slot.tolist(), "begun": self._begun.tolist()}
        return {"env": self._env.state_dict(), **begun}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._env.load_state_dict(state["env"])
        self._start(state["slot"], state["begun"])

    def save(self, slot: int) -> Any:
        facts = (self._slot, self._begun, self.look)
        return *(int(x[slot]) for x in facts), self._env.save(slot)

    def restore(self, slot: int, state: Any) -> None:
        self._slot[slot], self._begun[slot], look, inside = state
        self._env.restore(slot, inside)
        self._dress(slot, look)

    def _keep(self, slots: NDArray[np.int64]) -> Array:
        self._env.keep(slots)
        self.num_envs = len(slots)
        self._start(self._slot[slots], self._begun[slots])
        return self.observe()[0]

    def close(self) -> None:
        self._env.close()


class Looked(Mapping[str, Game]):
    """The games of all suites under looks; there is no end to them, so that none is listed."""

    def __getitem__(self, name: str) -> Game:
        game, _, _ = parts(name)
        facts = known_facts(game)
        if facts is None:
            raise KeyError(name)
        return replace(facts, published=None)  # which are of other levels, not of other looks

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def parts(name: str) -> tuple[str, str, int]:
    """Game, kind and number of layouts of coinrun@filters-50."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise KeyError(name)
    return match["game"], match["kind"], int(match["layouts"] or LAYOUTS)


def inside(name: str) -> str:
    """The game that is played: coinrun of coinrun@filters, and of coinrun."""
    return parts(name)[0] if _NAME.fullmatch(name) else name


def named(game: str, kind: str, layouts: int) -> str:
    return f"{game}@{kind}-{layouts}"


def make_env(
    game: str,
    levels: Levels,
    n_envs: int,
    seed: int,
    *,
    difficulty: str | None = None,
    threads: int | None = None,
    copy: bool = True,
) -> Dressed:
    """A list is played in turn; from a range each slot draws its levels, by the seed."""
    played, kind, layouts = parts(game)
    suite, name = find_game(played)
    order: Any = levels
    if isinstance(levels, range):
        drawn = np.random.default_rng([TURNS, seed]).integers(len(levels), size=EPISODES * n_envs)
        order = (levels.start + drawn).tolist()
    turns = [order[slot::n_envs] for slot in range(n_envs)]
    options: dict[str, Any] = {"difficulty": None if difficulty == "default" else difficulty}
    options |= {"threads": threads, "copy": copy}
    env = suite.make_env(name, [level % layouts for level in order], n_envs, seed, **options)
    found = Dressed(
        env,
        wardrobe(kind, played),
        lambda slot, n: int(turns[slot % n_envs][n % len(turns[slot % n_envs])]),
        by_look=True,
    )
    found.levels = levels
    return found


looks = Suite(
    "looks",
    Looked(),
    make_env,
    training_levels=range(16),
    replays_with="what the game itself needs",
    on_request=True,
)
