"""Speed and memory of training steps, against the machine's peak and of each method against CQL."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from gsf.bench.measure import (
    medians,
    peak_megabytes,
    random_play,
    ratio,
    seconds_of,
    show,
    take_turns,
)
from gsf.bench.options import BenchTrainConfig as BenchTrainConfig
from gsf.bench.peers import PEERS, find_peer, peer_step, try_peer
from gsf.core.options import Precision
from gsf.data.dataset import Dataset
from gsf.gvf.fit import FitConfig, fit
from gsf.gvf.label import LabelConfig, label
from gsf.learn import methods
from gsf.learn.learner import AgentConfig, Learner
from gsf.nets import encoders
from gsf.nets.precision import PRECISIONS
from gsf.nets.runtime import keep_freed_memory

# Channels, pixels a side, images: of a convolution so wide that memory does not hold it up, which
# shows the most a machine can do. A plain product of matrices stays below half of that on AMD's.
WIDE = (256, 8, 64)


def bench_train(config: BenchTrainConfig) -> dict[str, float]:
    for checkout in config.against:
        try_peer(checkout)
    with random_play(config.transitions) as home:
        numbers = _against_plain(config, home) | _against_cql(config, home)
        for checkout in config.against:
            numbers |= _against_peer(config, home, checkout)
    show("gsf bench train", numbers, config.out)
    return numbers


def _turns(
    steps: Mapping[str, Callable[[], Any]], rounds: int, **timers: Callable[[], float]
) -> dict[str, list[float]]:
    timed = {name: partial(seconds_of, step) for name, step in steps.items()}
    return take_turns({**timed, **timers}, rounds, "bench train")


def _against_plain(config: BenchTrainConfig, home: Path) -> dict[str, float]:
    step = partial(_step, home, config.encoder, config.batch)
    steps = {
        "channels_last": step("cql"),
        "plain NCHW": step("cql", trunk=PlainTrunk),
        "bf16": step("cql", precision="bf16"),
        "gsf-reward": step("gsf-reward"),
    }
    limit = _wide_convolution()
    taken = _turns({**steps, "limit": limit}, config.rounds)
    seconds = medians(taken)
    peak = count(limit) / min(taken["limit"])
    speed = count(steps["channels_last"]) / seconds["channels_last"]
    what = f"cql step, {config.encoder}, batch {config.batch}"
    return {
        f"{what}, transitions/s": config.batch / seconds["channels_last"],
        "the same in plain NCHW, transitions/s": config.batch / seconds["plain NCHW"],
        "channels_last / plain NCHW": seconds["plain NCHW"] / seconds["channels_last"],
        "the same in bf16, transitions/s": config.batch / seconds["bf16"],
        **ratio("bf16 / float32", taken["channels_last"], taken["bf16"]),
        **ratio("gsf-reward step / cql step", taken["gsf-reward"], taken["channels_last"]),
        "cql step, GFLOP/s": speed / 1e9,
        "limit, GFLOP/s": peak / 1e9,
        "cql step / limit": speed / peak,
    }


def _wide_convolution() -> Callable[[], Tensor]:
    channels, size, images = WIDE
    layer = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False).requires_grad_(False)
    layer = layer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    image = torch.randn(images, channels, size, size).to(memory_format=torch.channels_last)
    return lambda: layer(image)


def count(work: Callable[[], Any]) -> float:
    """Floating-point operations of convolutions and matrix products."""
    with FlopCounterMode(display=False) as counter:
        work()
    return float(counter.get_total_flops())


def _against_cql(config: BenchTrainConfig, home: Path) -> dict[str, float]:
    asked = methods.all_methods() if config.methods == ("all",) else config.methods
    compared = [method.spec for method in methods.find_all(["cql", *asked])]
    step = partial(_step, home, config.methods_encoder, config.batch)
    seconds = medians(_turns({method: step(method) for method in compared}, config.rounds))
    numbers = {f"cql, {config.methods_encoder}, ms a step": 1e3 * seconds["cql"]}
    numbers |= {f"{method}, time / cql": seconds[method] / seconds["cql"] for method in compared}
    if config.memory:
        peaks = {m: peak_megabytes(_three_steps, partial(step, m)) for m in compared}
        numbers["cql, peak resident MB"] = peaks["cql"]
        numbers |= {f"{method}, memory / cql": peaks[method] / peaks["cql"] for method in compared}
    return numbers


def _three_steps(make: Callable[[], Callable[[], Any]]) -> None:
    step = make()
    for _ in range(3):
        step()


def _against_peer(config: BenchTrainConfig, home: Path, checkout: Path) -> dict[str, float]:
    """The other project's step beside ours, with that network of ours that is nearest to its."""
    name = find_peer(checkout)
    encoder = PEERS[name].encoder
    ours: dict[str, Callable[[], Any]] = {
        p: _step(home, encoder, config.batch, "cql", precision=p) for p in PRECISIONS
    }
    with peer_step(checkout, config.batch) as theirs:
        taken = _turns(ours, config.rounds, theirs=theirs)
    seconds = medians(taken)
    what = f"{encoder}, batch {config.batch}"
    return {
        f"{name}'s cql step, {what}, transitions/s": config.batch / seconds["theirs"],
        f"ours beside it, {what}, transitions/s": config.batch / seconds["float32"],
        **ratio(f"ours / {name}", taken["theirs"], taken["float32"]),
        **ratio(f"ours in bf16 / {name}", taken["theirs"], taken["bf16"]),
    }


class PlainTrunk(encoders.ConvTrunk):
    """What most code does: images copied to NCHW, weights in torch's default layout."""

    def __init__(self, obs_shape: tuple[int, ...], kind: str) -> None:
        super().__init__(obs_shape, kind)
        self.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def _image(self, obs: Tensor) -> Tensor:
        return super()._image(obs).contiguous()


def _step(
    home: Path,
    encoder: str,
    batch: int,
    method: str,
    trunk: type[encoders.ConvTrunk] = encoders.ConvTrunk,
    precision: Precision = "float32",
) -> Callable[[], Any]:
    config = AgentConfig(method=method, encoder=encoder, precision=precision)
    with patch.object(encoders, "ConvTrunk", trunk):
        return training_step(home, config, batch)


def training_step(home: Path, config: AgentConfig, batch: int) -> Callable[[], Any]:
    """One call is one training step on the play in `home`: draw a batch, crop, encode, update."""
    keep_freed_memory()
    dataset, rng = Dataset.open(home / "dataset"), np.random.default_rng(0)
    learner = Learner(config, dataset, rng, _labels(home, config.method))
    return lambda: learner.update(dataset.sample(batch, rng, learner.n_levels), rng)


def _labels(home: Path, method: str) -> Path | None:
    found = methods.find(method)
    if found.cumulant is None:
        return None
    gvf, out = home / f"gvf-{found.labels_of}", home / f"labels-{found.labels_of}"
    if not out.exists():
        data, cumulant = home / "dataset", found.cumulant
        fit(FitConfig(data, gvf, cumulant=cumulant, diagnose=False, allow_small_levels=True))
        label(LabelConfig(gvf, out, allow_small_levels=True))
    return out
