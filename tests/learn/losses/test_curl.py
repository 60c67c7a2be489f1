"""CURL: an observation finds its own second crop."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from chains import write_chain
from episodes import write_episodes
from gsf.data.dataset import Dataset
from gsf.learn.learner import AgentConfig, Learner


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_episodes(tmp_path_factory.mktemp("curl") / "dataset")


def make_learner(dataset: Dataset, **options: Any) -> Learner:
    config = AgentConfig(method="curl", on="bc", encoder="impala_small", **options)
    return Learner(config, dataset, np.random.default_rng(0))


def test_the_diagonal_wins_after_training_and_did_not_before(tmp_path: Path) -> None:
    dataset = write_chain(tmp_path / "chain", (1.0,), n_episodes=1, length=12)
    learner: Any = make_learner(dataset, lr=1e-3, stop_gradient=True)
    batch = dataset.gather(np.arange(12))  # twelve colours

    def logits() -> torch.Tensor:
        context = learner.look(batch, np.random.default_rng(99))
        with torch.no_grad():
            keys = learner.target_encoder(context.crop(batch.obs))
            return context.z @ learner.losses["curl"].w @ keys.T

    def share_won() -> float:
        return float((logits().argmax(1) == torch.arange(12)).float().mean())

    assert share_won() < 0.5
    rng = np.random.default_rng(0)
    for _ in range(80):
        info = learner.update(batch, rng)
    assert share_won() > 0.9
    assert float(info["curl/accuracy"]) > 0.9


def test_formula_and_where_the_two_crops_go(dataset: Dataset) -> None:
    learner: Any = make_learner(dataset, crop=2)
    context = learner.look(dataset.gather(np.arange(5)), np.random.default_rng(0))
    with torch.no_grad():
        learner.losses["curl"].w.copy_(
            torch.from_numpy(np.random.default_rng(1).normal(size=(256, 256))) / 50
        )
        learner.target_encoder.embed[0].bias.add_(0.5)  # no longer the online one
    cropped: list[torch.Tensor] = []
    crop = context.crop

    def remembered(obs: torch.Tensor) -> torch.Tensor:
        assert torch.equal(obs, context.batch.obs)  # the logged image, not the first crop
        cropped.append(crop(obs))
        return cropped[-1]

    context.crop = remembered
    loss, info = learner.losses["curl"](context)
    (second,) = cropped
    assert not torch.equal(second, context.obs)
    z = learner.encoder(context.obs).detach().double()
    keys = learner.target_encoder(second).double()
    w, expected, n_right = learner.losses["curl"].w.detach().double(), 0.0, 0
    for i in range(5):
        scores = np.array([float(z[i] @ w @ keys[j]) for j in range(5)])
        expected += (np.log(np.exp(scores).sum()) - scores[i]) / 5
        n_right += scores.argmax() == i
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)
    assert float(info["accuracy"]) == pytest.approx(n_right / 5)


def test_the_target_encoder_moves_as_fast_as_the_authors(dataset: Dataset) -> None:
    """Theirs moves by 0.05 every second step, so by 0.025 a step; critics keep --target-rate."""
    config = AgentConfig(method="curl", encoder="impala_small", target_rate=0.5)
    learner: Any = Learner(config, dataset, np.random.default_rng(0))
    target, critic = learner.target_encoder.embed[0].bias, learner.base.target_q.q1[0].bias
    before, before_critic = target.clone(), critic.clone()
    learner.update(dataset.gather(np.arange(5)), np.random.default_rng(0))
    online, online_critic = learner.encoder.embed[0].bias, learner.base.q.q1[0].bias
    moved = 0.025 * online.detach() + 0.975 * before
    torch.testing.assert_close(target, moved, rtol=1e-6, atol=1e-9)
    assert not torch.equal(online, before)
    torch.testing.assert_close(critic, (online_critic.detach() + before_critic) / 2)


def test_data_of_one_row(tmp_path: Path) -> None:
    dataset = write_episodes(tmp_path / "one", lengths=(1,), levels=(0,))
    info = make_learner(dataset).update(dataset.gather([0]), np.random.default_rng(0))
    assert float(info["curl/loss"]) == pytest.approx(0)  # nothing to be told apart from
