"""Procgen as a suite: a vector env whose levels, ends and states are exact."""

import contextlib
import functools
import io
import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from gsf.core import cores
from gsf.core.errors import UserError
from gsf.suites import Levels, Suite, checked
from gsf.suites._procgen_games import GAMES, STEP_LIMITS
from gsf.suites._state import with_chance

DIFFICULTIES = ("easy", "hard")
MOST_STATE = 1 << 20  # bytes of a slot's latent state


class ProcgenVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Plays exactly these levels: a list in order, a range drawn at random.

    `info["level"]` is the level of the observation returned, `info["prev_level"]` the level the
    action was taken in, `info["completed"]` whether an episode that ended was won. `copy=False`
    lends Procgen's own buffers, overwritten by the next step. `plain=True` draws neither
    backgrounds nor textures; all else is exactly the same.
    """

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
        plain: bool = False,
    ) -> None:
        difficulty = difficulty or DIFFICULTIES[0]
        if difficulty not in DIFFICULTIES:
            known = " and ".join(DIFFICULTIES)
            raise UserError(f"unknown difficulty {difficulty!r}; Procgen has {known}.")
        self.game, self.difficulty, self.seed = game, difficulty, seed
        self.step_limit = STEP_LIMITS[game]
        self.levels, self.num_envs = checked(levels, n_envs), n_envs
        facts = GAMES[game]
        self.single_observation_space = gymnasium.spaces.Box(0, 255, facts.obs_shape, np.uint8)
        self.single_action_space = gymnasium.spaces.Discrete(len(facts.actions))
        self._threads = cores.threads() if threads is None else threads
        self._copy, self._plain = copy, plain
        self._buffer: Any = None  # a state's
        listed = list(self.levels) if self._listed else []
        self._assigned = [listed[slot::n_envs] for slot in range(n_envs)]
        self._start()

    @property
    def _listed(self) -> bool:
        return not isinstance(self.levels, range)

    def _start(self) -> None:
        self._open()
        self._length = np.zeros(self.num_envs, np.int32)  # steps taken in the current episode
        self._turn = np.zeros(self.num_envs, np.int64)  # episodes begun by each slot, in a list
        if self._listed:
            self._begin_level(range(self.num_envs))
        self._procgen.observe()
        self._fresh = True

    def _open(self) -> None:
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        if isinstance(self.levels, range):
            first, count = self.levels.start, len(self.levels)
        else:
            first, count = self.levels[0], 1
        drawn = first, count, self.seed, self._threads, self._plain
        self._procgen = _procgen_env(self.num_envs, self.game, self.difficulty, *drawn)

    def _begin_level(self, slots: Sequence[int] | range) -> None:
        """Puts each slot at the start of the next level assigned to it."""
        for slot in slots:
            assigned = self._assigned[slot]
            level = assigned[self._turn[slot] % len(assigned)]
            state = initial_state(self.game, level, self.difficulty, self._plain)
            self._set_state(slot, state)
            self._turn[slot] += 1

    def _set_state(self, slot: int, state: bytes) -> None:
        self._procgen.call_c_func("set_state", slot, state, len(state))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        if not (self._fresh and seed in (None, self.seed)):
            self.seed = self.seed if seed is None else seed
            self._procgen.close()
            self._start()
        self._fresh = False
        obs, level = self.observe()
        return obs, {"level": level}

    def observe(self) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        """The current observations and their levels, without a step."""
        return self._obs(), self._level()

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        self._fresh = False
        prev_level = self._level()
        self._procgen.act(np.asarray(actions))
        reward, _, first = self._procgen.observe()
        reward, ended = reward.copy(), first.copy()
        # gym3 lends these buffers; its get_info() would build a dict per env on every step.
        completed = ended & self._procgen._info["prev_level_complete"].astype(bool)
        self._length += 1
        truncated = ended & (self._length == self.step_limit) & ~completed
        self._length[ended] = 0
        if self._listed and ended.any():
            self._begin_level(np.flatnonzero(ended).tolist())
            self._procgen.observe()
        info = {"level": self._level(), "prev_level": prev_level, "completed": completed}
        return self._obs(), reward, ended & ~truncated, truncated, info

    def _obs(self) -> NDArray[np.uint8]:
        obs: NDArray[np.uint8] = self._procgen._ob["rgb"]
        return obs.copy() if self._copy else obs

    def _level(self) -> NDArray[np.int32]:
        level: NDArray[np.int32] = self._procgen._info["level_seed"]
        return level.copy()

    def latent_state(self) -> list[bytes]:
        """Procgen's whole memory of each slot, as the paper's appendix compares it."""
        states: list[bytes] = self._procgen.get_state()
        return states

    def state_dict(self) -> dict[str, Any]:
        """Everything that `load_state_dict` needs to go on bit for bit, in another process too."""
        return {
            "states": self.latent_state(),
            "length": self._length.tolist(),
            "turn": self._turn.tolist(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for slot, latent in enumerate(state["states"]):
            self._set_state(slot, latent)
        self._length[:] = state["length"]
        self._turn[:] = state["turn"]
        self._procgen.observe()
        self._fresh = False

    def save(self, slot: int) -> tuple[bytes, int, int]:
        if self._buffer is None:
            self._buffer = self._procgen._ffi.new(f"char[{MOST_STATE}]")
        n = self._procgen.call_c_func("get_state", slot, self._buffer, MOST_STATE)
        latent = bytes(self._procgen._ffi.buffer(self._buffer, n))
        return latent, int(self._length[slot]), int(self._turn[slot])

    def restore(self, slot: int, state: tuple[bytes, int, int]) -> None:
        latent, self._length[slot], self._turn[slot] = state
        self._set_state(slot, latent)
        self._procgen.observe()
        self._fresh = False

    def with_chance(self, state: tuple[bytes, int, int], seed: int) -> tuple[bytes, int, int]:
        latent, length, turn = state
        return with_chance(latent, seed), length, turn

    def keep(self, slots: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Goes on with these slots alone, each bit for bit as if the others were still there.

        What `state_dict` gives afterwards only fits an env from which the same slots were kept.
        """
        states = self.latent_state()
        self._procgen.close()
        self.num_envs = len(slots)
        self._open()
        self._assigned = [self._assigned[slot] for slot in slots]
        self._length, self._turn = self._length[slots], self._turn[slots]
        for slot, old in enumerate(slots):
            self._set_state(slot, states[old])
        self._procgen.observe()
        return self._obs()

    def close_extras(self, **kwargs: Any) -> None:
        if hasattr(self, "_procgen"):  # Gymnasium also closes what was refused
            self._procgen.close()


@functools.lru_cache(maxsize=1024)
def initial_state(game: str, level: int, difficulty: str, plain: bool = False) -> bytes:
    """The latent state in which the level begins, from an env that has no other level.

    A state says how it is drawn, too.
    """
    env = _procgen_env(1, game, difficulty, level, 1, seed=0, threads=0, plain=plain)
    env.observe()
    state: bytes = env.get_state()[0]
    env.close()
    return state


def _procgen_env(
    n_envs: int,
    game: str,
    difficulty: str,
    first_level: int,
    n_levels: int,
    seed: int,
    threads: int,
    plain: bool = False,
) -> Any:
    env = _procgen()(
        num=n_envs,
        env_name=game,
        distribution_mode=difficulty,
        paint_vel_info=False,
        use_backgrounds=not plain,
        use_monochrome_assets=plain,
        start_level=first_level,
        num_levels=n_levels,
        rand_seed=seed,
        # With one thread of its own every game would wait for it at every step.
        num_threads=threads if threads > 1 else 0,
    )
    env._reuse_arrays = True  # gym3 would copy every frame on every look at it
    # Bound now: an env that the garbage collector closes while another one is being made would wait
    # for ever for a lock of cffi's, which the same thread holds.
    assert env._c_lib.libenv_close
    return env


@functools.cache
def _procgen() -> Any:
    # Importing gym writes a banner about its own end, and procgen leaves a file open.
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings(action="ignore"):
        try:
            from procgen import ProcgenGym3Env
        except ImportError as error:
            raise UserError(
                f"Procgen is not installed here ({error}); its wheels are for Linux on x86-64 and "
                "Python below 3.13, where installing gsf-rl brings it. Everything but Procgen's "
                "games runs without."
            ) from None
    return ProcgenGym3Env


procgen = Suite(
    "procgen",
    GAMES,
    ProcgenVectorEnv,
    DIFFICULTIES,
    published_by="PPO, 25M frames",
    replays_with="procgen-mirror 0.10.7",
    plain={"plain": True},
)
