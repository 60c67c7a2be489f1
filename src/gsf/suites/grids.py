"""Grids: small worlds whose best play is known, to compare methods in minutes.

An agent walks from its start to a goal. `looks`: one world, every level drawn with colours of its
own, which is the paper's formal setting (same dynamics and rewards, another observation function).
`layouts`: every level a world of its own, drawn alike. `both`. `scaled`: looks, and the goal is
worth 1 on even levels and 100 on odd ones.
"""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from gsf.core.errors import UserError
from gsf.suites import Game, Levels, Suite, checked

Array = NDArray[Any]
ACTIONS = ("up", "right", "down", "left")
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
WALLS = 0.3  # of the cells
PIXELS = 4  # of a cell, a side
STEPS = 4  # until an episode is cut short, for each cell of a side
GREYS = 24  # how far a look's texture brightens or darkens
CONTRAST = 150  # least sum of differences between two colours of a look
# A wall fills its cell, a goal is a ring, an agent a cross: shapes stay, colours are the look's.
SHAPES = np.array(
    [
        [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]],
        [[1, 1, 1, 1], [1, 0, 0, 1], [1, 0, 0, 1], [1, 1, 1, 1]],
        [[1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]],
    ],
    bool,
)
LAYOUT, LOOK, TURNS = 0, 1, 2  # streams of randomness


class Kind(NamedTuple):
    """What every level has of its own."""

    layout: bool
    look: bool
    scale: bool = False


KINDS = {
    "looks": Kind(layout=False, look=True),
    "layouts": Kind(layout=True, look=False),
    "both": Kind(layout=True, look=True),
    "scaled": Kind(layout=False, look=True, scale=True),
}


@dataclass(frozen=True, eq=False)
class World:
    """A level: where each action leads from each cell, what a goal is worth, how it is drawn."""

    step: Array  # [cells, 4]: the next cell
    start: int
    goal: int
    scale: float
    pictures: Array  # uint8 [cells, H, W, 3], the agent being there

    def action_values(self, gamma: float) -> Array:
        """Most that can be earned from a cell on after an action, discounted: [cells, 4]."""
        reward: Array = self.scale * (self.step == self.goal)
        q = reward
        for _ in range(len(self.step)):  # no way is longer
            value = q.max(1)
            value[self.goal] = 0  # what comes after it
            q = reward + gamma * value[self.step]
        return q

    def values(self, gamma: float) -> Array:
        """The same of the best action: [cells]."""
        best: Array = self.action_values(gamma).max(1)
        return best


def side(game: str) -> int:
    """Of grid5_looks 5."""
    return int(game.partition("_")[0].removeprefix("grid"))


@functools.lru_cache(maxsize=512)
def world(game: str, level: int) -> World:
    n, kind = side(game), KINDS[game.partition("_")[2]]
    walls, start, goal = _layout(n, level if kind.layout else 0)
    scale = 100.0 if kind.scale and level % 2 else 1.0
    pictures = _draw(walls, goal, level if kind.look else 0)
    return World(_steps(walls), start, goal, scale, pictures)


def _steps(walls: Array) -> Array:
    """Where the actions lead; into a wall or over the edge nowhere."""
    n = len(walls)
    cells = np.arange(n * n)
    row, column = np.divmod(cells, n)
    steps = []
    for down, right in MOVES:
        to_row, to_column = (row + down).clip(0, n - 1), (column + right).clip(0, n - 1)
        steps.append(np.where(walls[to_row, to_column], cells, to_row * n + to_column))
    return np.stack(steps, 1)


@functools.lru_cache(maxsize=512)
def _layout(n: int, number: int) -> tuple[Array, int, int]:
    """Walls [n,n], start and goal: the way between them is at least as long as two sides."""
    rng = np.random.default_rng([LAYOUT, n, number])
    while True:
        walls = rng.random((n, n)) < WALLS
        start, goal = rng.choice(n * n, 2, replace=False).tolist()
        walls.flat[[start, goal]] = False
        if 2 * (n - 1) <= distances(_steps(walls), goal)[start] < np.inf:
            return walls, start, goal


def distances(step: Array, goal: int) -> Array:
    """Steps from each cell to the goal; infinite where there is no way."""
    far = np.full(len(step), np.inf)
    far[goal] = 0
    for _ in range(len(step)):
        far = np.minimum(far, 1 + far[step].min(1))
    return far


def _draw(walls: Array, goal: int, look: int) -> Array:
    """Pictures of the world with the agent in each cell."""
    rng = np.random.default_rng([LOOK, look])
    n, cells = len(walls), walls.size
    ground, *inks = _colours(rng)
    things = np.full((cells, cells), -1)  # [agent's cell, cell]: index of SHAPES
    things[:, walls.ravel()], things[:, goal] = 0, 1
    np.fill_diagonal(things, 2)
    pictures = np.broadcast_to(ground, (cells, cells, PIXELS, PIXELS, 3)).copy()
    for thing, (shape, ink) in enumerate(zip(SHAPES, inks, strict=True)):
        pictures[things == thing] = np.where(shape[..., None], ink, ground)
    pictures = pictures.reshape(cells, n, n, PIXELS, PIXELS, 3).swapaxes(2, 3)
    pictures = pictures.reshape(cells, n * PIXELS, n * PIXELS, 3)
    texture = rng.integers(-GREYS, GREYS + 1, pictures.shape[1:3])[..., None]
    drawn: Array = (pictures + texture).clip(0, 255).astype(np.uint8)
    return drawn


def _colours(rng: np.random.Generator) -> Array:
    """Of ground, wall, goal and agent, [4,3], none too much like another."""
    while True:
        colours = rng.integers(0, 256, (1 + len(SHAPES), 3))
        apart = np.abs(colours[:, None] - colours).sum(-1) + CONTRAST * np.eye(len(colours))
        if apart.min() >= CONTRAST:
            return colours


class GridEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Worlds side by side. A slot's state is a few numbers, the levels to come among them."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 (Gymnasium's interface)

    def __init__(
        self,
        game: str,
        levels: Levels,
        n_envs: int,
        seed: int,
        *,
        difficulty: str | None = None,
        threads: int | None = None,
        copy: bool = True,
    ) -> None:
        self.levels = levels = checked(levels, n_envs)
        self.game, self.num_envs, self.seed = game, n_envs, seed
        listed = not isinstance(levels, range)
        self._lists = [levels[slot::n_envs] for slot in range(n_envs)] if listed else None
        self.step_limit = STEPS * side(game)
        self.single_observation_space = gymnasium.spaces.Box(
            0, 255, GAMES[game].obs_shape, np.uint8
        )
        self.single_action_space = gymnasium.spaces.Discrete(len(ACTIONS))
        self.observation_space = batch_space(self.single_observation_space, n_envs)
        self.action_space = batch_space(self.single_action_space, n_envs)
        self._start()

    def _start(self) -> None:
        nothing = np.zeros(self.num_envs, np.int64)
        state = {"stream": np.arange(self.num_envs), "begun": nothing, "cell": nothing}
        self._put({**state, "t": nothing})
        self._cell[:] = self._origin

    def _put(self, state: dict[str, Any]) -> None:
        """All slots as said; `stream` and `begun` tell a slot's level, and those to come."""
        self._stream, self._begun = np.array(state["stream"]), np.array(state["begun"])
        self._cell, self._t = np.array(state["cell"]), np.array(state["t"])
        n, cells = self.num_envs, side(self.game) ** 2
        self._level = np.empty(n, np.int32)
        self._worlds: list[Any] = [None] * n
        self._step = np.empty((n, cells, len(ACTIONS)), np.int64)
        self._pictures = np.empty((n, cells, *GAMES[self.game].obs_shape), np.uint8)
        self._origin, self._goal = np.empty(n, np.int64), np.empty(n, np.int64)
        self._scale = np.empty(n)
        for slot in range(n):
            self._place(slot)

    def _place(self, slot: int) -> None:
        """The slot's world, of the level that it is on."""
        stream, begun = int(self._stream[slot]), int(self._begun[slot])
        if self._lists is not None:
            level = int(self._lists[stream][begun % len(self._lists[stream])])
        else:
            rng = np.random.default_rng([TURNS, self.seed, stream, begun])
            level = self.levels[int(rng.integers(len(self.levels)))]
        now = world(self.game, level)
        self._level[slot], self._worlds[slot] = level, now
        self._step[slot], self._pictures[slot] = now.step, now.pictures
        self._origin[slot], self._goal[slot], self._scale[slot] = now.start, now.goal, now.scale

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        self.seed = self.seed if seed is None else seed
        self._start()
        obs, level = self.observe()
        return obs, {"level": level}

    def observe(self) -> tuple[Array, Array]:
        """The current observations and their levels, without a step."""
        return self._pictures[np.arange(self.num_envs), self._cell], self._level.copy()

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        self._cell = self._step[np.arange(self.num_envs), self._cell, np.asarray(actions)]
        self._t += 1
        terminated = self._cell == self._goal
        truncated = (self._t == self.step_limit) & ~terminated
        reward = np.where(terminated, self._scale, 0.0)
        ended = terminated | truncated
        self._begun += ended
        for slot in np.flatnonzero(ended):
            self._place(slot)
        self._cell[ended], self._t[ended] = self._origin[ended], 0
        obs, level = self.observe()
        return obs, reward, terminated, truncated, {"level": level, "completed": terminated.copy()}

    def best_actions(self) -> Array:
        """In every slot the first of the best."""
        worlds = zip(self._worlds, self._cell, strict=True)
        return np.array([_best(world)[cell] for world, cell in worlds])

    def latent_state(self) -> list[bytes]:
        rows = np.stack([self._level, self._cell, self._t], 1)
        return [row.tobytes() for row in rows.astype("<i8")]

    def state_dict(self) -> dict[str, Any]:
        state = {"stream": self._stream, "begun": self._begun, "cell": self._cell, "t": self._t}
        return {name: numbers.tolist() for name, numbers in state.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._put(state)

    def save(self, slot: int) -> tuple[int, ...]:
        return tuple(numbers[slot] for numbers in self.state_dict().values())

    def restore(self, slot: int, state: tuple[int, ...]) -> None:
        self._stream[slot], self._begun[slot], self._cell[slot], self._t[slot] = state
        self._place(slot)

    def keep(self, slots: Array) -> Array:
        """Goes on with these slots alone, each as if the others were still there."""
        kept = {name: np.array(numbers)[slots] for name, numbers in self.state_dict().items()}
        self.num_envs = len(slots)
        self._put(kept)
        return self.observe()[0]


@functools.lru_cache(maxsize=512)
def _best(now: World) -> Array:
    best: Array = now.action_values(0.9).argmax(1)
    return best


def true_values(
    game: str, level: Array, t: Array, action: Array, terminated: Array, gamma: float
) -> Array:
    """Of every row of whole episodes the most that can be earned from there on, discounted."""
    found, cell, now = np.empty(len(t)), 0, None
    values: dict[int, Array] = {}
    for i, (number, first) in enumerate(zip(level.tolist(), t == 0, strict=True)):
        now = world(game, number)
        if number not in values:
            values[number] = now.values(gamma)
        cell = now.start if first else cell
        found[i] = values[number][cell]
        cell = int(now.step[cell, action[i]])
        if (cell == now.goal) != terminated[i]:
            raise UserError(f"row {i} is no play of {game}: its episode ends elsewhere.")
    return found


def _game(n: int, kind: Kind) -> Game:
    best = 50.5 if kind.scale else 1.0  # of as many even levels as odd ones
    return Game(
        (n * PIXELS, n * PIXELS, 3), ACTIONS, score_range=(0.0, best), published=(best, best)
    )


GAMES = {f"grid{n}_{name}": _game(n, kind) for n in (5, 7, 9) for name, kind in KINDS.items()}
grids = Suite(
    "grids",
    GAMES,
    GridEnv,
    training_levels=range(16),
    published_by="the best play",
    replays_with="its own files",
    true_values=true_values,
    on_request=True,
)
