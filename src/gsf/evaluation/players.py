"""Who can be evaluated or watched: trained runs, behaviour policies, random play, anyone's agent.

`find_players` turns what a user names (a run directory, a policy, "random") into a `Player`: the
agent itself, and what its rows of results have to say about it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gsf.core.errors import UserError, did_you_mean
from gsf.core.files import digest
from gsf.core.options import Device
from gsf.core.stage import read_manifest
from gsf.data.format import read_facts
from gsf.data.tiers import find_policy, shipped_policies
from gsf.evaluation.code_of_rows import code_of_encoder
from gsf.evaluation.rollout import Actor, Array
from gsf.nets.acting import TEMPERATURES, Mode, temperature_of, tempered
from gsf.suites import Game, Suite, facts_of, find_game, known_facts, looks, name_game


class RandomActor:
    """Draws evenly among some actions (default: all), greedy or not."""

    def __init__(self, n_actions: int, among: Sequence[int] | None = None) -> None:
        among = range(n_actions) if among is None else among
        self._policy = np.zeros((1, n_actions))
        self._policy[:, list(among)] = 1 / len(among)

    def policy(self, obs: Array, temperature: Array) -> Array:
        return self._policy.repeat(len(obs), axis=0)


class BehaviourActor:
    """The policy that recorded the data; at temperature 1 as it played (but for epsilon)."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self.drawn = policy.drawn

    def policy(self, obs: Array, temperature: Array) -> Array:
        with np.errstate(divide="ignore"):  # log 0: actions it never takes
            return tempered(np.log(self._policy.act_probs(obs)), temperature)


@dataclass(frozen=True)
class Player:
    """Somebody who plays, and what marks their rows of results."""

    actor: Actor
    game: str
    method: str
    seed: int  # of training; also names the stream that sampled actions draw from
    step: int
    identity: str  # digest of the weights and of how they are played
    training: Sequence[int] | None = None  # levels; None: the benchmark's
    difficulty: str | None = None
    temperatures: tuple[float, ...] = (1.0,)  # to choose from; references have no choice
    temperature: float | None = None  # the one that was chosen, if any
    max_frames: int | None = None  # after which its episodes are cut short
    code: tuple[str, ...] = ()  # modules that decide what it does

    def at(self, mode: Mode) -> float:
        """The temperature of a mode; 1 where none has been chosen."""
        return temperature_of(mode, 1.0 if self.temperature is None else self.temperature)

    def signature(self, length: int) -> str:
        """The identity in rows of episodes that were cut short at so many frames."""
        return digest(self.identity, str(length))

    @property
    def names(self) -> dict[str, Any]:
        """The columns that are the same in all its rows."""
        return {name: getattr(self, name) for name in ("game", "method", "seed", "step")}


def find_players(
    name: str,
    *,
    game: str | None = None,
    steps: Sequence[int | None] = (None,),
    seed: int = 0,
    dataset: Path | None = None,
    device: Device = "auto",
    env: str | None = None,
    level: int = 0,
) -> list[Player]:
    """One player, or one for each of a run's kept `steps` (None: its latest checkpoint).

    `game` may name its suite, too: file.py:Suite/game. `env`: file.py:make, a Gymnasium environment
    to play in, of which `level` is looked at first.
    """
    own = UserEnv(env, level) if env else None
    game = name_game(game)[1] if game and not env else game
    if is_run(name):
        return _run_players(Path(name), game, steps, device, own)
    if set(steps) != {None}:
        raise UserError(f"{name} has no kept checkpoints; only a run directory has.")
    if name == "random":
        return [_reference(name, None, game, seed, dataset, own)]
    path = find_policy(name)
    if not path.exists():
        meant = did_you_mean(name, [*shipped_policies(), "random"])
        raise UserError(
            f"there is no {name}; {meant}name a run directory, a policy (of `gsf collect`, or a "
            f"shipped one: {', '.join(shipped_policies())}), or random."
        )
    from gsf.behaviour.policy import load_policy  # late: help needs no torch

    return [_reference(name, load_policy(path, device), game, seed, dataset, own)]


def under_looks(player: Player, kind: str) -> Player:
    """The same in its game's looks, none of which it has seen; its temperature stays as chosen."""
    if looks.inside(player.game) != player.game:
        raise UserError(
            f"{player.method} was trained on {player.game}: its levels are looks already; leave "
            "--looks out."
        )
    if getattr(player.actor, "drawn", None):
        raise UserError("this policy sees its game drawn plainly, so no look differs to it.")
    looks.wardrobe(kind, player.game)
    known = (
        find_game(player.game)[0].training_levels if player.training is None else player.training
    )
    game = looks.named(player.game, kind, max(1, len(known)))
    chosen = (player.at("sampled"),)
    identity = digest(player.identity, game)
    return replace(player, game=game, training=(), temperatures=chosen, identity=identity)


def is_run(name: str) -> bool:
    """Whether the name is of a directory that may be a run: a policy's has a manifest too."""
    path = Path(name)
    there = (path / "manifest.json").is_file() and not (path / "policy.pt").is_file()
    return there and name != "random"


@dataclass(frozen=True)
class UserEnv:
    """A Gymnasium environment of the user's, as --env names it."""

    env: str
    level: int

    def host(self, game: str | None = None) -> str:
        """From now on the game is played here. Returns its name; by default that of the file."""
        from gsf.suites.gymnasium import name_env  # late: help needs no environments

        return name_env(self.env, game, self.level)


def _played_in(suite: Suite, game: str) -> list[str]:
    """What belongs to a player's identity beside its weights: the file of a user's environment."""
    if not suite.named:
        return []
    from gsf.suites.gymnasium import code_of  # late, as in UserEnv

    return [code_of(game) or ""]


def _reference(
    name: str, policy: Any, game: str | None, seed: int, dataset: Path | None, own: UserEnv | None
) -> Player:
    """Random play, or a recorded policy. A dataset may say which levels count as seen, and which
    actions random play draws among."""
    facts: Mapping[str, Any] = {} if policy is None else policy.provenance
    found = read_facts(dataset) if dataset else {}
    names = {x for x in (game, facts.get("game"), found.get("name")) if x}
    if own and len(names) < 2:
        names = {own.host(*names)}
    if len(names) != 1:
        raise UserError(
            f"{name} plays one game, not {' and '.join(sorted(names))}; make --game, --dataset and "
            "the policy agree."
            if names
            else f"which game? Give {name} a --game."
        )
    suite, played = find_game(names.pop())
    levels, difficulty = _facts_of_levels(suite, played, found or _levels_of_policy(facts))
    if found:
        check_fits(str(dataset), found, own.env if own else played, played)
    if own and policy is not None:
        needs = {"obs_shape": policy.facts.obs_shape, "n_actions": len(policy.facts.actions)}
        check_fits(name, needs, own.env, played)
    known = suite.games[played]
    n_actions = len(known.actions)
    # The actions that agents trained on the data choose among. A suite lists some actions several
    # times; to draw evenly from its list is another policy, which in coinrun mostly stands still.
    among = found.get("actions", range(n_actions)) if found else known.distinct_actions
    among = list(map(int, among))
    actor = RandomActor(n_actions, among) if policy is None else BehaviourActor(policy)
    played_by = facts.get("digest", f"random among {among}")
    return Player(
        actor,
        played,
        "behaviour" if facts else "random",
        seed,
        int(facts.get("frames", 0)),
        digest(played_by, difficulty, *_played_in(suite, played)),
        levels,
        difficulty,
        code=_code_of_policy(facts) if facts else (),
    )


def _code_of_policy(facts: Mapping[str, Any]) -> tuple[str, ...]:
    return "gsf.behaviour.ppo:ActorCritic", code_of_encoder(facts, facts.get("encoder_code"))


def _levels_of_policy(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The levels a policy was trained on, said as a dataset says them."""
    if "config" not in facts:
        return {}
    first, n = facts["config"]["start_level"], facts["config"]["n_levels"]
    return {"levels": range(first, first + n), "difficulty": facts["difficulty"]}


def _run_players(
    run: Path, game: str | None, steps: Sequence[int | None], device: Device, own: UserEnv | None
) -> list[Player]:
    from gsf.learn.agent import load_agent, read_temperature  # late: help needs no torch
    from gsf.nets.runtime import pick_device

    manifest = read_manifest(run, "run", whole=False)
    trained_on = manifest["game"]
    if game not in (None, trained_on):
        raise UserError(f"{run} was trained on {trained_on}; it cannot play {game}.")
    if own:
        check_fits(str(run), manifest, own.env, own.host(trained_on))
    elif not can_play(manifest):
        raise UserError(
            f"{run} was trained on {trained_on}, which no suite has with such images and actions; "
            "name a Gymnasium environment of yours to play in (--env file.py:make), judge the run "
            "by data it was not trained on (--held-out DATASET), or use "
            "gsf.load_agent(run).act(obs) in your own loop."
        )
    suite = find_game(trained_on)[0]
    levels, difficulty = _facts_of_levels(suite, trained_on, manifest)
    encoder = code_of_encoder(manifest["config"], manifest["inputs"].get("encoder"))
    players = []
    for step in steps:
        agent = load_agent(run, step, pick_device(device))
        players.append(
            Player(
                agent,
                trained_on,
                manifest["method"],
                manifest["seed"],
                agent.step,
                digest(*weights(agent), difficulty, *_played_in(suite, trained_on)),
                levels,
                difficulty,
                TEMPERATURES,
                read_temperature(run, agent.step),
                code=("gsf.learn.agent", type(agent.base).__module__, encoder),
            )
        )
    return players


def can_play(manifest: Mapping[str, Any]) -> bool:
    """Whether a suite has the game of a run or a dataset, with its images and actions."""
    facts = known_facts(manifest.get("game", manifest.get("name", "")))
    return facts is not None and _difference(manifest, facts) is None


def check_fits(who: str, manifest: Mapping[str, Any], env: str, game: str) -> None:
    if difference := _difference(manifest, facts_of(game)):
        raise UserError(f"{env} cannot be played by {who}: {difference}.")


def _difference(manifest: Mapping[str, Any], facts: Game) -> str | None:
    """How the images or actions of a run, a dataset or a policy differ from those of a game."""
    if facts.obs_shape != tuple(manifest["obs_shape"]):
        return f"its images are {list(facts.obs_shape)}, not {list(manifest['obs_shape'])}"
    n_actions, ids = len(facts.actions), manifest.get("actions")
    known = set(range(n_actions))
    if not (manifest["n_actions"] == n_actions if ids is None else set(ids) <= known):
        wanted = manifest["n_actions"] if ids is None else f"those up to {max(ids)}"
        return f"it has {n_actions} actions, not {wanted}"
    return None


def weights(agent: Any) -> list[bytes]:
    """The bytes of all weights that decide what an agent does, to digest."""
    tensors = [x for part in (agent.encoder, agent.base) for x in part.state_dict().values()]
    return [x.cpu().contiguous().numpy().tobytes() for x in tensors]


def _facts_of_levels(
    suite: Suite, game: str, facts: Mapping[str, Any]
) -> tuple[Sequence[int], str]:
    levels = facts.get("levels", suite.training_levels)
    if suite.named:  # contexts may be called anything; those that are numbers are levels
        levels = [level for level in levels if type(level) is int]
    if not all(type(level) is int for level in levels):
        raise UserError(f"levels such as {levels[0]!r} are not levels of {suite.name}'s {game}.")
    return levels, facts.get("difficulty") or suite.difficulties[0]


def checkpoint_steps(run: Path) -> list[int]:
    """Steps whose networks a run has kept."""
    names = [path.stem.removeprefix("step_") for path in run.glob("checkpoints/step_*.pt")]
    return sorted(int(name) for name in names if name.isdigit())
