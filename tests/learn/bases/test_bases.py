"""One conformance suite over every file in bases/, and every loss on every base."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gsf.core.loop import all_finite
from gsf.data.dataset import Dataset
from gsf.learn import bases, check, methods
from gsf.learn.learner import AgentConfig, Learner

LOSSES = [name.replace("<cumulant>", "reward") for name in methods.method_names()]
LOSSES = [name for name in LOSSES if name not in bases.names()]


@pytest.fixture(params=bases.names())
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.mark.parametrize("promise", check.OF_BASES, ids=lambda promise: promise.__name__)
def test_keeps_its_promises(dataset: Dataset, name: str, promise: Any) -> None:
    promise(check.of_base(name, dataset))


def test_stands_in_the_file_of_its_name_with_a_docstring(name: str) -> None:
    base = bases.find(name).value
    assert base.__module__ == f"gsf.learn.bases.{name}"
    assert inspect.getdoc(inspect.getmodule(base))


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_works_on_every_base(
    dataset: Dataset, labels: Path, name: str, loss: str
) -> None:
    config = AgentConfig(method=loss, on=name, encoder="impala_small")
    needed = labels if "-" in loss else None
    learner, rng = (
        Learner(config, dataset, np.random.default_rng(0), needed),
        np.random.default_rng(0),
    )
    before = learner.encoder.trunk.fc.weight.detach().clone()
    info = learner.update(dataset.sample(24, rng, learner.n_levels), rng)
    assert {f"{name}/loss", f"{loss.partition('-')[0]}/loss"} <= info.keys()
    assert all(value.isfinite() and not value.requires_grad for value in info.values())
    assert all_finite(learner.modules.values())
    assert not torch.equal(before, learner.encoder.trunk.fc.weight)


def test_metrics_are_documented(dataset: Dataset, name: str) -> None:
    documented = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    learner = check.of_base(name, dataset).learner()
    rng = np.random.default_rng(0)
    for metric in learner.update(dataset.sample(8, rng), rng):
        assert f"`{metric}`" in documented
