"""Stage: dataset + labels + method -> agent. The loop, its log, its checkpoints, and going on.

Out: a run directory with manifest.json, metrics.jsonl, tensorboard/, checkpoint.pt (everything, to
go on exactly), checkpoints/step_<N>.pt (kept networks) and DONE. The same command resumes.
"""

import contextlib
import dataclasses
import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gsf.core.errors import UserError
from gsf.core.files import locked, save_checkpoint
from gsf.core.logs import Metrics, console, progress
from gsf.core.stage import Identity, read_manifest
from gsf.data.dataset import Dataset
from gsf.gvf.labels import load_labels
from gsf.learn.agent import load_run_checkpoint
from gsf.learn.learner import Learner
from gsf.learn.options import TrainConfig as TrainConfig
from gsf.nets import encoders
from gsf.nets.runtime import keep_freed_memory, pick_device

DIVERGED = 1e6  # a loss beyond this never came back


def train(config: TrainConfig) -> Path:
    """Trains an agent on a dataset, or goes on where it was stopped; returns the run's directory.

    train(TrainConfig(dataset=Path("dataset"), out=Path("run"), method="cql", grad_steps=1_000))
    """
    config = config.resolved()
    dataset = Dataset.open(config.dataset)
    method, encoder = config.find_method(), encoders.find(config.encoder)
    identity = Identity.of(
        "run",
        config,
        _inputs(config, dataset) | encoder.identity("encoder"),
        method=method.name,
        on=method.base.name,
        encoder=encoder.name,
    )
    if identity.is_done(config.out):
        console.print(f"{config.out} is done already.", soft_wrap=True)
        return config.out
    keep_freed_memory()
    rng = np.random.default_rng(config.seed)
    learner = Learner(config, dataset, rng, config.labels, pick_device(config.device))
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
        at = _loop(config, dataset, learner, rng)
        identity.finish(config.out, step=at.step, seconds=at.seconds)
    print(f"{config.out}: {learner.method.name}, {at.step:,} steps in {at.seconds:,.0f} s")
    return config.out


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


def kept_steps(grad_steps: int, keep: int) -> set[int]:
    return {math.ceil(grad_steps * (i + 1) / keep) for i in range(keep)}


@dataclass
class _Position:
    """Where a run is, beyond its networks."""

    step: int = 0
    seconds: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)  # of metrics since their last row
    n_summed: int = 0


def _loop(
    config: TrainConfig, dataset: Dataset, learner: Learner, rng: np.random.Generator
) -> _Position:
    at = _resume(config, learner, rng)
    saved, started = at.step, time.monotonic() - at.seconds
    n_levels = config.n_levels or learner.n_levels
    keep = kept_steps(config.grad_steps, config.keep)
    with (
        contextlib.closing(Metrics(config.out, at.step)) as metrics,
        progress(f"train {learner.method.name}", config.grad_steps) as advance,
    ):
        while at.step < config.grad_steps:
            info = learner.update(dataset.sample(config.batch, rng, n_levels), rng)
            values = {name: float(value) for name, value in info.items()}
            at.step, at.seconds = at.step + 1, time.monotonic() - started
            last = at.step == config.grad_steps
            terms = {name: x for name, x in values.items() if name.endswith("/loss")}
            for name, value in terms.items():
                if not abs(value) <= DIVERGED:  # also NaN
                    raise _diverged(config, f"{name} is {value:g}", at.step, saved)
            at.sums = {name: at.sums.get(name, 0.0) + x for name, x in values.items()}
            at.n_summed += 1
            if at.step % config.log_every == 0 or last:
                means = {name: total / at.n_summed for name, total in at.sums.items()}
                metrics.write(at.step, {**means, "train/seconds": at.seconds})
                at.sums, at.n_summed = {}, 0
            if at.step % config.checkpoint_every == 0 or at.step in keep or last:
                if not learner.finite():
                    raise _diverged(config, "a weight is not finite", at.step, saved)
                _save(config, learner, rng, at, keep=at.step in keep)
                saved = at.step
            advance(at.step, **terms)
    return at


def _save(
    config: TrainConfig, learner: Learner, rng: np.random.Generator, at: _Position, keep: bool
) -> None:
    position = {"method": learner.method.name, **dataclasses.asdict(at)}
    if keep:
        kept = config.out / "checkpoints" / f"step_{at.step}.pt"
        save_checkpoint(kept, {**position, **learner.networks()})
    position["rng"] = json.dumps(rng.bit_generator.state)
    save_checkpoint(config.out / "checkpoint.pt", {**position, **learner.state()})


def _resume(config: TrainConfig, learner: Learner, rng: np.random.Generator) -> _Position:
    latest = config.out / "checkpoint.pt"
    if not latest.is_file():
        return _Position()
    state = load_run_checkpoint(latest, learner.method.name)
    if state["step"] > config.grad_steps:
        raise UserError(
            f"{config.out} is at step {state['step']} already; ask for at least as many "
            "--grad-steps, or choose another --out."
        )
    learner.load(state)
    rng.bit_generator.state = json.loads(state["rng"])
    return _Position(**{f.name: state[f.name] for f in dataclasses.fields(_Position)})


def _diverged(config: TrainConfig, what: str, step: int, saved: int) -> UserError:
    latest = config.out / "checkpoint.pt"
    kept = f"the last good checkpoint, of step {saved}, is {latest}" if saved else "nothing is kept"
    return UserError(f"training diverged at step {step}: {what}; {kept}. Try a lower --lr.")
