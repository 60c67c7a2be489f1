"""Stage: train PPO on a game, then record its play (the paper's appendix on data collection).

Out: OUT/policy.pt and OUT/manifest.json (kind "policy"), OUT/<game>.gsfrec, metrics, DONE. Killed
at any moment, the same command goes on to the same weights and the same recording, bit for bit
(on a CPU with the same number of torch threads; some CUDA kernels are not deterministic).
"""

import contextlib
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsf.behaviour.options import CollectConfig as CollectConfig
from gsf.behaviour.policy import (
    POLICY,
    BehaviourPolicy,
    load_policy,
    save_policy,
)
from gsf.behaviour.ppo import PPO, sample
from gsf.core.errors import UserError
from gsf.core.files import load_checkpoint, locked, save_checkpoint
from gsf.core.interrupts import stoppable
from gsf.core.logs import Metrics, console, progress
from gsf.core.stage import Identity
from gsf.core.version import __version__
from gsf.data.recording import Recording
from gsf.data.replay import Recorder, play_blocks
from gsf.equations import epsilon_schedule
from gsf.nets import encoders
from gsf.nets.runtime import keep_freed_memory

TRAINING_STATE, RECORDING_STATE = "checkpoint.pt", "recording.pt"


TRAINING, RECORDING = 0, 1  # streams of randomness under one seed


def collect(config: CollectConfig) -> Path:
    """Trains PPO on a game, or takes a policy, and records its play; returns the recording's path.

    collect(CollectConfig(game="coinrun", frames=2_000_000, transitions=500_000))
    """
    out = config.directory
    path = out / f"{config.game}.gsfrec"
    given = _given_policy(config)
    identity = _identity(config, given)
    if identity.is_done(out):
        console.print(f"{path} is there already.", soft_wrap=True)
        return path
    with locked(out):
        identity.begin(out, game=config.game)
        policy = given if given or config.random else _train(config, identity, out)
        recording = _record(config, out, policy)
        recording.save(path)
        returns = recording.takes[0].returns
        facts = {"game": config.game, "transitions": len(recording), **returns}
        identity.write(out, recording.digest, in_place=True, **facts)
        identity.finish(out, recording=recording.digest)
        (out / RECORDING_STATE).unlink(missing_ok=True)
    mean = returns["mean_return"]
    shown = "" if mean is None else f", mean return {mean:.2f}"
    console.print(
        f"{len(recording):,} transitions in {path}: {returns['episodes']} whole episodes{shown}.",
        soft_wrap=True,
    )
    return path


def _identity(config: CollectConfig, policy: BehaviourPolicy | None) -> Identity:
    """Of the directory: a policy that is trained here, or a recording of another's play."""
    if policy is None and not config.random:
        return Identity.of(
            "policy", config, encoders.find(config.schedule.encoder).identity("encoder")
        )
    inputs = {} if policy is None else {"policy": policy.provenance["digest"]}
    return Identity.of("recording", config, inputs)


def _given_policy(config: CollectConfig) -> BehaviourPolicy | None:
    if config.policy is None:
        return None
    policy = load_policy(config.policy, config.device)
    trained = (policy.provenance["game"], policy.provenance["difficulty"])
    if trained != (config.game, config.difficulty):
        raise UserError(
            f"{config.policy} was trained on {trained[0]} ({trained[1]}), "
            f"not on {config.game} ({config.difficulty})."
        )
    return policy


def _train(config: CollectConfig, identity: Identity, out: Path) -> BehaviourPolicy:
    """Metrics: those of `PPO.iterate` under ppo/, and
    ppo/frames_per_second   of this update, its play and its learning
    ppo/seconds             of training so far, over all restarts
    """
    if (out / POLICY).is_file():
        trained = load_policy(out, config.device)
        if 0 <= trained.provenance["frames"] - config.frames < config.frames_per_update:
            return trained
    keep_freed_memory()
    rng = np.random.default_rng([config.seed, TRAINING])
    ppo = PPO(config, config.env(rng), rng, config.action_ids)
    seconds, saved = 0.0, time.monotonic()
    if (out / TRAINING_STATE).is_file():
        state = _from_tensors(load_checkpoint(out / TRAINING_STATE))
        if state["frames"] >= config.frames + config.frames_per_update:
            raise UserError(
                f"{out} has trained for {state['frames']:,} frames already; ask for at least as "
                "many --frames, or choose another --out."
            )
        ppo.load_state_dict(state)
        seconds = state["seconds"]
        console.print(f"going on from frame {ppo.frames:,}.")
    with (
        stoppable() as stop,
        contextlib.closing(ppo.env),
        contextlib.closing(Metrics(out, ppo.frames, tensorboard=config.tensorboard)) as metrics,
        progress(f"ppo {config.game}", config.frames, "frames") as advance,
    ):
        advance(ppo.frames)
        while ppo.frames < config.frames:
            started = time.monotonic()
            row = ppo.iterate()
            elapsed, stopping = time.monotonic() - started, stop.asked
            seconds += elapsed
            row |= {"frames_per_second": config.frames_per_update / elapsed, "seconds": seconds}
            metrics.write(ppo.frames, {f"ppo/{name}": value for name, value in row.items()})
            advance(ppo.frames, **{k: row[k] for k in ("return", "entropy") if k in row})
            due = time.monotonic() - saved >= config.checkpoint_seconds
            if due or stopping or ppo.frames >= config.frames:
                state = ppo.state_dict() | {"seconds": seconds}
                save_checkpoint(out / TRAINING_STATE, _to_tensors(state))
                saved = time.monotonic()
                stop.kept = f"frame {ppo.frames:,} of {config.frames:,} is saved in {out}"
            if stopping:
                break
    (out / RECORDING_STATE).unlink(missing_ok=True)  # of a policy that has now learnt more
    facts = {
        "algorithm": "ppo",
        "game": config.game,
        "difficulty": config.difficulty,
        "actions": config.actions,
        "encoder": config.schedule.encoder,
        "seed": config.seed,
        "frames": ppo.frames,
        "return": ppo.mean_return,
        "gsf": __version__,
        "config": identity.options,
        **encoders.find(config.schedule.encoder).identity("encoder_code"),
    }
    return save_policy(out / POLICY, ppo.net, facts)


def _record(config: CollectConfig, out: Path, policy: BehaviourPolicy | None) -> Recording:
    rng = np.random.default_rng([config.seed, RECORDING])
    env = config.env(rng)
    recorder = Recorder(config.n_envs)
    n_steps = math.ceil(config.transitions / config.n_envs)
    n_total = n_steps * config.n_envs
    source = {"algorithm": "random", "gsf": __version__} if policy is None else policy.provenance
    if (out / RECORDING_STATE).is_file():
        state = _from_tensors(load_checkpoint(out / RECORDING_STATE))
        if json.loads(state["source"]) != source:
            raise UserError(f"the policy is not the one {out} was begun with; use another --out.")
        recorder.load_state_dict(state["recorder"])
        env.load_state_dict(state["env"])
        rng.bit_generator.state = json.loads(state["rng"])

    ids = config.action_ids

    def epsilon(t: int) -> float:
        literal = config.epsilon == "literal"
        return float(epsilon_schedule(t * config.n_envs, n_total, literal)) if policy else 1.0

    def act(t: int, obs: NDArray[np.uint8]) -> NDArray[Any]:
        uniform: NDArray[np.int64] = ids[rng.integers(len(ids), size=config.n_envs)]
        if policy is None:
            return uniform
        explores = rng.random(config.n_envs) < epsilon(t)
        return np.where(explores, uniform, policy.action_ids[sample(policy.logits(obs), rng)])

    with stoppable() as stop, progress(f"record {config.game}", n_total, "frames") as advance:
        advance(recorder.n_steps * config.n_envs)
        for block in play_blocks(env, act, n_steps, recorder.n_steps):
            if recorder.add(block):
                state = {"recorder": recorder.state_dict(), "env": env.state_dict()}
                state |= {"rng": json.dumps(rng.bit_generator.state), "source": json.dumps(source)}
                save_checkpoint(out / RECORDING_STATE, _to_tensors(state))
                n_saved = recorder.n_steps * config.n_envs
                stop.kept = f"{n_saved:,} of {n_total:,} recorded frames are saved in {out}"
                if stop.asked:
                    break
            mean = recorder.returns()["mean_return"]
            advance(recorder.n_steps * config.n_envs, **({} if mean is None else {"return": mean}))
    schedule: dict[str, Any] = {"schedule": config.epsilon if policy else "constant"}
    schedule |= {"first": epsilon(0), "last": epsilon(n_steps - 1)}
    take = recorder.finish(env, epsilon=schedule, policy=source)
    env.close()
    assert config.difficulty is not None
    return Recording(config.game, config.difficulty, (take,))


def _to_tensors(value: Any) -> Any:
    """bytes become uint8 tensors, of which a checkpoint holds no others."""
    if isinstance(value, bytes):
        return torch.frombuffer(bytearray(value), dtype=torch.uint8)
    if isinstance(value, dict):
        return {key: _to_tensors(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_to_tensors(item) for item in value)
    return value


def _from_tensors(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype == torch.uint8:
        return value.numpy().tobytes()
    if isinstance(value, dict):
        return {key: _from_tensors(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_from_tensors(item) for item in value)
    return value
