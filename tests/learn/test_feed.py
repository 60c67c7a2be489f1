"""Batches drawn ahead are the same batches, and no step asks the device for a number."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gsf.core.sealed import load_checkpoint
from gsf.data.dataset import Dataset
from gsf.learn.feed import Feed
from gsf.learn.learner import Learner
from gsf.learn.train import TrainConfig, train
from gsf.nets.encoders import Encoder


def feed(dataset: Dataset, ahead: int, seed: int = 3) -> Feed:
    return Feed(lambda rng: (dataset.sample(4, rng), {}), np.random.default_rng(seed), ahead)


def test_batches_drawn_ahead_are_the_same_in_the_same_order(dataset: Dataset) -> None:
    with feed(dataset, 0) as now, feed(dataset, 3) as ahead:
        for _ in range(6):
            first, second = next(now), next(ahead)
            assert first.batch.index.tolist() == second.batch.index.tolist()
            assert first.rng == second.rng


def test_whoever_goes_on_begins_where_the_last_batch_ended(dataset: Dataset) -> None:
    with feed(dataset, 2) as whole:
        rows = [next(whole) for _ in range(4)]
    rng = np.random.default_rng(0)
    rng.bit_generator.state = rows[1].rng  # two more were drawn already
    with Feed(lambda rng: (dataset.sample(4, rng), {}), rng, 2) as resumed:
        assert next(resumed).batch.index.tolist() == rows[2].batch.index.tolist()


def test_what_goes_wrong_in_the_thread_is_said_here() -> None:
    def fail(rng: np.random.Generator) -> Any:
        raise OSError("the disk is gone")

    with Feed(fail, np.random.default_rng(0), 2) as ahead, pytest.raises(OSError, match="is gone"):
        next(ahead)


def config_of(dataset: Dataset, out: Path, **options: Any) -> TrainConfig:
    defaults: dict[str, Any] = {"encoder": "impala_small", "batch": 8, "checkpoint_every": 10}
    return TrainConfig(dataset=dataset.path, out=out, **(defaults | options))


def test_a_run_with_batches_drawn_ahead_has_the_same_weights(
    dataset: Dataset, labels: Path, tmp_path: Path
) -> None:
    runs = [
        train(
            config_of(
                dataset,
                tmp_path / str(ahead),
                method="gsf-reward",
                labels=labels,
                grad_steps=6,
                prefetch=ahead,
            )
        )
        for ahead in (0, 3)
    ]
    first, second = (load_checkpoint(run / "checkpoint.pt") for run in runs)
    for name, tensor in first["encoder"].items():
        assert torch.equal(tensor, second["encoder"][name])
    assert first["feed"] == second["feed"]


@pytest.mark.parametrize("method", ["bc", "cql", "iql", "gsf-reward", "curl", "deepmdp"])
def test_no_step_waits_for_a_number(
    dataset: Dataset, labels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """What is asked of tensors between two rows of metrics does not grow with the steps."""
    asked = 0

    def counting(name: str) -> Any:
        real = getattr(Tensor, name)

        def count(self: Tensor, *args: Any) -> Any:
            nonlocal asked
            asked += 1
            return real(self, *args)

        return count

    for name in ("item", "tolist", "__float__", "__bool__", "__int__"):
        monkeypatch.setattr(Tensor, name, counting(name))
    counts = []
    for steps in (4, 8):
        asked = 0
        wanted = labels if method.startswith("gsf") else None
        out = tmp_path / str(steps)
        train(
            config_of(dataset, out, method=method, labels=wanted, grad_steps=steps, log_every=100)
        )
        counts.append(asked)
    assert counts[0] == counts[1]
    assert counts[0] > 0  # the last row, the check for divergence


def test_bf16_is_close_to_float32_and_trains(dataset: Dataset, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = Encoder(dataset.obs_shape, "impala_small")
    obs = dataset.sample(32, np.random.default_rng(0)).obs
    z = network(obs)
    network.trunk.bf16 = True
    assert network(obs).dtype == torch.float32
    assert 0 < (network(obs) - z).abs().max() < 0.05
    losses = []
    for precision in ("float32", "bf16"):
        rng = np.random.default_rng(0)
        learner = Learner(
            config_of(dataset, tmp_path, precision=precision).resolved(), dataset, rng
        )
        for _ in range(5):
            info = learner.update(dataset.sample(16, rng), rng)
        losses.append(float(info["cql/loss"]))
        assert all(p.dtype == torch.float32 for p in learner.encoder.parameters())
    assert losses[1] == pytest.approx(losses[0], rel=0.05)
