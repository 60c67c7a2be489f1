"""Return-conditioned behaviour cloning: what it is told, what it asks for, what it learns."""

import copy

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from gsf.data.dataset import Dataset
from gsf.learn.bases.rcbc import within_groups
from gsf.learn.learner import AgentConfig, Learner


def make_learner(dataset: Dataset, **options: float) -> Learner:
    config = AgentConfig(method="rcbc", encoder="impala_small", crop=0, parts={"rcbc": options})
    return Learner(config, dataset, np.random.default_rng(0))


def test_values_are_compared_within_their_group() -> None:
    values, group = np.array([1.0, 3.0, 10.0, 10.0, 5.0]), np.array([0, 0, 2, 2, 3])
    assert within_groups(values, group).tolist() == [-1, 1, 0, 0, 0]


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_it_is_told_what_is_earned_until_the_episode_ends(dataset: Dataset, gamma: float) -> None:
    learner = make_learner(dataset, gamma=gamma, quantile=0.75)
    batch = dataset.gather(np.arange(len(dataset)))
    to_go = np.zeros(len(dataset))
    for start, stop in dataset.episodes():
        for row in range(start, stop):
            powers = gamma ** np.arange(stop - row)
            to_go[row] = (powers * dataset.reward[row:stop]).sum()
    told = np.zeros(len(dataset))
    for level in np.unique(dataset.level):
        mine = dataset.level == level
        told[mine] = (to_go[mine] - to_go[mine].mean()) / to_go[mine].std()
    rng = np.random.default_rng(0)
    found = learner.base.draw(dataset, batch, rng)["to_go"]
    np.testing.assert_allclose(found, told, atol=1e-5)
    assert learner.base.asked.item() == pytest.approx(np.quantile(told, 0.75), abs=1e-5)

    few = dataset.gather(np.arange(5))
    context = learner.look(few, rng)
    loss, _ = learner.base(context.z, context)
    x = torch.cat([context.z, torch.tensor(told[:5], dtype=torch.float32)[:, None]], 1)
    torch.testing.assert_close(loss, cross_entropy(learner.base.pi(x), few.action))


def test_actions_follow_what_is_asked_for(dataset: Dataset) -> None:
    """Where the action is no matter of what is seen, but of the return, it does what earns it."""
    rng, any_action = np.random.default_rng(0), copy.copy(dataset)
    any_action.action = rng.integers(3, size=len(dataset)).astype(dataset.action.dtype)
    learner = make_learner(any_action)
    learner.base.to_go = torch.from_numpy(any_action.action.astype(np.float32)) - 1
    for _ in range(60):
        learner.update(any_action.sample(32, rng), rng)
    z = learner.encoder(dataset.observations(np.arange(24)))
    for asked, wanted in ((-1.0, 0), (1.0, 2)):
        learner.base.asked.fill_(asked)
        assert (learner.base.scores(z).argmax(1) == wanted).float().mean() > 0.9
