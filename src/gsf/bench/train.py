"""Speed and memory of training steps, against the machine's peak and of each method against CQL.

Whatever is compared takes turns, so that a noisy machine is noisy for all.
"""

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from gsf.bench.data import peak_megabytes, record_random, show
from gsf.bench.options import BenchTrainConfig as BenchTrainConfig
from gsf.bench.peers import PEERS, find_peer, peer_step, try_peer
from gsf.core.logs import progress
from gsf.core.options import Precision
from gsf.core.processes import starting
from gsf.data.dataset import Dataset
from gsf.data.materialise import MaterialiseConfig, materialise
from gsf.gvf.fit import FitConfig, fit
from gsf.gvf.label import LabelConfig, label
from gsf.learn import methods
from gsf.learn.learner import AgentConfig, Learner
from gsf.nets.encoders import ConvTrunk
from gsf.nets.precision import PRECISIONS
from gsf.nets.runtime import keep_freed_memory

MATRIX = 2048  # rows and columns of the product that shows what the machine can do at best


def bench_train(config: BenchTrainConfig) -> dict[str, float]:
    for checkout in config.against:
        try_peer(checkout)
    with tempfile.TemporaryDirectory(prefix="gsf-bench-") as directory:
        home = Path(directory)
        record_random("coinrun", config.transitions).save(home / "play.gsfrec")
        materialise(MaterialiseConfig(str(home / "play.gsfrec"), home / "dataset"))
        numbers = _against_plain(config, home) | _against_cql(config, home)
        for checkout in config.against:
            numbers |= _against_peer(config, home, checkout)
    show("gsf bench train", numbers, config.out)
    return numbers


def _against_plain(config: BenchTrainConfig, home: Path) -> dict[str, float]:
    dataset = Dataset.open(home / "dataset")
    steps = {
        "channels_last": _step(dataset, "cql", config.encoder, config.batch),
        "plain NCHW": _step(dataset, "cql", config.encoder, config.batch, plain=True),
        "bf16": _step(dataset, "cql", config.encoder, config.batch, precision="bf16"),
        "gsf-reward": _step(
            dataset, "gsf-reward", config.encoder, config.batch, labels_of(home, "gsf-reward")
        ),
    }
    matrix = torch.randn(MATRIX, MATRIX)
    taken = take_turns({**steps, "matrix multiply": lambda: matrix @ matrix}, config.rounds)
    seconds = _medians(taken)
    counter = FlopCounterMode(display=False)
    with counter:
        steps["channels_last"]()
    peak = 2 * MATRIX**3 / seconds["matrix multiply"]
    speed = counter.get_total_flops() / seconds["channels_last"]
    transitions = {name: config.batch / x for name, x in seconds.items()}
    what = f"cql step, {config.encoder}, batch {config.batch}"
    return {
        f"{what}, transitions/s": transitions["channels_last"],
        "the same in plain NCHW, transitions/s": transitions["plain NCHW"],
        "channels_last / plain NCHW": transitions["channels_last"] / transitions["plain NCHW"],
        "the same in bf16, transitions/s": transitions["bf16"],
        **ratio("bf16 / float32", taken["channels_last"], taken["bf16"]),
        **ratio("gsf-reward step / cql step", taken["gsf-reward"], taken["channels_last"]),
        "cql step, GFLOP/s": speed / 1e9,
        "matrix multiply, GFLOP/s": peak / 1e9,
        "cql step / matrix multiply": speed / peak,
    }


def _against_cql(config: BenchTrainConfig, home: Path) -> dict[str, float]:
    asked = methods.all_methods() if config.methods == ("all",) else config.methods
    compared = [method.spec for method in methods.find_all(["cql", *asked])]
    labels = {method: labels_of(home, method) for method in compared}
    dataset = Dataset.open(home / "dataset")
    steps = {
        method: _step(dataset, method, config.methods_encoder, config.batch, labels=labels[method])
        for method in compared
    }
    seconds = _medians(take_turns(steps, config.rounds))
    numbers = {f"cql, {config.methods_encoder}, ms a step": 1e3 * seconds["cql"]}
    numbers |= {f"{method}, time / cql": seconds[method] / seconds["cql"] for method in compared}
    if config.memory:
        peaks = {m: _peak_megabytes(home, m, config, labels[m]) for m in compared}
        numbers["cql, peak resident MB"] = peaks["cql"]
        numbers |= {f"{method}, memory / cql": peaks[method] / peaks["cql"] for method in compared}
    return numbers


def _against_peer(config: BenchTrainConfig, home: Path, checkout: Path) -> dict[str, float]:
    """The peer's own step and ours with the network nearest to its, in turns."""
    name = find_peer(checkout)
    encoder = PEERS[name].encoder
    dataset = Dataset.open(home / "dataset")
    ours: dict[str, Callable[[], Any]] = {
        p: _step(dataset, "cql", encoder, config.batch, precision=p) for p in PRECISIONS
    }
    theirs: list[float] = []  # as they measured it, without the pipe
    with peer_step(checkout, config.batch) as step:
        taken = take_turns({**ours, "theirs": lambda: theirs.append(step())}, config.rounds)
    taken["theirs"] = theirs[1:]
    seconds = _medians(taken)
    what = f"{encoder}, batch {config.batch}"
    return {
        f"{name}'s cql step, {what}, transitions/s": config.batch / seconds["theirs"],
        f"ours beside it, {what}, transitions/s": config.batch / seconds["float32"],
        **ratio(f"ours / {name}", taken["theirs"], taken["float32"]),
        **ratio(f"ours in bf16 / {name}", taken["theirs"], taken["bf16"]),
    }


def take_turns(
    steps: Mapping[str, Callable[[], Any]], rounds: int, what: str = "bench train"
) -> dict[str, list[float]]:
    """Seconds of each, one call of every kind per round after one to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    with progress(what, rounds + 1, "rounds") as advance:
        for turn in range(rounds + 1):
            for name, step in steps.items():
                start = time.perf_counter()
                step()
                seconds[name].append(time.perf_counter() - start)
            advance(turn + 1)
    return {name: taken[1:] for name, taken in seconds.items()}


def _medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def ratio(what: str, above: list[float], below: list[float]) -> dict[str, float]:
    """Of two that took turns: the median of their ratio over the rounds, and its middle half."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    quarters = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    names = (f"{what}, lower quartile", what, f"{what}, upper quartile")
    return dict(zip(names, quarters, strict=True))


class PlainTrunk(ConvTrunk):
    """What most code does: images copied to NCHW, weights in torch's default layout."""

    def __init__(self, obs_shape: tuple[int, ...], kind: str) -> None:
        super().__init__(obs_shape, kind)
        self.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def _image(self, obs: Tensor) -> Tensor:
        return super()._image(obs).contiguous()


def _step(
    dataset: Dataset,
    method: str,
    encoder: str,
    batch: int,
    labels: Path | None = None,
    plain: bool = False,
    precision: Precision = "float32",
) -> Callable[[], Any]:
    config = AgentConfig(method=method, encoder=encoder, precision=precision)
    return training_step(dataset, config, batch, labels, plain)


def training_step(
    dataset: Dataset,
    config: AgentConfig,
    batch: int,
    labels: Path | None = None,
    plain: bool = False,
) -> Callable[[], Any]:
    """One call is one training step: draw a batch, crop, encode, update."""
    keep_freed_memory()
    rng = np.random.default_rng(0)
    learner = Learner(config, dataset, rng, labels)
    if plain:
        for network in (learner.encoder, learner.target_encoder):
            network.trunk = PlainTrunk(dataset.obs_shape, config.encoder)
        learner.target_encoder.requires_grad_(False)
        learner.optimizers["rl"] = torch.optim.Adam(
            [*learner.encoder.parameters(), *learner.base.parameters()], learner.config.lr
        )
    return lambda: learner.update(dataset.sample(batch, rng, learner.n_levels), rng)


def labels_of(home: Path, method: str) -> Path | None:
    found = methods.find(method)
    if found.cumulant is None:
        return None
    gvf, out = home / f"gvf-{found.labels_of}", home / f"labels-{found.labels_of}"
    if not out.exists():
        data, cumulant = home / "dataset", found.cumulant
        fit(FitConfig(data, gvf, cumulant=cumulant, diagnose=False, allow_small_levels=True))
        label(LabelConfig(gvf, out, allow_small_levels=True))
    return out


def _peak_megabytes(
    home: Path, method: str, config: BenchTrainConfig, labels: Path | None
) -> float:
    """After three steps in a process of its own."""
    context = multiprocessing.get_context("spawn")
    arguments = (home / "dataset", method, config.methods_encoder, config.batch, labels)
    with starting(), context.Pool(1) as pool:
        return float(pool.apply(_three_steps, arguments))


def _three_steps(
    dataset: Path, method: str, encoder: str, batch: int, labels: Path | None
) -> float:
    step = _step(Dataset.open(dataset), method, encoder, batch, labels)
    for _ in range(3):
        step()
    return peak_megabytes()
