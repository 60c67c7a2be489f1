"""Distillation: BC whose labels are the policy of a trained run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gsf.core.errors import UserError
from gsf.data.dataset import Dataset
from gsf.learn.agent import load_agent
from gsf.learn.learner import AgentConfig, Learner
from gsf.nets.acting import tempered
from players import train_run, write_dataset

SMALL: dict[str, Any] = {"method": "bc", "encoder": "patches", "crop": 0}


@pytest.fixture(scope="module")
def teacher(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_run(dataset, tmp_path_factory.mktemp("teacher") / "run", grad_steps=20)


def make_learner(dataset: Dataset, teacher: Path, **options: Any) -> Learner:
    config = AgentConfig(**SMALL, parts={"bc": {"teacher": str(teacher)}}, **options)
    return Learner(config, dataset, np.random.default_rng(0))


def test_the_loss_is_the_cross_entropy_of_the_teachers_policy(
    dataset: Dataset, teacher: Path
) -> None:
    learner, agent = make_learner(dataset, teacher), load_agent(teacher)
    context = learner.look(dataset.gather(np.arange(12)), np.random.default_rng(0))
    loss, info = learner.base(context.z, context)
    wanted = torch.from_numpy(
        tempered(agent.scores(dataset.gather(np.arange(12)).obs.numpy()), 1.0)
    )
    logits = learner.base.scores(context.z).double()
    each = -(wanted * logits.log_softmax(1)).sum(1)
    assert loss.item() == pytest.approx(each.mean().item(), rel=1e-5)
    same = (wanted.argmax(1) == logits.argmax(1)).double().mean()
    assert info["agreement"].item() == pytest.approx(same.item())


def test_a_fresh_network_comes_to_act_as_its_teacher(dataset: Dataset, teacher: Path) -> None:
    learner, rng = make_learner(dataset, teacher, lr=1e-3), np.random.default_rng(1)
    agreed = []
    for _ in range(60):
        batch, drawn = learner.draw(32, rng)
        agreed.append(learner.update(batch, rng, drawn)["bc/agreement"].item())
    assert np.mean(agreed[-10:]) > max(0.8, np.mean(agreed[:10]))


def test_a_teacher_of_other_data_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no run"):
        make_learner(dataset, tmp_path / "none")
    other = train_run(write_dataset(tmp_path / "data", obs_shape=(32, 32, 3)), tmp_path / "run")
    with pytest.raises(UserError, match="other images"):
        make_learner(dataset, other)
