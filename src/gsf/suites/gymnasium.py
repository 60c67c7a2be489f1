"""Any Gymnasium environment as a suite: a game is `make(level)` in a file, named by --env.

make(level) gives the environment of a level, which is reset with seed=level: uint8 images, discrete
actions; whatever else it does is said in one sentence. `games` holds what the user has named in
this process and nothing else: a name in data never runs code.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from gsf.core import registry
from gsf.core.errors import UserError
from gsf.core.images import image_shape, to_hwc
from gsf.core.registry import Found, Registry
from gsf.suites import MOST_REWARD, Game, Levels, Suite, checked, turns

Array = NDArray[Any]
COMPLETED = ("completed", "success", "is_success")  # keys of an info that say an episode was won
WAIT = -1  # an action: the slot rests
MOST_ACTIONS = 256  # a recording has a byte for each

factories: Registry[Callable[[int], Any]] = Registry("environment", None, callable, "gsf.envs")
games: dict[str, Game] = {}
_made_by: dict[str, Found[Callable[[int], Any]]] = {}  # of every game


def default_name(spec: str) -> str:
    """What an environment's game is called where nobody says: its file's name."""
    return Path(spec.rpartition(":")[0]).stem or spec


def name_env(spec: str, game: str | None = None, level: int = 0) -> str:
    """The user names an environment: its file is run, one level looked at. Returns its game."""
    return _add(factories.find(spec), game or default_name(spec), level)


def name_again(spec: str, code: str, game: str, level: int) -> None:
    """What a recording names: only if the user has named that file, as it was."""
    if game not in games or code_of(game) != code:
        _add(factories.find_again(spec, code), game, level)


def _add(found: Found[Callable[[int], Any]], game: str, level: int) -> str:
    with contextlib.closing(_Slot(found, level)) as slot:
        names = tuple(str(action) for action in range(slot.n_actions))
        games[game] = Game(slot.obs.shape, names, noop=WAIT)
    _made_by[game] = found
    return game


def spec_of(game: str) -> str:
    return _made_by[game].spec


def code_of(game: str) -> str | None:
    """Digest of the file that a game's environment is in."""
    return _made_by[game].code


class _Slot:
    """An environment on one level, from its start; `actions` have been taken."""

    def __init__(self, found: Found[Callable[[int], Any]], level: int) -> None:
        self.level, self.actions = level, list[int]()
        self._where = f"{found.spec}({level})"
        with _theirs(self._where):
            self._env = found.value(level)
            whole = all(hasattr(self._env, x) for x in ("reset", "step", "action_space"))
            space = self._env.action_space if whole else None
        if not whole:
            kind = type(self._env).__name__
            raise UserError(f"{self._where} gave {kind}, not a Gymnasium environment.")
        if not isinstance(space, gym.spaces.Discrete):
            more = f" {space.dtype} {space.shape}" if isinstance(space, gym.Space) else ""
            raise UserError(
                f"{self._where} has actions {type(space).__name__}{more}; "
                "gsf needs a Discrete action space."
            )
        self.n_actions, self._first_action = int(space.n), int(space.start)
        if self.n_actions > MOST_ACTIONS:
            raise UserError(f"{self._where} has {self.n_actions} actions; {MOST_ACTIONS} at most.")
        where = f"reset of {self._where}"
        with _theirs(where):
            obs, _ = _parts(self._env.reset(seed=level), "obs, info", where)
            self.obs = _image(obs, where)

    def step(self, action: int) -> tuple[float, bool, bool, bool]:
        """Reward, terminated, truncated, and whether the info says that it was won."""
        where = f"step {len(self.actions)} of {self._where}"
        with _theirs(where):
            answer = self._env.step(action + self._first_action)
            names = "obs, reward, terminated, truncated, info"
            obs, reward, terminated, truncated, info = _parts(answer, names, where)
            shape, self.obs = self.obs.shape, _image(obs, where)
            if self.obs.shape != shape:
                raise UserError(
                    f"{where} gives images {list(self.obs.shape)} after {list(shape)}; "
                    "they must be of one shape."
                )
            if not isinstance(info, Mapping):
                raise UserError(f"{where} gives {type(info).__name__} as info, not a dictionary.")
            number = _one(reward, "reward", where)
            if not abs(number) <= MOST_REWARD:
                raise UserError(f"{where} has reward {number}; gsf keeps up to {MOST_REWARD:.2g}.")
            won = next((info[key] for key in COMPLETED if info.get(key) is not None), False)
            flags = {"terminated": terminated, "truncated": truncated, "completed": won}
            over, cut, said = (bool(_one(flag, name, where)) for name, flag in flags.items())
        self.actions.append(action)
        return number, over, cut, said

    def close(self) -> None:
        with contextlib.suppress(Exception):  # it has been played; nothing is lost
            self._env.close()


def _parts(answer: Any, names: str, where: str) -> tuple[Any, ...]:
    """What came back, if there is one of each name."""
    wanted = len(names.split())
    listed = isinstance(answer, tuple | list)
    if listed and len(answer) == wanted:
        return tuple(answer)
    what = f"{len(answer)} values" if listed else type(answer).__name__
    raise UserError(f"{where} gives {what}; Gymnasium's environments give {wanted}: {names}.")


def _image(obs: Any, where: str) -> Array:
    """[H,W,C] uint8, the only image of an observation that is a dictionary."""
    parts = list(obs.values()) if isinstance(obs, Mapping) else [obs]
    arrays = [_array(part) for part in parts]
    images = [x for x in arrays if x.dtype == np.uint8 and image_shape(x.shape)]
    if len(images) != 1:
        shown = ", ".join(map(_shown, parts)) or "that are empty"
        raise UserError(f"{where} gives observations {shown}; gsf needs one uint8 image [H, W, C].")
    image: Array = to_hwc(images[0][None])[0]
    return image


def _one(value: Any, what: str, where: str) -> float:
    """A number or a flag, which may come as an array of one."""
    array = _array(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise UserError(f"{where} gives {_shown(value)} as {what}; gsf needs one number or flag.")
    return float(array.item())


def _array(part: Any) -> Array:
    """An object of no shape where numpy cannot make it one, as of a ragged list."""
    try:
        return np.asarray(part)
    except Exception:
        return np.array(None)


def _shown(part: Any) -> str:
    array = _array(part)
    odd = array.dtype.kind not in "biufc"
    return type(part).__name__ if odd else f"{array.dtype} {list(array.shape)}"


@contextlib.contextmanager
def _theirs(where: str) -> Iterator[None]:
    """Whatever an environment raises, in one sentence that says where."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{where} raised {registry.in_short(error)}.") from error


class GymVectorEnv(gym.vector.VectorEnv[Any, Any, Any]):
    """Environments of one game side by side. A state is the actions of each episode under way:
    going on from it takes them again, so it needs an environment that repeats itself."""

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
        self._slots: list[_Slot] = []  # first of all: Gymnasium also closes what was refused
        self.levels = checked(levels, n_envs)
        self.game, self.num_envs, self.seed = game, n_envs, seed
        self._copy = copy
        self._obs = np.empty((n_envs, *games[game].obs_shape), np.uint8)
        self._start([1] * n_envs)

    def _start(self, begun: Sequence[int]) -> None:
        """Each slot at the start of its level number begun[slot], counted from 1."""
        self.close_extras()
        self._turns, self._begun = turns(self.levels, self.num_envs, self.seed), list(begun)
        self._slots = [self._next(slot, n) for slot, n in enumerate(begun)]
        self._fresh = True

    def _next(self, slot: int, n: int = 1) -> _Slot:
        """A slot's n-th level from here, at its start."""
        level = [next(self._turns[slot]) for _ in range(n)][-1]
        begun = _Slot(_made_by[self.game], level)
        wanted = (*games[self.game].obs_shape, len(games[self.game].actions))
        found = (*begun.obs.shape, begun.n_actions)
        if found != wanted:
            raise UserError(
                f"{spec_of(self.game)}({level}) has images {list(found[:-1])} and {found[-1]} "
                f"actions, other levels {list(wanted[:-1])} and {wanted[-1]}; they must agree."
            )
        self._obs[slot] = begun.obs
        return begun

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        if not (self._fresh and seed in (None, self.seed)):
            self.seed = self.seed if seed is None else seed
            self._start([1] * self.num_envs)
        obs, level = self.observe()
        return obs, {"level": level}

    def observe(self) -> tuple[Array, Array]:
        """The current observations and their levels, without a step."""
        obs = self._obs.copy() if self._copy else self._obs
        return obs, np.array([slot.level for slot in self._slots], np.int32)

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        self._fresh = False
        reward = np.zeros(self.num_envs)
        terminated, truncated, completed = np.zeros((3, self.num_envs), bool)
        for i, action in enumerate(np.asarray(actions).tolist()):
            if action == WAIT:
                continue
            slot = self._slots[i]
            reward[i], terminated[i], truncated[i], said = slot.step(action)
            self._obs[i] = slot.obs
            if terminated[i] or truncated[i]:
                completed[i] = said
                slot.close()
                self._slots[i] = self._next(i)
                self._begun[i] += 1
        obs, level = self.observe()
        return obs, reward, terminated, truncated, {"level": level, "completed": completed}

    def latent_state(self) -> list[bytes]:
        raise UserError(f"{self.game} shows no latent states, which `gsf similar` compares.")

    def state_dict(self) -> dict[str, Any]:
        taken = [bytes(slot.actions) for slot in self._slots]
        return {"begun": list(self._begun), "actions": taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._start(state["begun"])
        for i, actions in enumerate(state["actions"]):
            for action in actions:
                _, terminated, truncated, _ = self._slots[i].step(action)
                self._obs[i] = self._slots[i].obs
                if terminated or truncated:  # it does not repeat itself
                    self._slots[i] = self._next(i)
                    self._begun[i] += 1
                    break
        self._fresh = False

    def save(self, slot: int) -> tuple[int, bytes]:
        return self._slots[slot].level, bytes(self._slots[slot].actions)

    def restore(self, slot: int, state: tuple[int, bytes]) -> None:
        level, actions = state
        self._slots[slot].close()
        self._slots[slot] = again = _Slot(_made_by[self.game], level)
        for action in actions:
            again.step(action)
        self._obs[slot] = again.obs
        self._fresh = False

    def close_extras(self, **kwargs: Any) -> None:
        for slot in self._slots:
            slot.close()


def departure(game: str, levels: range, n_steps: int = 256, n_envs: int = 4) -> str | None:
    """What differs when levels are played twice with the same actions; None: nothing did."""
    rng = np.random.default_rng(0)
    n_actions = len(games[game].actions)
    with contextlib.ExitStack() as stack:
        pair = [GymVectorEnv(game, levels, n_envs, seed=0, copy=False) for _ in range(2)]
        for env in pair:
            stack.callback(env.close)
        seen = [env.observe()[0] for env in pair]
        for t in range(n_steps):
            if (seen[0] != seen[1]).any():
                return f"its images differ after {t} steps"
            actions = rng.integers(n_actions, size=n_envs)
            one, other = (env.step(actions) for env in pair)
            for name, x, y in zip(("rewards", "ends", "ends"), one[1:4], other[1:4], strict=True):
                if (x != y).any():
                    return f"its {name} differ after {t + 1} steps"
            seen = [one[0], other[0]]
    return None


gymnasium = Suite(
    "gymnasium",
    games,
    GymVectorEnv,
    training_levels=range(0),
    replays_with="the environment's file, and what it imports, as they were",
    named=True,
)
