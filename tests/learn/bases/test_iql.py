"""IQL by hand, one transition at a time."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from gsf.core.errors import UserError
from gsf.data.dataset import Dataset
from gsf.data.format import frame_checksums
from gsf.data.frames import Frames
from gsf.equations import iql_policy_loss
from gsf.learn import bases
from gsf.learn.agent import Agent
from gsf.learn.learner import AgentConfig, Learner

IQL = bases.find("iql").value


def make_learner(dataset: Dataset, **options: Any) -> Learner:
    config = AgentConfig(method="iql", encoder="impala_small", parts={"iql": options})
    return Learner(config, dataset, np.random.default_rng(0))


def plain_iql(learner: Learner, context: Any) -> dict[str, float]:
    base: Any = learner.base
    config, batch, spec = base.config, context.batch, base.spec
    here: Any = (lambda obs: obs) if config.apart else learner.encoder
    target_here: Any = (lambda obs: obs) if config.apart else learner.target_encoder
    with torch.no_grad():
        value = base.value(here(context.obs)).double()[:, 0]
        next_value = base.value(here(context.next_obs)).double()[:, 0]
        q = [x.double() for x in base.q(here(context.obs))]
        target = [x.double() for x in base.target_q(target_here(context.obs))]
        log_pi = base.pi(context.z).double().log_softmax(1)
    terms, n, n_td = {"value": 0.0, "td": 0.0, "policy": 0.0}, len(batch.action), 0
    for i, a in enumerate(batch.action.tolist()):
        advantage = float(min(target[0][i, a], target[1][i, a]) - value[i])
        side = config.expectile if advantage >= 0 else 1 - config.expectile
        terms["value"] += side * advantage**2 / n
        weight = min(math.exp(config.beta * advantage), config.max_weight)
        terms["policy"] -= weight * float(log_pi[i, a]) / n
        y = min(max(float(batch.reward[i]) / spec.reward_scale, -10.0), 10.0)
        if not batch.terminated[i]:
            y += spec.gamma * float(next_value[i])
        if batch.terminated[i] or batch.has_next[i]:
            n_td += 1
            terms["td"] += sum((float(x[i, a]) - y) ** 2 for x in q)
    terms["td"] /= n_td
    return terms


@pytest.mark.parametrize("apart", [False, True])
def test_iql_is_the_formula(dataset: Dataset, apart: bool) -> None:
    learner = make_learner(dataset, expectile=0.9, beta=2.0, max_weight=1.1, apart=apart)
    base: Any = learner.base
    with torch.no_grad():  # targets that are not the online networks; advantages of either sign
        for p in learner.target_encoder.parameters():
            p.mul_(0.8)
        for p in base.target_q.parameters():
            p.mul_(2.0)
    rng = np.random.default_rng(0)
    context = learner.look(dataset.sample(64, rng), rng)
    assert (~context.batch.has_next & ~context.batch.terminated).any()
    loss, info = base(context.z, context)
    expected = plain_iql(learner, context)
    for name, value in expected.items():
        assert float(info[name]) == pytest.approx(value, rel=1e-5)
    assert loss.item() == pytest.approx(sum(expected.values()), rel=1e-5)
    torch.testing.assert_close(context.scores, base.pi(context.z).detach())


def test_apart_the_policy_alone_trains_z(dataset: Dataset) -> None:
    learner = make_learner(dataset, apart=True)
    base: Any = learner.base
    rng = np.random.default_rng(0)
    context = learner.look(dataset.sample(16, rng), rng)
    z = context.z.detach().requires_grad_()
    base(z, context)[0].backward()
    assert z.grad is not None
    together = z.grad.clone()
    z.grad = None
    value, target_q = base.value(context.obs)[:, 0], base.target_q(context.obs)
    action = context.batch.action
    advantage = torch.minimum(*target_q).gather(1, action[:, None])[:, 0] - value
    iql_policy_loss(base.pi(z), action, advantage, 3.0, 100.0)[0].backward()
    torch.testing.assert_close(together, z.grad)
    assert all(p.grad is not None for p in (*base.q[0].parameters(), *base.value[0].parameters()))


def test_the_policy_trains_neither_values_nor_critics(dataset: Dataset) -> None:
    learner = make_learner(dataset)
    base: Any = learner.base
    rng = np.random.default_rng(0)
    context = learner.look(dataset.sample(16, rng), rng)
    # dL/dV = 2/n |e - 1[A < 0]| A: nothing of the policy's term, whatever beta is.
    slopes = []
    for beta in (0.0, 50.0):
        base.config = IQL.Config(beta=beta)
        base.zero_grad()
        base(context.z.detach(), context)[0].backward()
        slopes.append([p.grad.clone() for x in (base.value, base.q) for p in x.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*slopes, strict=True))


def test_cut_ends_have_no_td_error(dataset: Dataset) -> None:
    learner = make_learner(dataset)
    ends = np.flatnonzero(~dataset.has_next & ~dataset.terminated)
    info = learner.update(dataset.gather(ends), np.random.default_rng(0))
    assert float(info["iql/td"]) == 0
    assert float(info["iql/policy"]) > 0


def test_targets_follow_by_the_rate(dataset: Dataset) -> None:
    learner = make_learner(dataset)
    base: Any = learner.base
    before = [p.clone() for p in base.target_q.parameters()]
    rng = np.random.default_rng(0)
    learner.update(dataset.sample(16, rng), rng)
    for old, new, target in zip(
        before, base.q.parameters(), base.target_q.parameters(), strict=True
    ):
        torch.testing.assert_close(target, 0.995 * old + 0.005 * new)


def test_the_policy_may_learn_at_a_rate_of_its_own(dataset: Dataset) -> None:
    by_one, by_two = make_learner(dataset), make_learner(dataset, policy_lr=3e-5)
    first = [p.clone() for p in by_one.base.parameters()]
    for learner in (by_one, by_two):
        learner.update(dataset.sample(16, np.random.default_rng(0)), np.random.default_rng(1))
    for old, one, (name, two) in zip(
        first, by_one.base.parameters(), by_two.base.named_parameters(), strict=True
    ):  # Adam's first step is as long as the rate, whatever the gradient
        share = 0.1 if name.startswith("pi.") else 1.0
        torch.testing.assert_close(two - old, share * (one - old), rtol=1e-3, atol=1e-7)


def test_of_what_was_logged_it_prefers_what_pays(dataset: Dataset) -> None:
    # One state, action 0 pays 0 and action 1 pays 1, each logged as often: BC tosses a coin.
    paid = Dataset.open(dataset.path)
    black = np.zeros(paid.obs.shape, np.uint8)
    paid.obs = Frames(paid.path, black, np.array(frame_checksums(black), np.uint64))
    paid.action = (np.arange(len(paid)) % 2).astype(paid.action.dtype)
    paid.reward = paid.action.astype(np.float32)
    paid.terminated, paid.has_next = np.ones(len(paid), bool), np.zeros(len(paid), bool)
    learner, rng = make_learner(paid), np.random.default_rng(0)
    learner.lrs["rl"] = [3e-3]
    for _ in range(40):
        learner.update(paid.sample(16, rng), rng)
        learner.base.after_step(0.2)  # not a matter of how fast targets follow
    logits = Agent(learner.encoder, learner.base, paid.obs_shape, 3, "iql", 0).scores(paid.obs[:1])
    assert logits[0, 1] - logits[0, 0] > 1


@pytest.mark.parametrize(
    "options", [{"expectile": 0.0}, {"expectile": 1.0}, {"beta": -1.0}, {"max_weight": 0.0}]
)
def test_bad_options(options: dict[str, float]) -> None:
    with pytest.raises(UserError, match=r"--iql\.\S+ must be"):
        AgentConfig(method="iql", parts={"iql": options}).resolved()
