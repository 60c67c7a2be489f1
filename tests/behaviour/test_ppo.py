"""PPO: formulas against numbers worked out by hand, and a learner that learns and can go on."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch

from gsf.behaviour.options import ON_CPU, PUBLISHED, PPOConfig
from gsf.behaviour.ppo import (
    PPO,
    ActorCritic,
    RewardScaler,
    entropy,
    gae,
    policy_loss,
    sample,
    value_loss,
)
from gsf.core.errors import UserError
from gsf.suites import make_env

SMALL = PPOConfig(
    encoder="nature", view="game", n_envs=4, n_steps=8, minibatches=2, epochs=2, device="cpu"
)


def test_gae_by_hand():
    reward = torch.tensor([[1.0, 1.0], [0.0, 0.0], [2.0, 2.0]])
    value = torch.tensor([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]])
    ended = torch.tensor([[False, False], [False, True], [False, False]])
    advantage, returns = gae(reward, value, ended, torch.tensor([8.0, 8.0]), gamma=0.5, lam=0.5)
    # delta of the first env: 1 + .5*2 - 1, 0 + .5*4 - 2, 2 + .5*8 - 4; A_t = delta_t + .25 A_t+1
    assert advantage[:, 0].tolist() == [1.125, 0.5, 2.0]
    # the second one's episode ends at step 1: nothing after it counts there
    assert advantage[:, 1].tolist() == [0.5, -2.0, 2.0]
    assert returns.tolist() == [[2.125, 1.5], [2.5, 0.0], [6.0, 6.0]]


def test_gae_with_lambda_1_is_the_discounted_return():
    rng = np.random.default_rng(0)
    reward, value = (torch.from_numpy(rng.normal(size=(6, 1))) for _ in range(2))
    last_value = torch.tensor([2.0], dtype=torch.float64)
    _, returns = gae(reward, value, torch.zeros(6, 1), last_value, gamma=0.9, lam=1.0)
    expected = sum(0.9**t * reward[t, 0].item() for t in range(6)) + 0.9**6 * 2.0
    assert returns[0, 0].item() == pytest.approx(expected)


def test_policy_loss_by_hand():
    ratio = torch.tensor([2.0, 0.5, 1.1])
    advantage = torch.tensor([1.0, -1.0, 3.0])
    log_prob = (ratio.log() - 1.0).requires_grad_()
    loss, info = policy_loss(log_prob, torch.full((3,), -1.0), advantage, clip=0.2)
    # min(2, 1.2), min(-.5, -.8), min(3.3, 3.3)
    assert loss.item() == pytest.approx(-(1.2 - 0.8 + 3.3) / 3)
    assert info["clip_fraction"].item() == pytest.approx(2 / 3)
    assert info["kl"].item() == pytest.approx((1 - 0.5 + 0.1 - math.log(1.1)) / 3)
    loss.backward()
    # what has moved beyond the clip in the good direction is pushed no further
    assert log_prob.grad.tolist() == pytest.approx([0.0, 0.0, -1.1])


def test_policy_loss_still_pulls_back_what_moved_in_the_bad_direction():
    log_prob = torch.tensor([2.0, 0.5]).log().requires_grad_()
    loss, _ = policy_loss(log_prob, torch.zeros(2), torch.tensor([-1.0, 1.0]), clip=0.2)
    assert loss.item() == pytest.approx((2.0 - 0.5) / 2)
    loss.backward()
    assert log_prob.grad.tolist() == pytest.approx([1.0, -0.25])


def test_value_loss_by_hand():
    value = torch.tensor([3.0, 1.0, 2.0], requires_grad=True)
    old, returns = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([2.0, 3.0, 2.0])
    loss = value_loss(value, old, returns, clip=0.2)
    # max(1, .64), max(4, 4), max(0, .64)
    assert loss.item() == pytest.approx(0.5 * (1 + 4 + 0.64) / 3)
    loss.backward()
    assert value.grad.tolist() == pytest.approx([1 / 3, -2 / 3, 0.0])


def test_entropy_by_hand():
    logits = torch.tensor([[0.5, 0.25, 0.25], [1 / 3, 1 / 3, 1 / 3]]).log() + 7.0
    assert entropy(logits).item() == pytest.approx((1.5 * math.log(2) + math.log(3)) / 2)


def test_samples_follow_the_policy_and_the_rng():
    probs = torch.tensor([0.7, 0.2, 0.1, 0.0])
    logits = probs.log().expand(20_000, 4)
    action = sample(logits, np.random.default_rng(0))
    assert np.bincount(action, minlength=4) / 20_000 == pytest.approx(probs.numpy(), abs=0.015)
    assert np.array_equal(action, sample(logits, np.random.default_rng(0)))


def test_rewards_are_scaled_by_the_std_of_the_return_so_far():
    scale = RewardScaler(2, gamma=0.5, clip=2.0)
    ended = np.array([False, True])
    # G = 1, 3: std 1
    assert scale(np.float32([1, 3]), ended) == pytest.approx([1.0, 2.0], rel=1e-3)
    again = RewardScaler(2, gamma=0.5, clip=2.0)
    again.load_state_dict(scale.state_dict())
    scaled = scale(np.float32([1.5, 1]), ~ended)
    assert scaled.dtype == np.float32
    # G = .5*1 + 1.5, and 1 because the second episode is new: all so far are 1, 3, 2, 1
    std = math.sqrt((1 + 9 + 4 + 1) / 4 - 1.75**2)
    assert scaled == pytest.approx(np.array([1.5, 1.0]) / std, rel=1e-3)
    assert np.array_equal(again(np.float32([1.5, 1]), ~ended), scaled)
    assert scale(np.float32([-50, 0]), ended).tolist() == [-2.0, 0.0]


@pytest.mark.parametrize("encoder", ["impala", "impala_small", "nature"])
def test_the_first_policy_is_close_to_uniform(encoder):
    obs = torch.randint(0, 256, (5, 64, 64, 3), dtype=torch.uint8)
    logits, value = ActorCritic(encoder, (64, 64, 3), 15)(obs)
    assert logits.shape == (5, 15)
    assert value.shape == (5,)
    assert entropy(logits).item() == pytest.approx(math.log(15), abs=0.01)


class BrightOrDark:
    """Stands in for Procgen: a black frame asks for action 1, a white one for action 2."""

    def __init__(self, n_envs: int) -> None:
        self.rng = np.random.default_rng(0)
        self.n_envs = n_envs
        self._draw()

    def _draw(self) -> None:
        self.bright = self.rng.integers(2, size=self.n_envs)
        self.obs = np.zeros((self.n_envs, 64, 64, 3), np.uint8)
        self.obs[self.bright == 1] = 255

    def observe(self):
        return self.obs, None

    def step(self, action):
        reward = (action == self.bright + 1).astype(np.float32)
        self._draw()
        ended = np.ones(self.n_envs, bool)
        return self.obs, reward, ended, ~ended, {}


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_ppo_learns_to_look(precision):
    sizes = {"n_envs": 16, "n_steps": 4, "minibatches": 1, "epochs": 4}
    config = PPOConfig(
        encoder="nature", view="game", lr=1e-3, **sizes, precision=precision, device="cpu"
    )
    ppo = PPO(config, BrightOrDark(16), np.random.default_rng(0), np.arange(15))
    first = ppo.iterate()
    assert ppo.net.trunk.bf16 == (precision == "bf16")
    assert first["return"] < 0.25  # 1/15 by chance
    for _ in range(27):
        last = ppo.iterate()
    assert 0.9 < last["return"] <= 1.0
    assert last["entropy"] < first["entropy"] / 2
    assert ppo.frames == 28 * 64


def grown(config, n=1):
    ppo = PPO(
        config, make_env("coinrun", range(8), 4, seed=0), np.random.default_rng(0), np.arange(15)
    )
    for _ in range(n):
        ppo.iterate()
    return ppo


def test_chunks_add_up_to_the_gradient_of_the_minibatch():
    options = {"encoder": "nature", "n_envs": 4, "n_steps": 8, "minibatches": 1, "epochs": 1}
    options |= {"view": "game"}
    whole, parts = (grown(PPOConfig(**options, chunk=chunk, device="cpu")) for chunk in (32, 9))
    for p, q in zip(whole.net.parameters(), parts.net.parameters(), strict=True):
        assert torch.allclose(p.grad, q.grad, rtol=1e-3, atol=1e-6)
    assert whole.optimizer.state_dict()["state"][0]["step"] == 1


def test_the_gradient_is_that_of_policy_value_and_entropy_together():
    options = {"encoder": "nature", "n_envs": 4, "n_steps": 8, "minibatches": 1, "epochs": 1}
    options |= {"view": "game"}
    options |= {"gamma": 0.9, "lam": 0.5, "value_weight": 0.3, "entropy_weight": 0.2}
    ppo = grown(PPOConfig(**options, lr=1e-12, grad_norm=1e6, device="cpu"))  # hardly moves
    ppo._reward[:] = np.random.default_rng(1).normal(size=ppo._reward.shape)  # coins are rare
    last_value = torch.ones(4)
    ppo._learn(last_value)
    got = [p.grad.clone() for p in ppo.net.parameters()]

    following, advantage = last_value, torch.zeros(4)
    advantages = []
    for t in reversed(range(8)):
        goes_on = 1.0 - torch.from_numpy(ppo._ended[t]).float()
        delta = torch.from_numpy(ppo._reward[t]) + 0.9 * goes_on * following - ppo._value[t]
        advantage = delta + 0.9 * 0.5 * goes_on * advantage
        advantages.insert(0, advantage)
        following = ppo._value[t]
    advantage = torch.stack(advantages)
    returns = (advantage + ppo._value).flatten()
    advantage = advantage.flatten()
    advantage = (advantage - advantage.mean()) / advantage.std(correction=0)
    logits, value = ppo.net(ppo._obs.flatten(0, 1))
    log_probs = logits.log_softmax(1)
    chosen = log_probs[torch.arange(32), torch.from_numpy(ppo._action).flatten()]
    spread = -(log_probs.exp() * log_probs).sum(1).mean()
    critic = 0.5 * (value - returns).square().mean()
    ppo.net.zero_grad()
    (-(advantage * chosen).mean() + 0.3 * critic - 0.2 * spread).backward()
    for p, q in zip(ppo.net.parameters(), got, strict=True):
        assert torch.allclose(p.grad, q, rtol=1e-3, atol=1e-6)


def test_a_mean_return_is_settled_when_two_episodes_have_ended_in_every_env():
    """Those that end first are the short ones, in a maze those that were won."""
    ppo = grown(SMALL)
    ppo._recent.extend([10.0] * 100)
    for episodes, expected in (([9, 9, 9, 1], None), ([2, 2, 2, 2], 10.0)):
        ppo._episodes[:] = episodes
        assert ppo.settled_return == expected


def test_gradients_are_clipped():
    ppo = grown(dataclasses.replace(SMALL, grad_norm=1e-3))
    norm = torch.stack([p.grad.norm() for p in ppo.net.parameters()]).norm()
    assert norm.item() == pytest.approx(1e-3, rel=1e-2)


def test_a_restored_learner_goes_on_bit_for_bit():
    one = grown(SMALL, 2)
    state = copy.deepcopy(one.state_dict())
    other = PPO(
        SMALL, make_env("coinrun", range(8), 4, seed=99), np.random.default_rng(99), np.arange(15)
    )
    other.load_state_dict(state)
    one.iterate()
    other.iterate()
    for name, weight in one.net.state_dict().items():
        assert torch.equal(weight, other.net.state_dict()[name]), name
    assert one.state_dict()["scaler"] == other.state_dict()["scaler"]
    assert one.frames == other.frames == 3 * 32


def test_other_threads_are_warned_about(capsys):
    ppo = grown(SMALL)
    ppo.load_state_dict(ppo.state_dict() | {"threads": 77})
    assert "begun with 77 torch threads" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "--epochs must be between 1"),
        ({"n_envs": 2, "n_steps": 4, "minibatches": 9}, "more than the 8 steps"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        PPOConfig(**options)


def test_without_a_gpu_the_defaults_are_those_that_learn_most_per_hour(monkeypatch):
    for there, expected in ((True, PUBLISHED), (False, ON_CPU)):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        found = PPOConfig()
        assert {name: getattr(found, name) for name in expected} == expected
