"""Play on record: a policy's or random, as a recording or, if it cannot be repeated, as pixels.

A recording goes on where it was stopped. That of a user's own environment is replayed once before
it counts. Pixels of an environment that does not repeat itself are recorded in one go.
"""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsf.behaviour.options import CollectConfig, PlanConfig
from gsf.behaviour.policy import BehaviourPolicy
from gsf.core.errors import UserError
from gsf.core.interrupts import interruptible, stoppable
from gsf.core.logs import progress
from gsf.core.schema import parse_json
from gsf.core.sealed import fitting, load_checkpoint, save_checkpoint
from gsf.core.stage import Identity, read_manifest
from gsf.core.version import __version__
from gsf.data.played import PlayWriter
from gsf.data.recording import Recording
from gsf.data.replay import Recorder, Replay, play_blocks
from gsf.equations import epsilon_schedule
from gsf.suites import facts_of
from gsf.suites.gymnasium import code_of, spec_of

RECORDING_STATE, DATASET = "recording.pt", "dataset"
TRAINING, RECORDING = 0, 1  # streams of randomness under one seed


class Behaviour:
    """Who acts while play is recorded: a policy, with random actions now and then, or chance, or
    whoever has `planned` all actions before."""

    def __init__(
        self,
        config: CollectConfig,
        policy: BehaviourPolicy | None,
        planned: NDArray[np.uint8] | None = None,
    ) -> None:
        self._config, self._policy, self._ids = config, policy, config.action_ids
        self._planned = planned
        self.rng = np.random.default_rng([config.seed, RECORDING])
        self.env: Any = config.make_env(self.rng)
        self._view: Any = None  # the same play as the policy sees it, if that is not as recorded
        if policy is not None and policy.drawn and planned is None:
            again = np.random.default_rng([config.seed, RECORDING])
            self._view = config.make_env(again, **policy.drawn)
        self.n_envs = config.schedule.n_envs
        self.n_steps = config.n_transitions // self.n_envs
        self.provenance = self._provenance()

    def _provenance(self) -> dict[str, Any]:
        facts = {"algorithm": self._config.player, "gsf": __version__}
        if self._planned is not None:
            options = {x.name: getattr(self._config, x.name) for x in fields(PlanConfig)}
            guide = {"guided_by": self._policy.provenance["digest"]} if self._policy else {}
            return facts | options | guide
        if self._config.player == "best":
            return facts | {"skill": self._config.skill}
        return self._policy.provenance if self._policy else facts

    def epsilon(self, t: int) -> float:
        if self._planned is not None:
            return 0.0
        if self._config.player == "best":
            return 1 - self._config.skill
        if self._policy is None:
            return 1.0
        literal = self._config.epsilon == "literal"
        return float(epsilon_schedule(t * self.n_envs, self._config.n_transitions, literal))

    def act(self, t: int, obs: NDArray[np.uint8]) -> NDArray[Any]:
        if self._planned is not None:
            planned: NDArray[np.uint8] = self._planned[t]
            return planned
        chosen = self._choose(t, obs if self._view is None else self._view.observe()[0])
        if self._view is not None:
            self._view.step(chosen)
        return chosen

    def _choose(self, t: int, obs: NDArray[np.uint8]) -> NDArray[Any]:
        n, rng, policy = self.n_envs, self.rng, self._policy
        uniform: NDArray[np.int64] = self._ids[rng.integers(len(self._ids), size=n)]
        if policy is None and self._config.player != "best":
            return uniform
        explores = rng.random(n) < self.epsilon(t)
        if policy is None:
            return np.where(explores, uniform, self.env.best_actions())
        return np.where(explores, uniform, policy.sample(obs, rng))

    def envs(self) -> dict[str, Any]:
        """What is played in, by the names that checkpoints have for them."""
        return {"env": self.env} | ({} if self._view is None else {"view": self._view})

    @property
    def schedule(self) -> dict[str, Any]:
        decays = self._policy is not None and self._planned is None
        name = self._config.epsilon if decays else "constant"
        ends = {"first": self.epsilon(0), "last": self.epsilon(self.n_steps - 1)}
        return {"schedule": name, **ends}


def record(
    config: CollectConfig,
    out: Path,
    policy: BehaviourPolicy | None,
    planned: NDArray[np.uint8] | None = None,
) -> Recording:
    """Play as a recording; what is done of it is kept in `out`."""
    behaviour = Behaviour(config, policy, planned)
    env, rng, source = behaviour.env, behaviour.rng, behaviour.provenance
    n_total, n_envs, recorder = config.n_transitions, behaviour.n_envs, Recorder(behaviour.n_envs)
    if (out / RECORDING_STATE).is_file():
        form = {"source": str, "recorder": dict, "rng": str}
        form |= dict.fromkeys(behaviour.envs(), dict)
        state = from_tensors(load_checkpoint(out / RECORDING_STATE, form))
        with fitting(out / RECORDING_STATE):
            was = parse_json(state["source"])
            if was != source:
                raise UserError(f"{out} was begun with another policy; use another --out.")
            recorder.load_state_dict(state["recorder"])
            for name, played in behaviour.envs().items():
                played.load_state_dict(state[name])
            rng.bit_generator.state = parse_json(state["rng"])
    with stoppable() as stop, progress(f"record {config.game}", n_total, "frames") as advance:
        advance(recorder.n_steps * n_envs)
        for block in play_blocks(env, behaviour.act, behaviour.n_steps, recorder.n_steps):
            if recorder.add(block):
                state = {name: played.state_dict() for name, played in behaviour.envs().items()}
                state |= {"recorder": recorder.state_dict()}
                state |= {"rng": json.dumps(rng.bit_generator.state), "source": json.dumps(source)}
                save_checkpoint(out / RECORDING_STATE, to_tensors(state))
                n_saved = recorder.n_steps * n_envs
                stop.kept = f"{n_saved:,} of {n_total:,} recorded frames are saved in {out}"
                if stop.asked:
                    break
            mean = recorder.returns()["mean_return"]
            advance(recorder.n_steps * n_envs, **({} if mean is None else {"return": mean}))
    take = recorder.finish(env, epsilon=behaviour.schedule, policy=source)
    for played in behaviour.envs().values():
        played.close()
    assert config.difficulty is not None
    facts = None if config.env is None else env_facts(config.played)
    recording = Recording(config.played, config.difficulty, (take,), facts and facts["env"])
    if facts is not None:
        _verify(config, recording)
    return recording


def _verify(config: CollectConfig, recording: Recording) -> None:
    """Plays it all again, as whoever makes a dataset of it will."""
    replay = Replay(recording, recording.takes[0])
    advice = "add --plain to record a dataset instead."
    with interruptible(), progress(f"verify {config.game}", len(recording), "frames") as advance:
        done = 0
        try:
            for block in replay:
                done += block.action.size
                advance(done)
        except UserError as error:
            raise UserError(f"{config.env} does not repeat itself: {error} So {advice}") from None
    if replay.pixel_mismatches:
        raise UserError(f"{config.env} does not repeat itself: its images differ; {advice}")


def env_facts(game: str) -> dict[str, Any]:
    """What a policy or a recording of a user's environment has to say of it."""
    facts = facts_of(game)
    shape = {"obs_shape": list(facts.obs_shape), "n_actions": len(facts.actions)}
    return {**shape, "env": {"spec": spec_of(game), "code": code_of(game), **shape}}


def record_plain(
    config: CollectConfig, out: Path, policy: BehaviourPolicy | None
) -> tuple[str, dict[str, float | None]]:
    """Play as a dataset in `out`; its digest, and what returns it reached."""
    facts = facts_of(config.played)
    if not out.exists():
        behaviour = Behaviour(config, policy)
        n_envs, recorder = behaviour.n_envs, Recorder(behaviour.n_envs)
        with (
            interruptible(),
            PlayWriter(
                out,
                [behaviour.n_steps] * n_envs,
                np.arange(len(facts.actions)),
                levels=config.levels,
                name=config.played,
                obs_shape=facts.obs_shape,
                n_actions=len(facts.actions),
            ) as play,
            progress(f"record {config.game}", config.n_transitions, "frames") as advance,
        ):
            for block in play_blocks(behaviour.env, behaviour.act, behaviour.n_steps):
                recorder.add(block)
                play.write(block)
                advance(recorder.n_steps * n_envs)
            provenance = [behaviour.provenance | {"epsilon": behaviour.schedule}]
            returns = recorder.returns()
            play.finish(Identity("dataset"), provenance=provenance, returns=returns)
        for played in behaviour.envs().values():
            played.close()
    manifest = read_manifest(out, "dataset")
    return manifest["digest"], manifest["returns"]


def to_tensors(value: Any) -> Any:
    """bytes become uint8 tensors, of which a checkpoint holds no others."""
    if isinstance(value, bytes):
        return torch.from_numpy(np.frombuffer(bytearray(value), np.uint8))  # none, too
    if isinstance(value, dict):
        return {key: to_tensors(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(to_tensors(item) for item in value)
    return value


def from_tensors(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype == torch.uint8:
        return value.numpy().tobytes()
    if isinstance(value, dict):
        return {key: from_tensors(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(from_tensors(item) for item in value)
    return value
