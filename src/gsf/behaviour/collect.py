"""Stage: train PPO on a game, then record its play (the paper's appendix on data collection).

Out: OUT/policy.pt and OUT/manifest.json (kind "policy"), OUT/<game>.gsfrec, metrics, DONE; of an
environment that does not repeat itself OUT/dataset instead of a recording. Killed at any moment,
the same command goes on to the same weights and the same recording, bit for bit (on a CPU with
the same number of torch threads; some CUDA kernels are not deterministic).
"""

import contextlib
import dataclasses
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from gsf.behaviour.hold import held
from gsf.behaviour.options import CollectConfig as CollectConfig
from gsf.behaviour.plan import PLAN, planned
from gsf.behaviour.policy import POLICY, BehaviourPolicy, load_policy, save_policy
from gsf.behaviour.ppo import CPU_CHUNK, PPO
from gsf.behaviour.record import (
    DATASET,
    RECORDING_STATE,
    TRAINING,
    env_facts,
    from_tensors,
    record,
    record_plain,
    to_tensors,
)
from gsf.behaviour.rllte import read_rllte
from gsf.core.code import decided_by
from gsf.core.errors import UserError
from gsf.core.files import locked
from gsf.core.logs import console, read_metrics
from gsf.core.loop import Loop
from gsf.core.stage import METRICS, Identity
from gsf.core.version import __version__
from gsf.data.tiers import WEAK
from gsf.nets import encoders
from gsf.nets.precision import settled
from gsf.nets.runtime import keep_freed_memory
from gsf.suites import facts_of, find_game
from gsf.suites.gymnasium import code_of, departure

WEAK_POLICY = "weak.pt"


def collect(config: CollectConfig) -> Path:
    """Trains PPO on a game, or takes a policy, and records its play; returns the recording's path.

    collect(CollectConfig(game="coinrun", frames=2_000_000, transitions=500_000))
    """
    config = _settled(config)
    out, game = config.directory, config.played
    path = out / f"{game}.gsfrec"
    given, first = _policy_at(config, config.policy), _policy_at(config, config.start_from)
    if first:
        _check_trainable(config, first)
    identity = _identity(config, given, first)
    if identity.is_done(out):
        with contextlib.suppress(OSError):  # of a process killed at its very end
            (out / RECORDING_STATE).unlink()
        path = path if path.is_file() else out / DATASET
        console.print(f"{path} is there already.", soft_wrap=True)
        return path
    with locked(out):
        identity.begin(out, game=game)
        difference = None if config.plain or config.env is None else departure(game, config.levels)
        if difference:
            console.print(
                f"{config.env} does not repeat itself ({difference}), so there can be no recording "
                "of it: its play goes into a dataset.",
                soft_wrap=True,
            )
        if difference and config.player == "plan":
            raise UserError(f"{config.env} cannot be planned in: it does not repeat itself.")
        policy = _train(config, identity, out, first) if config.trains else given
        if config.plain or difference:
            path = out / DATASET
            content, returns = record_plain(config, path, policy)
        else:
            actions = planned(config, out, policy) if config.player == "plan" else None
            recording = record(config, out, policy, actions)
            recording.save(path)
            content, returns = recording.digest, recording.takes[0].returns
        facts = {"game": game, "transitions": config.n_transitions, **returns}
        identity.write(out, content, in_place=True, **facts)
        identity.finish(out, content=content)
        for state in (RECORDING_STATE, PLAN):
            (out / state).unlink(missing_ok=True)
    mean = returns["mean_return"]
    shown = "" if mean is None else f", mean return {mean:.2f}"
    console.print(
        f"{config.n_transitions:,} transitions in {path}: {returns['episodes']} whole "
        f"episodes{shown}.",
        soft_wrap=True,
    )
    return path


def _settled(config: CollectConfig) -> CollectConfig:
    if config.precision == "auto" and not config.trains:
        return dataclasses.replace(config, precision="float32")
    shape, batch = facts_of(config.played).obs_shape, config.chunk or CPU_CHUNK
    made: CollectConfig = settled(config, config.directory, "policy", shape, batch)
    return made


def _identity(
    config: CollectConfig, policy: BehaviourPolicy | None, first: BehaviourPolicy | None
) -> Identity:
    """Of the directory: a policy that is trained here, or a recording of another's play."""
    env = {} if config.env is None else {"env": code_of(config.played) or ""}
    env |= decided_by(find_game(config.played)[0].make_env)
    resolved = {"plain": True} if config.plain else {}
    if config.trains:
        found = encoders.find(config.schedule.encoder)
        encoder = found.identity("encoder") | decided_by("gsf.behaviour.ppo", found.value.build)
        start = {} if first is None else {"start_from": first.provenance["digest"]}
        return Identity.of("policy", config, encoder | env | start, **resolved)
    player = {} if policy is None else {"policy": policy.provenance["digest"]}
    code = decided_by("gsf.behaviour.plan" if config.player == "plan" else "gsf.behaviour.record")
    return Identity.of("recording", config, player | code | env, **resolved)


def _policy_at(config: CollectConfig, path: Path | None) -> BehaviourPolicy | None:
    """A policy of the game asked for."""
    if path is None:
        return None
    policy = read_rllte(path, config.played, str(config.difficulty), config.device)
    policy = policy or load_policy(path, config.device)
    trained = (policy.provenance["game"], policy.provenance["difficulty"])
    if trained != (config.game, config.difficulty):
        raise UserError(
            f"{path} was trained on {trained[0]} ({trained[1]}), "
            f"not on {config.game} ({config.difficulty})."
        )
    wanted, own = facts_of(config.played), policy.facts
    if (own.obs_shape, len(own.actions)) != (wanted.obs_shape, len(wanted.actions)):
        raise UserError(
            f"{path} was trained on images {list(own.obs_shape)} and {len(own.actions)} "
            f"actions; {config.env} has {list(wanted.obs_shape)} and {len(wanted.actions)}."
        )
    return policy


def _check_trainable(config: CollectConfig, policy: BehaviourPolicy) -> None:
    own: dict[str, Any] = {"actions": "all", "frames": 0, "view": "game"} | policy.provenance
    wanted = {
        "encoder": config.schedule.encoder,
        "actions": config.actions,
        "view": config.schedule.view,
    }
    for option, value in wanted.items():
        if own[option] != value:
            raise UserError(
                f"{config.start_from} was trained with --{option} {own[option]}, not {value}; "
                "give it the same."
            )
    if own["frames"] >= config.frames:
        raise UserError(
            f"{config.start_from} has learnt from {own['frames']:,} frames already; ask for more "
            "--frames."
        )


def _train(
    config: CollectConfig, identity: Identity, out: Path, first: BehaviourPolicy | None
) -> BehaviourPolicy:
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
    env = held(
        config.make_env(rng, **config.drawn), config.schedule.hold, facts_of(config.played).noop
    )
    ppo = PPO(config, env, rng, config.action_ids)
    if first:
        ppo.net.load_state_dict(first.net.state_dict())
        ppo.frames = first.provenance.get("frames", 0)

    def step() -> dict[str, float]:
        started = time.monotonic()
        row = ppo.iterate()
        if config.keep_weak and _is_weak(config, ppo) and not (out / WEAK_POLICY).is_file():
            provenance = _provenance(config, identity, ppo, row["entropy"], first)
            save_policy(out / WEAK_POLICY, ppo.net, provenance)
        row["frames_per_second"] = config.frames_per_update / (time.monotonic() - started)
        return {f"ppo/{name}": value for name, value in row.items()}

    with contextlib.closing(ppo.env):
        Loop(
            out=out,
            name="ppo",
            of=config.played,
            total=("collect", "frames", config.frames),
            stride=config.frames_per_update,
            step=step,
            state=lambda: to_tensors(ppo.state_dict()),
            load=lambda state: ppo.load_state_dict(from_tensors(state)),
            modules=[ppo.net],
            log_every=1,
            save_seconds=config.checkpoint_seconds,
            shown=("/return", "/entropy"),
            tensorboard=config.tensorboard,
            wandb=config.wandb,
        ).run(ppo.frames)
    (out / RECORDING_STATE).unlink(missing_ok=True)  # of a policy that has now learnt more
    shutil.rmtree(out / DATASET, ignore_errors=True)
    entropy = read_metrics(out / METRICS)[-1]["ppo/entropy"]
    provenance = _provenance(config, identity, ppo, entropy, first)
    return save_policy(out / POLICY, ppo.net, provenance)


def _is_weak(config: CollectConfig, ppo: PPO) -> bool:
    """Or no longer: whether it is that far, and enough episodes say so."""
    mean = ppo.settled_return
    return mean is not None and (facts_of(config.played).way(mean) or 0.0) >= WEAK


def _provenance(
    config: CollectConfig,
    identity: Identity,
    ppo: PPO,
    entropy: float,
    first: BehaviourPolicy | None,
) -> dict[str, Any]:
    """Where a policy came from, and how it played at the end."""
    return {
        "algorithm": "ppo",
        "game": config.game,
        "difficulty": config.difficulty,
        "actions": config.actions,
        "encoder": config.schedule.encoder,
        "view": config.schedule.view,
        "hold": config.schedule.hold,
        "seed": config.seed,
        "frames": ppo.frames,
        "return": ppo.mean_return,
        "entropy": entropy,
        "gsf": __version__,
        "config": identity.options,
        **({"started_from": first.provenance["digest"]} if first else {}),
        **encoders.find(config.schedule.encoder).identity("encoder_code"),
        **(env_facts(config.played) if config.env else {}),
    }
