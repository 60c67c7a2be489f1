"""Stage: dataset + labels + method -> agent.

Out: a run directory with manifest.json, metrics.jsonl, tensorboard/, checkpoint.pt (everything, to
go on exactly), checkpoints/step_<N>.pt (kept networks) and DONE. The same command resumes.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from gsf.core.code import decided_by
from gsf.core.errors import UserError
from gsf.core.files import locked
from gsf.core.logs import console
from gsf.core.loop import Loop, Position
from gsf.core.schema import parse_json
from gsf.core.stage import Identity, read_manifest
from gsf.data.dataset import Batch, Dataset
from gsf.gvf.training_labels import load_labels
from gsf.learn.agent import load_run_checkpoint
from gsf.learn.feed import AHEAD_OF_A_GPU, Drawn, Feed
from gsf.learn.learner import Learner
from gsf.learn.options import TrainConfig as TrainConfig
from gsf.nets import encoders
from gsf.nets.precision import settled
from gsf.nets.runtime import keep_freed_memory, pick_device


def train(config: TrainConfig) -> Path:
    """Trains an agent on a dataset, or goes on where it was stopped; returns the run's directory.

    train(TrainConfig(dataset=Path("dataset"), out=Path("run"), method="cql", grad_steps=1_000))
    """
    config = config.resolved()
    dataset = Dataset.open(config.dataset)
    config = settled(config, config.out, "run", dataset.obs_shape, config.batch)
    method = dataclasses.replace(config, name=None).find_method()  # by its own name
    encoder = encoders.find(config.encoder)
    identity = Identity.of(
        "run",
        config,
        _inputs(config, dataset)
        | encoder.identity("encoder")
        | decided_by(__name__, encoder.value.build, *(x.value for x in method.parts.values())),
        method=method.name,
        on=method.base.name,
        encoder=encoder.name,
    )
    if config.lr_schedule == "cosine":  # with more steps, earlier ones would have been others
        identity = dataclasses.replace(identity, extendable=frozenset())
    if identity.is_done(config.out):
        console.print(f"{config.out} is done already.", soft_wrap=True)
        return config.out
    keep_freed_memory()
    rng = np.random.default_rng(config.seed)
    learner = Learner(
        config, dataset, rng, config.labels, pick_device(config.device), config.grad_steps
    )
    with locked(config.out):
        identity.begin(
            config.out,
            game=dataset.name,
            method=learner.method.name,
            seed=config.seed,
            obs_shape=list(dataset.obs_shape),
            n_actions=dataset.n_actions,
            levels=dataset.levels,
            difficulty=dataset.manifest.get("difficulty"),
            actions=dataset.manifest.get("actions"),  # ids of the suite, by position
            reward_scale=learner.spec.reward_scale,
        )
        at = _learn(config, learner, rng)
        identity.finish(config.out, step=at.step, seconds=at.seconds)
    print(f"{config.out}: {learner.method.name}, {at.step:,} steps in {at.seconds:,.0f} s")
    return config.out


def resolved(config: TrainConfig) -> TrainConfig:
    """What would be trained, with every option that is a default of the method's."""
    return config.resolved()


def _inputs(config: TrainConfig, dataset: Dataset) -> dict[str, str]:
    """Digests of everything the run is made of; labels of anything else are refused."""
    method = config.find_method()
    inputs = {"dataset": dataset.digest, **method.identity()}
    if config.labels is None:  # the loss itself says if it needs them
        return inputs
    if method.cumulant is None:
        raise UserError(f"method {method.name} uses no labels; leave --labels out.")
    found, wanted = load_labels(config.labels, dataset).cumulant, method.labels_of
    if found != wanted:
        raise UserError(
            f"method {method.name} needs labels of {wanted}, but {config.labels} has labels of "
            f"{found}; choose another method or other --labels."
        )
    manifest = read_manifest(config.labels, "labels")
    return inputs | {"labels": manifest["digest"]}


def _learn(config: TrainConfig, learner: Learner, rng: np.random.Generator) -> Position:
    method, feed_rng, on_gpu = learner.method.name, rng.spawn(1)[0], learner.device == "cuda"
    ahead = (AHEAD_OF_A_GPU if on_gpu else 0) if config.prefetch is None else config.prefetch

    def draw(rng: np.random.Generator) -> tuple[Batch, Drawn]:
        return learner.draw(config.batch, rng, config.n_levels)

    def step() -> dict[str, Tensor]:
        fed = next(feed)
        return learner.update(fed.batch, rng, fed.drawn)

    def state() -> dict[str, Any]:
        streams = {"rng": json.dumps(rng.bit_generator.state), "feed": json.dumps(feed.state)}
        return {"method": method, **streams, **learner.state()}

    def load(state: Mapping[str, Any]) -> None:
        learner.load(state)
        rng.bit_generator.state = parse_json(state["rng"])
        feed_rng.bit_generator.state = parse_json(state["feed"])

    with Feed(draw, feed_rng, ahead, on_gpu) as feed:
        return Loop(
            out=config.out,
            name="train",
            of=method,
            total=("train", "grad_steps", config.grad_steps),
            step=step,
            state=state,
            load=load,
            modules=learner.modules.values(),
            read=lambda path: load_run_checkpoint(path, method),
            log_every=config.log_every,
            save_every=config.checkpoint_every,
            keep=config.keep,
            kept=("method", "encoder", "base"),
            wandb=config.wandb,
        ).run()
