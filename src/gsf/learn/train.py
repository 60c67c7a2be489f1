"""Stage: dataset + labels + method -> agent. The loop, its log, its checkpoints, and going on.

Out: a run directory with manifest.json, metrics.jsonl, tensorboard/, checkpoint.pt (everything, to
go on exactly), checkpoints/step_<N>.pt (kept networks) and DONE. The same command resumes.
"""

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gsf.core.code import decided_by
from gsf.core.errors import UserError
from gsf.core.files import locked
from gsf.core.interrupts import stoppable
from gsf.core.logs import Metrics, console, progress
from gsf.core.presets import shorter_presets
from gsf.core.schema import parse_json
from gsf.core.sealed import fitting, save_checkpoint
from gsf.core.stage import Identity, read_manifest
from gsf.data.dataset import Dataset
from gsf.gvf.labels import load_labels
from gsf.learn.agent import load_run_checkpoint
from gsf.learn.feed import AHEAD_OF_A_GPU, Feed
from gsf.learn.learner import Learner
from gsf.learn.methods import Method
from gsf.learn.options import TrainConfig as TrainConfig
from gsf.nets import encoders
from gsf.nets.precision import settled
from gsf.nets.runtime import keep_freed_memory, pick_device

DIVERGED = 1e6  # a loss beyond this never came back


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
        _inputs(config, dataset) | encoder.identity("encoder") | _code(method, encoder.value.build),
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
        at = _loop(config, learner, rng)
        identity.finish(config.out, step=at.step, seconds=at.seconds)
    print(f"{config.out}: {learner.method.name}, {at.step:,} steps in {at.seconds:,.0f} s")
    return config.out


def _code(method: Method, encoder: Any) -> dict[str, str]:
    """gsf's own code that decides what is learnt."""
    return decided_by(__name__, encoder, *(part.value for part in method.parts.values()))


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


class _Tally:
    """Metrics since their last row, summed where they are computed: no step waits for a GPU."""

    def __init__(self, at: _Position) -> None:
        self.names, self.n = list(at.sums), at.n_summed
        self._sums = torch.tensor(list(at.sums.values()), dtype=torch.float64)
        self._worst = torch.zeros_like(self._sums)

    def add(self, info: Mapping[str, Tensor]) -> None:
        values = torch.stack([x.float() for x in info.values()])
        values = (values.cpu() if values.device.type == "mps" else values).double()  # MPS has none
        if not self.n:
            self.names, self._sums = list(info), torch.zeros_like(values)
            self._worst = self._sums
        self._sums = self._sums.to(values.device) + values
        self._worst = self._worst.to(values.device).maximum(values.abs())  # NaN stays
        self.n += 1

    @property
    def sums(self) -> dict[str, float]:
        return dict(zip(self.names, self._sums.tolist(), strict=True)) if self.n else {}

    @property
    def diverged(self) -> str | None:
        """Which loss was beyond bounds, if any."""
        for name, worst in zip(self.names, self._worst.tolist(), strict=True):
            if name.endswith("/loss") and not worst <= DIVERGED:  # also NaN
                return f"|{name}| was {worst:g}"
        return None


def _loop(config: TrainConfig, learner: Learner, rng: np.random.Generator) -> _Position:
    feed_rng = rng.spawn(1)[0]
    at = _resume(config, learner, rng, feed_rng)
    tally, saved, started = _Tally(at), at.step, time.monotonic() - at.seconds
    keep, shown = kept_steps(config.grad_steps, config.keep), dict[str, float]()
    on_gpu = learner.device == "cuda"
    ahead = (AHEAD_OF_A_GPU if on_gpu else 0) if config.prefetch is None else config.prefetch
    with (
        stoppable() as stop,
        Feed(
            lambda rng: learner.draw(config.batch, rng, config.n_levels), feed_rng, ahead, on_gpu
        ) as feed,
        contextlib.closing(Metrics(config.out, at.step, wandb=config.wandb)) as metrics,
        progress(
            f"train {learner.method.name}",
            config.grad_steps,
            shorter=shorter_presets("train", "grad_steps", config.grad_steps),
        ) as advance,
    ):
        while at.step < config.grad_steps:
            fed = next(feed)
            tally.add(learner.update(fed.batch, rng, fed.drawn))
            at.step, at.seconds = at.step + 1, time.monotonic() - started
            last, stopping = at.step == config.grad_steps, stop.asked
            log = at.step % config.log_every == 0 or last
            save = at.step % config.checkpoint_every == 0 or at.step in keep
            save |= last or stopping
            if (log or save) and (loss := tally.diverged):
                raise _diverged(config, loss, at.step, saved)
            if log:
                means = {name: total / tally.n for name, total in tally.sums.items()}
                metrics.write(at.step, {**means, "train/seconds": at.seconds})
                shown = {name: x for name, x in means.items() if name.endswith("/loss")}
                tally.n = 0
            if save:
                if not learner.finite():
                    raise _diverged(config, "a weight is not finite", at.step, saved)
                at.sums, at.n_summed = tally.sums, tally.n
                _save(config, learner, at, {"rng": rng.bit_generator.state, "feed": fed.rng})
                saved = at.step
                stop.kept = f"step {saved:,} of {config.grad_steps:,} is saved in {config.out}"
            advance(at.step, **shown)
            if stopping:
                break
    return at


def _save(config: TrainConfig, learner: Learner, at: _Position, streams: Mapping[str, Any]) -> None:
    position = {"method": learner.method.name, **dataclasses.asdict(at)}
    if at.step in kept_steps(config.grad_steps, config.keep):
        kept = config.out / "checkpoints" / f"step_{at.step}.pt"
        save_checkpoint(kept, {**position, **learner.networks()})
    position |= {name: json.dumps(state) for name, state in streams.items()}
    save_checkpoint(config.out / "checkpoint.pt", {**position, **learner.state()})


def _resume(
    config: TrainConfig, learner: Learner, rng: np.random.Generator, feed_rng: np.random.Generator
) -> _Position:
    latest = config.out / "checkpoint.pt"
    if not latest.is_file():
        return _Position()
    state = load_run_checkpoint(latest, learner.method.name)
    if state["step"] > config.grad_steps:
        raise UserError(
            f"{config.out} is at step {state['step']} already; ask for at least as many "
            "--grad-steps, or choose another --out."
        )
    with fitting(latest):
        learner.load(state)
        rng.bit_generator.state = parse_json(state["rng"])
        feed_rng.bit_generator.state = parse_json(state["feed"])
        return _Position(**{f.name: state[f.name] for f in dataclasses.fields(_Position)})


def _diverged(config: TrainConfig, what: str, step: int, saved: int) -> UserError:
    latest = config.out / "checkpoint.pt"
    kept = f"the last good checkpoint, of step {saved}, is {latest}" if saved else "nothing is kept"
    return UserError(f"training diverged by step {step}: {what}; {kept}. Try a lower --lr.")
