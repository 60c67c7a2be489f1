"""DeepMDP: the model of a chain, what it is trained on, and what it must not be."""

from typing import Any

import numpy as np
import pytest
import torch

from chains import LENGTH, write_chain
from episodes import write_episodes
from gsf.core.loop import all_finite
from gsf.data.dataset import Dataset
from gsf.learn.learner import AgentConfig, Learner
from gsf.learn.losses.deepmdp import DeepMDP


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_episodes(tmp_path_factory.mktemp("deepmdp") / "dataset")


def make_learner(dataset: Dataset, **options: Any) -> Learner:
    config = AgentConfig(method="deepmdp", on="bc", encoder="patches", crop=0, **options)
    return Learner(config, dataset, np.random.default_rng(0))


def test_predicts_the_next_latent_of_a_chain(tmp_path_factory: pytest.TempPathFactory) -> None:
    dataset = write_chain(tmp_path_factory.mktemp("chain") / "dataset", (1.0, 1.0))
    learner: Any = make_learner(dataset, lr=1e-3, stop_gradient=True)
    rng = np.random.default_rng(0)
    for _ in range(200):
        info = learner.update(dataset.sample(32, rng), rng)
    episode = dataset.gather(np.arange(*dataset.episodes()[0]))
    with torch.no_grad():
        z = learner.encoder(episode.obs)
        one_hot = torch.nn.functional.one_hot(episode.action, dataset.n_actions)
        x = torch.cat([z, one_hot], 1)
        predicted, reward = (
            learner.losses["deepmdp"].next_z(x),
            learner.losses["deepmdp"].reward(x)[:, 0],
        )
    error = torch.cdist(predicted[:-1], z)  # [4,5]: from each state to every one
    assert torch.equal(error.argmin(1), torch.arange(1, LENGTH))
    still = torch.cdist(z, z)[np.arange(LENGTH - 1), np.arange(1, LENGTH)]
    assert (error[np.arange(LENGTH - 1), np.arange(1, LENGTH)] < 0.5 * still).all()
    assert float(info["deepmdp/latent"]) < 0.25 * float(info["deepmdp/still"])
    expected = (np.arange(LENGTH) + 1) / learner.spec.reward_scale
    np.testing.assert_allclose(reward, expected, atol=0.1)


def test_formula_with_the_last_step_of_an_episode(episodes: Dataset) -> None:
    config = DeepMDP.Config(reward_weight=2.0, latent_weight=3.0)
    learner: Any = make_learner(episodes, parts={"deepmdp": config})
    batch = episodes.gather(np.arange(len(episodes)))
    assert not batch.has_next.all()
    context = learner.look(batch, np.random.default_rng(0))
    loss, info = learner.losses["deepmdp"](context)

    with torch.no_grad():
        x = torch.cat([context.z, torch.nn.functional.one_hot(batch.action, 5)], 1)
        reward = learner.losses["deepmdp"].reward(x)[:, 0].double().numpy()
        next_z = learner.losses["deepmdp"].next_z(x).double().numpy()
        true_next = learner.encoder(batch.next_obs).double().numpy()
    errors = [
        np.mean((next_z[i] - true_next[i]) ** 2)
        for i in range(len(batch.index))
        if episodes.has_next[i]
    ]
    unit = np.clip(np.asarray(episodes.reward, float) / learner.spec.reward_scale, -10, 10)
    reward_error = np.mean((reward - unit) ** 2)  # of every step, the last ones too
    assert float(info["latent"]) == pytest.approx(np.mean(errors), rel=1e-4)
    assert float(info["reward"]) == pytest.approx(reward_error, rel=1e-4)
    expected = 2 * reward_error + 3 * np.mean(errors)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)


def test_no_gradient_through_the_next_latent_nor_from_a_next_that_is_not_there(
    episodes: Dataset,
) -> None:
    learner: Any = make_learner(episodes)
    batch = episodes.gather(np.arange(len(episodes)))
    weight = learner.encoder.trunk.fc.weight
    next_z = learner.encoder(batch.next_obs).detach()
    batch.next_obs[~batch.has_next] = 0
    context = learner.look(batch, np.random.default_rng(0))
    loss, _ = learner.losses["deepmdp"](context)
    (found,) = torch.autograd.grad(loss, weight)

    x = torch.cat([learner.encoder(batch.obs), torch.nn.functional.one_hot(batch.action, 5)], 1)
    reward = learner.losses["deepmdp"].reward(x)[:, 0] - learner.spec.scaled(batch.reward)
    latent = (learner.losses["deepmdp"].next_z(x) - next_z)[batch.has_next]
    (expected,) = torch.autograd.grad(reward.square().mean() + latent.square().mean(), weight)
    assert expected.abs().sum() > 0
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)


def test_a_batch_without_any_next_observation(episodes: Dataset) -> None:
    learner = make_learner(episodes)
    rows = np.flatnonzero(~episodes.has_next)
    info = learner.update(episodes.gather(rows), np.random.default_rng(0))
    assert float(info["deepmdp/latent"]) == 0
    assert all_finite(learner.modules.values())
