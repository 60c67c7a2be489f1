"""Who can be evaluated or watched: trained runs, behaviour policies, random play, anyone's agent.

`find_players` turns what a user names (a run directory, a policy, "random") into a `Player`: the
agent itself, and what its rows of results have to say about it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from gsf.core.errors import UserError
from gsf.core.files import digest
from gsf.core.options import require_seed
from gsf.core.stage import read_manifest
from gsf.data.format import read_facts
from gsf.evaluation.splits import BENCHMARK
from gsf.nets.acting import Mode as Mode
from gsf.nets.acting import sample
from gsf.suites.procgen import GAMES, N_ACTIONS, OBS_SHAPE, Difficulty, find_game

Device = Literal["auto", "cpu", "cuda"]
Array = NDArray[Any]
# Matrix kernels take rows in eights and round the odd ones at the end differently.
ROWS = 8


class Actor(Protocol):
    """All an agent needs to be evaluated."""

    def act(self, obs: Array, mode: Mode, uniform: Array) -> Array:
        """Actions [n] for images uint8 [n,64,64,3].

        `uniform` [n], in [0, 1), is all the randomness there is, in either mode.
        """
        ...


class RandomActor:
    """Every action equally likely, greedy or not."""

    def act(self, obs: Array, mode: Mode, uniform: Array) -> Array:
        actions: Array = (np.asarray(uniform) * N_ACTIONS).astype(np.int64)
        return actions


class BehaviourActor:
    """The policy that recorded the data; sampled is how it played (but for epsilon)."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def act(self, obs: Array, mode: Mode, uniform: Array) -> Array:
        probs = self._policy.act_probs(obs).astype(np.float64)
        if mode == "greedy":
            return np.asarray(probs.argmax(-1))
        return sample(probs, uniform)


@dataclass(frozen=True)
class Player:
    """An actor, and what tells its rows from those of others."""

    actor: Actor
    game: str
    method: str
    seed: int  # of training; also names the stream that sampled actions draw from
    step: int
    identity: str  # digest of the weights and of how they are played
    training: Sequence[int] = BENCHMARK
    difficulty: Difficulty = "easy"

    @property
    def names(self) -> dict[str, Any]:
        """The columns of its rows that are the same in all of them."""
        return {name: getattr(self, name) for name in ("game", "method", "seed", "step")}


def act(actor: Actor, obs: Array, mode: Mode, uniform: Array) -> Array:
    """The actor's choice, checked, and independent of how many images it is asked about at once.

    Images are padded to a multiple of 8: with that, a row's result was the same bit for bit in
    every batch and with one or two threads. On other hardware only rounding can differ.
    """
    n = len(obs)
    rows = np.minimum(np.arange(n + -n % ROWS), n - 1)
    actions = np.asarray(actor.act(obs[rows], mode, uniform[rows]))
    if actions.shape != (len(rows),) or actions.min() < 0 or actions.max() >= N_ACTIONS:
        raise UserError(
            f"the agent's act() gave {actions.dtype} {list(actions.shape)} for {len(rows)} images; "
            f"it must give one action in 0..{N_ACTIONS - 1} for each."
        )
    return actions[:n]


def stream(seed: int, level: int) -> np.random.Generator:
    """What actions on a level are drawn with: one number a step, whoever plays it and when."""
    return np.random.default_rng([seed, level])


def find_players(
    name: str,
    *,
    game: str | None = None,
    steps: Sequence[int | None] = (None,),
    seed: int = 0,
    dataset: Path | None = None,
    device: Device = "auto",
) -> list[Player]:
    """One player, or one for each of a run's kept `steps` (None: its latest checkpoint)."""
    require_seed(seed)
    path = Path(name)
    if is_run(name):
        return _run_players(path, game, steps, device)
    if set(steps) != {None}:
        raise UserError(f"{name} has no kept checkpoints; only a run directory has.")
    if name == "random":
        facts: Mapping[str, Any] = {}
        actor: Actor = RandomActor()
    elif path.exists():
        from gsf.behaviour.policy import load_policy

        policy = load_policy(path, device)
        facts, actor = policy.provenance, BehaviourActor(policy)
    else:
        raise UserError(
            f"there is no {name}; name a run directory, a policy of `gsf collect`, or random."
        )
    return [_reference(name, facts, actor, game, seed, dataset)]


def is_run(name: str) -> bool:
    """Whether the name is of a directory that may be a run: a policy's has a manifest too."""
    path = Path(name)
    there = (path / "manifest.json").is_file() and not (path / "policy.pt").is_file()
    return there and name != "random"


def _reference(
    name: str,
    facts: Mapping[str, Any],
    actor: Actor,
    game: str | None,
    seed: int,
    dataset: Path | None,
) -> Player:
    """A player that was not trained from a dataset; one can say which levels count as seen."""
    found = read_facts(dataset) if dataset else {}
    names = {x for x in (game, facts.get("game"), found.get("name")) if x}
    if len(names) != 1:
        raise UserError(
            f"{name} plays one game, not {' and '.join(sorted(names))}; make --game, --dataset and "
            "the policy agree."
            if names
            else f"which game? Give {name} a --game."
        )
    played = names.pop()
    find_game(played)
    levels, difficulty = _facts_of_levels(played, found or _levels_of_policy(facts))
    return Player(
        actor,
        played,
        "behaviour" if facts else "random",
        seed,
        int(facts.get("frames", 0)),
        digest(facts.get("digest", "random"), difficulty),
        levels,
        difficulty,
    )


def _levels_of_policy(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The levels a policy was trained on, said as a dataset says them."""
    if "config" not in facts:
        return {}
    first, n = facts["config"]["start_level"], facts["config"]["n_levels"]
    return {"levels": range(first, first + n), "difficulty": facts["difficulty"]}


def _run_players(
    run: Path,
    game: str | None,
    steps: Sequence[int | None],
    device: Device,
) -> list[Player]:
    from gsf.learn.agent import load_agent
    from gsf.nets.runtime import pick_device

    manifest = read_manifest(run, "run", whole=False)
    trained_on, shape = manifest["game"], (*manifest["obs_shape"], manifest["n_actions"])
    if trained_on not in GAMES or shape != (*OBS_SHAPE, N_ACTIONS):
        raise UserError(
            f"{run} was trained on {trained_on}, which is not a Procgen game and cannot be played "
            "here; use gsf.load_agent(run).act(obs) in your own loop."
        )
    if game not in (None, trained_on):
        raise UserError(f"{run} was trained on {trained_on}; it cannot play {game}.")
    levels, difficulty = _facts_of_levels(trained_on, manifest)
    players = []
    for step in steps:
        agent = load_agent(run, step, pick_device(device))
        weights = [x.cpu().numpy().tobytes() for x in _tensors(agent.encoder, agent.base)]
        players.append(
            Player(
                agent,
                trained_on,
                manifest["method"],
                manifest["seed"],
                agent.step,
                digest(*weights, difficulty),
                levels,
                difficulty,
            )
        )
    return players


def _tensors(*modules: Any) -> list[Any]:
    return [x.contiguous() for module in modules for x in module.state_dict().values()]


def _facts_of_levels(game: str, facts: Mapping[str, Any]) -> tuple[Sequence[int], Difficulty]:
    levels = facts.get("levels", BENCHMARK)
    if not all(type(level) is int for level in levels):
        raise UserError(f"levels such as {levels[0]!r} are not levels of Procgen's {game}.")
    return levels, facts.get("difficulty", "easy")


def kept_steps(run: Path) -> list[int]:
    """Steps whose networks a run has kept."""
    names = [path.stem.removeprefix("step_") for path in run.glob("checkpoints/step_*.pt")]
    return sorted(int(name) for name in names if name.isdigit())
