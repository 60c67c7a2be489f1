import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gsf.core.errors import UserError
from gsf.core.options import from_json, to_json
from gsf.core.registry import Found
from gsf.data.dataset import Dataset
from gsf.learn import bases, losses
from gsf.learn.agent import Agent
from gsf.learn.context import Spec
from gsf.learn.learner import AgentConfig, Learner, _optimized, reward_scale, share_of_lr
from gsf.learn.losses import AuxiliaryLoss, Released
from gsf.nets.encoders import Encoder
from gsf.nets.runtime import seeded

GSF = losses.find("gsf").value
CQL = bases.find("cql").value


def make_learner(
    dataset: Dataset, labels: Path | None = None, method: str = "cql", **options: Any
) -> Learner:
    config = AgentConfig(**{"method": method, "encoder": "impala_small", **options})
    return Learner(config, dataset, np.random.default_rng(0), labels)


def weights(module: torch.nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def step(learner: Learner, n: int = 16, seed: int = 1) -> dict[str, Tensor]:
    rng = np.random.default_rng(seed)
    return learner.update(learner.dataset.sample(n, rng), rng)


# Devices


class NoFloat64(TorchDispatchMode):
    """Stands for a GPU of Apple's, which cannot count in float64."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.ndim:  # a number may be of any kind
            assert out.dtype != torch.float64, func
        return out


@pytest.mark.parametrize("method", ["bc", "cql", "iql", *losses.names()])
def test_an_update_needs_no_float64(dataset: Dataset, labels: Path, method: str) -> None:
    gsf = method == "gsf"
    learner = make_learner(dataset, labels if gsf else None, method="gsf-reward" if gsf else method)
    rng = np.random.default_rng(1)
    fed = learner.draw(16, rng, None)
    with NoFloat64():
        learner.update(fed[0], rng, fed[1])


# Rewards


def test_reward_scale_by_hand(dataset: Dataset) -> None:
    returns = []
    for start, stop in dataset.episodes():
        for i in range(start, stop):
            returns.append(sum(0.99**k * r for k, r in enumerate(dataset.reward[i:stop])))
    assert reward_scale(dataset) == pytest.approx(np.std(returns), rel=1e-6)


def test_no_reward_at_all_has_scale_one(dataset: Dataset) -> None:
    silent = Dataset.open(dataset.path)
    silent.reward = np.zeros_like(silent.reward)
    assert reward_scale(silent) == 1.0


# CQL


class Minus(torch.nn.Module):
    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return -z


def plain_cql(learner: Learner, context: Any, alpha: float, double: bool) -> float:
    """The formula, one transition at a time, in float64."""
    batch, total_td, n_td, total_lse = context.batch, [0.0, 0.0], 0, [0.0, 0.0]
    with torch.no_grad():
        base: Any = learner.base
        q = [x.double() for x in base.q(context.z)]
        next_q = [x.double() for x in base.q(learner.encoder(context.next_obs))]
        target_z = learner.target_encoder(context.next_obs)
        target = [x.double() for x in base.target_q(target_z)]
    for i in range(len(batch.action)):
        low = torch.minimum(target[0][i], target[1][i])
        chooser = torch.minimum(next_q[0][i], next_q[1][i]) if double else low
        reward = min(max(float(batch.reward[i]) / base.spec.reward_scale, -10.0), 10.0)
        y = reward
        if not batch.terminated[i]:
            y += 0.99 * float(low[int(chooser.argmax())])
        has_target = bool(batch.terminated[i]) or bool(batch.has_next[i])
        n_td += has_target
        for j in range(2):
            value = float(q[j][i, batch.action[i]])
            total_td[j] += has_target * (value - y) ** 2
            total_lse[j] += float(torch.log(torch.exp(q[j][i]).sum())) - value
    return sum(total_td[j] / n_td + alpha * total_lse[j] / len(batch.action) for j in range(2))


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("head", ["mlp", "linear"])
def test_cql_is_the_formula(dataset: Dataset, double: bool, head: str) -> None:
    learner = make_learner(dataset, head=head, parts={"cql": CQL.Config(alpha=0.7, double=double)})
    base: Any = learner.base
    with torch.no_grad():  # targets that are not the online networks and prefer other actions
        learner.target_encoder.embed.append(Minus())
        for p in base.target_q.parameters():
            p.mul_(0.8)
    base.spec = dataclasses.replace(base.spec, reward_scale=0.05)  # some are clipped
    rng = np.random.default_rng(0)
    context = learner.look(dataset.sample(64, rng), rng)
    batch = context.batch
    assert (~batch.has_next & ~batch.terminated).any()
    assert batch.terminated.any()
    online, target = base.q(context.next_z), base.target_q(context.target_next_z)
    assert (torch.minimum(*online).argmax(1) != torch.minimum(*target).argmax(1)).any()
    by_target_z = torch.minimum(*base.q(context.target_next_z))
    assert (torch.minimum(*online).argmax(1) != by_target_z.argmax(1)).any()
    loss, info = base(context.z, context)
    assert loss.item() == pytest.approx(plain_cql(learner, context, 0.7, double), rel=1e-6)
    torch.testing.assert_close(context.scores, torch.minimum(*base.q(context.z)).detach())
    assert float(info["td"]) * 2 + 0.7 * 2 * float(info["conservative"]) == pytest.approx(
        loss.item(), rel=1e-5
    )


def test_cut_and_truncated_ends_have_no_td_error(dataset: Dataset) -> None:
    learner = make_learner(dataset)
    ends = np.flatnonzero(~dataset.has_next & ~dataset.terminated)
    rng = np.random.default_rng(0)
    info = learner.update(dataset.gather(ends), rng)
    assert len(ends) == 8
    assert float(info["cql/td"]) == 0
    assert float(info["cql/conservative"]) > 0


def test_targets_follow_by_the_rate(dataset: Dataset) -> None:
    learner = make_learner(dataset, lr=0.1)  # steps large enough to be told from rounding
    base: Any = learner.base
    before = [*weights(learner.target_encoder), *weights(base.target_q)]
    step(learner)
    online = [*weights(learner.encoder), *weights(base.q)]
    after = [*weights(learner.target_encoder), *weights(base.target_q)]
    for old, new, target in zip(before, online, after, strict=True):
        torch.testing.assert_close(target, 0.995 * old + 0.005 * new)
        assert not torch.equal(target, old)


# Behaviour cloning, and that both learn


def greedy_accuracy(learner: Learner) -> float:
    dataset = learner.dataset
    agent = Agent(learner.encoder, learner.base, dataset.obs_shape, dataset.n_actions, "", 0)
    actions = agent.act(dataset.observations(np.arange(len(dataset))).numpy())
    return float(np.mean(actions == dataset.action))


@pytest.mark.parametrize("method", ["bc", "cql"])
def test_imitates_actions_that_can_be_seen(dataset: Dataset, method: str) -> None:
    learner = make_learner(dataset, method=method)
    before = greedy_accuracy(learner)
    rng = np.random.default_rng(0)
    for _ in range(120):
        info = learner.update(dataset.sample(32, rng), rng)
    assert greedy_accuracy(learner) > 0.8 > 0.5 > before
    assert all(np.isfinite(float(x)) for x in info.values())
    expected = {"loss", "accuracy"} if method == "bc" else {
        "loss", "td", "conservative", "q", "target"
    }  # fmt: skip
    assert set(info) == {f"{method}/{x}" for x in expected}


# Auxiliary losses


def test_weight_zero_is_the_base_alone(dataset: Dataset, labels: Path) -> None:
    alone = make_learner(dataset)
    with_gsf = make_learner(dataset, labels, method="gsf-reward", parts={"gsf": {"weight": 0.0}})
    info = [step(learner) for learner in (alone, with_gsf)]
    assert same(weights(alone.encoder), weights(with_gsf.encoder))
    assert same(weights(alone.base), weights(with_gsf.base))
    assert torch.equal(info[0]["cql/loss"], info[1]["cql/loss"])
    assert "gsf/accuracy" in info[1]


def gradients(loss: Tensor, learner: Learner) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(learner.encoder.parameters()), retain_graph=True))


@pytest.mark.parametrize("update", ["joint", "alternating"])
def test_several_losses_are_summed_by_their_weights(
    dataset: Dataset, labels: Path, update: str
) -> None:
    weight = {"gsf": {"weight": 0.3}, "deepmdp": {"weight": 2.0}}
    options: Any = {"update": update, "parts": weight, "crop": 0}
    learner = make_learner(dataset, labels, "gsf-reward+deepmdp", **options)
    rng = np.random.default_rng(1)
    batch = dataset.sample(16, rng)
    context = learner.look(batch, rng)
    base, _ = learner.base(context.z, context)
    gsf, _ = learner.losses["gsf"](context)  # whose labels `look` has drawn
    deepmdp, _ = learner.losses["deepmdp"](context)
    terms = [gradients(loss, learner) for loss in (base, gsf, deepmdp)]
    weights = [1.0, 0.3, 2.0] if update == "joint" else [0.0, 0.3, 2.0]
    for optimizer in learner.optimizers.values():
        optimizer.step = lambda: None  # type: ignore[assignment, method-assign]
    info = learner.update(batch, rng)
    assert {"cql/loss", "gsf/loss", "deepmdp/loss"} < info.keys()
    wanted = [sum(w * g for w, g in zip(weights, x, strict=True)) for x in zip(*terms, strict=True)]
    for p, expected in zip(learner.encoder.parameters(), wanted, strict=True):
        torch.testing.assert_close(p.grad, expected, rtol=1e-4, atol=1e-6)


def test_each_loss_sees_what_itself_has_drawn(dataset: Dataset, labels: Path) -> None:
    learner = make_learner(dataset, labels, "curl+gsf-reward+vpn")
    seen: dict[str, set[str]] = {}
    for name, loss in learner.losses.items():
        loss.register_forward_hook(
            lambda _, inputs, __, name=name: seen.update({name: {*inputs[0].drawn}})
        )
    step(learner)
    assert seen["gsf"] == {"label"}
    assert not seen["curl"]
    assert "last_obs" in seen["vpn"]
    assert list(seen) == ["curl", "gsf", "vpn"]


def test_losses_that_want_different_batches_or_targets_are_refused(
    dataset: Dataset, labels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make_learner(dataset, labels, "gsf-reward+curl").encoder_rate == 0.025
    in_batch = {"gsf": {"quantiles": "batch", "batch_levels": 3}}
    assert make_learner(dataset, labels, "gsf-reward+curl", parts=in_batch).n_levels == 3
    monkeypatch.setattr(losses.find("vpn").value, "n_levels", 2)
    monkeypatch.setattr(losses.find("vpn").value, "encoder_rate", 0.5)
    with pytest.raises(UserError, match="share n_levels, but gsf wants 3, vpn wants 2; set their"):
        make_learner(dataset, labels, "gsf-reward+vpn", parts=in_batch)
    with pytest.raises(UserError, match="share encoder_rate, but curl wants"):
        make_learner(dataset, method="curl+vpn")


def test_alternating_takes_two_steps_and_encodes_again(dataset: Dataset, labels: Path) -> None:
    learner = make_learner(dataset, labels, method="gsf-reward", update="alternating", aux_lr=0.05)
    assert learner.optimizers["aux"].param_groups[0]["lr"] == 0.05
    alone = make_learner(dataset)
    seen: list[tuple[Tensor, Tensor, list[Tensor]]] = []

    def record(module: Any, inputs: Any, output: Any) -> None:
        [context] = inputs
        with torch.no_grad():
            seen.append(
                (context.z.detach(), learner.encoder(context.obs), weights(learner.encoder))
            )

    learner.losses["gsf"].register_forward_hook(record)
    before = weights(learner.losses["gsf"])
    step(learner)
    step(alone)
    [(z, again, encoder_then)] = seen
    torch.testing.assert_close(z, again)  # of the encoder that CQL has just moved
    assert same(encoder_then, weights(alone.encoder))
    assert not same(encoder_then, weights(learner.encoder))
    assert same(weights(learner.base), weights(alone.base))
    assert not same(before, weights(learner.losses["gsf"]))


def test_stop_gradient_leaves_the_encoder_to_the_auxiliary_loss(
    dataset: Dataset, labels: Path
) -> None:
    learner = make_learner(
        dataset, labels, method="gsf-reward", stop_gradient=True, parts={"gsf": {"weight": 0.0}}
    )
    before, head = weights(learner.encoder), weights(learner.base)
    step(learner)
    assert same(before, weights(learner.encoder))
    assert not same(head, weights(learner.base))
    with pytest.raises(UserError, match="stop-gradient"):
        AgentConfig(stop_gradient=True).resolved()


# Optimisers


def test_by_default_it_is_plain_adam_bit_for_bit(dataset: Dataset) -> None:
    learner, plain = make_learner(dataset), make_learner(dataset)
    trained = plain.optimizers["rl"].param_groups[0]["params"]
    adam = torch.optim.Adam(trained, 3e-4, fused=True)
    plain._step = lambda _, terms: (  # type: ignore[method-assign]
        adam.zero_grad(),
        torch.stack(terms).sum().backward(),
        adam.step(),
    )
    for seed in range(3):
        step(learner, seed=seed)
        step(plain, seed=seed)
    assert same(weights(learner.encoder), weights(plain.encoder))
    assert same(weights(learner.base), weights(plain.base))


def test_learning_rates_rise_and_fall() -> None:
    assert [share_of_lr(i, 0, None) for i in (0, 5)] == [1, 1]
    assert [share_of_lr(i, 4, None) for i in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    falls = [share_of_lr(i, 2, 6) for i in range(6)]  # a cosine over 4 steps behind 2
    assert falls == pytest.approx([0.5, 1, 1, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2])


def test_every_optimiser_follows_the_schedule_and_the_clip(dataset: Dataset) -> None:
    options: Any = {"lr": 1e-3, "aux_lr": 1e-2, "warmup": 4, "clip_grad": 1e-3}
    learner = make_learner(dataset, method="curl", update="alternating", **options)
    step(learner)
    step(learner)
    rates = {name: x.param_groups[0]["lr"] for name, x in learner.optimizers.items()}
    assert rates == pytest.approx({"rl": 5e-4, "aux": 5e-3})
    grads = [p.grad for p in learner.optimizers["aux"].param_groups[0]["params"]]
    assert torch.cat([g.flatten() for g in grads if g is not None]).norm() <= 1.001e-3


@pytest.mark.parametrize("update", ["joint", "alternating"])
def test_base_and_losses_have_optimisers_of_their_own(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, update: str
) -> None:
    def of_base(self: Any, optimizer: Any) -> dict[str, torch.optim.Optimizer]:
        weight, bias = ([p for p in self.parameters() if p.ndim == n] for n in (2, 1))
        groups = [{"params": bias[:1], "lr": 0.5}, {"params": bias[1:], "lr": 0.25}]
        return {"weight": torch.optim.SGD(weight, 2.0), "bias": torch.optim.SGD(groups)}

    def of_loss(self: Any, optimizer: Any) -> dict[str, torch.optim.Optimizer]:
        return {"head": torch.optim.SGD(self.parameters(), 4.0)}

    monkeypatch.setattr(bases.find("bc").value, "optimizers", of_base)
    monkeypatch.setattr(losses.find("curl").value, "optimizers", of_loss)
    options: Any = {"method": "curl", "on": "bc", "update": update, "warmup": 4}
    learner = make_learner(dataset, **options)
    own = {"bc.weight", "bc.bias", "curl.head"}
    assert learner.optimizers.keys() - own == ({"rl"} if update == "joint" else {"rl", "aux"})
    trained = [id(p) for step in learner.steps.values() for p in _optimized(step)]
    heads = [*learner.base.parameters(), *learner.losses["curl"].parameters()]
    assert all(trained.count(id(p)) == 1 for p in heads)
    before = [p.detach().clone() for p in heads]
    step(learner)  # the first of four in which rates rise: a quarter of each
    bias = iter([0.125, *[0.0625] * len(heads)])
    of_head = [0.5 if p.ndim == 2 else next(bias) for p in learner.base.parameters()]
    rates = [*of_head, *[1.0] * (len(heads) - len(of_head))]
    for old, p, rate in zip(before, heads, rates, strict=True):
        assert p.grad is not None
        torch.testing.assert_close(p, old - rate * p.grad)


@pytest.mark.parametrize("wrong", ["twice", "a stranger's"])
def test_an_optimiser_has_what_its_base_trains_once(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    def optimizers(self: Any, optimizer: Any) -> dict[str, torch.optim.Optimizer]:
        made = {"own": optimizer(self.pi.parameters(), 0.1)}
        if wrong == "twice":
            return {**made, "again": optimizer(self.pi.parameters(), 0.1)}
        return {**made, "another": optimizer([torch.nn.Parameter(torch.zeros(1))], 0.1)}

    monkeypatch.setattr(bases.find("bc").value, "optimizers", optimizers)
    with pytest.raises(UserError, match="bc: its optimisers may have each parameter"):
        make_learner(dataset, method="bc")


def test_adamw_shrinks_weights_beside_the_gradient(dataset: Dataset) -> None:
    options: Any = {"optimizer": "adamw", "weight_decay": 0.5, "lr": 0.1}
    learner = make_learner(dataset, method="bc", **options)
    p = torch.nn.Parameter(torch.tensor([2.0]))
    learner.optimizers["rl"].param_groups[0]["params"] = [p]
    learner._step("rl", [0 * p.sum()])
    assert p.item() == pytest.approx(2 * (1 - 0.1 * 0.5))
    with pytest.raises(UserError, match="--lr-schedule cosine has to know"):
        make_learner(dataset, lr_schedule="cosine")


def test_on_behaviour_cloning(dataset: Dataset, labels: Path) -> None:
    learner = make_learner(dataset, labels, method="gsf-reward", on="bc")
    assert learner.base.name == "bc"
    assert {"bc/loss", "gsf/loss"} <= set(step(learner))


def test_no_crop_shows_the_network_what_was_logged(dataset: Dataset) -> None:
    rng = np.random.default_rng(0)
    batch = dataset.sample(8, rng)
    for crop in (0, 2):
        context = make_learner(dataset, crop=crop).look(batch, rng)
        assert torch.equal(context.obs, batch.obs) == (crop == 0)
        assert torch.equal(context.next_obs, batch.next_obs) == (crop == 0)


# Options


def test_released_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert AgentConfig().resolved().parts["cql"].alpha == 1.0
    assert AgentConfig(released=True).resolved().parts["cql"].alpha == 0.1
    assert (
        AgentConfig(released=True, parts={"cql": {"alpha": 0.5}}).resolved().parts["cql"].alpha
        == 0.5
    )

    config = AgentConfig(method="gsf-reward", released=True).resolved()
    assert config.parts["cql"].alpha == 1.0
    assert config.parts["gsf"] == GSF.Config(
        quantiles="batch", frequent_levels=5, label_action="greedy"
    )
    assert config.resolved() == config
    chosen = AgentConfig(
        method="gsf-reward", released=True, parts={"gsf": GSF.Config(frequent_levels=9)}
    )
    assert chosen.resolved().parts["gsf"].frequent_levels == 9
    on_bc = AgentConfig(method="gsf-reward", on="bc", released=True).resolved()
    assert on_bc.parts == {"bc": bases.find("bc").value.Config(), "gsf": config.parts["gsf"]}

    class Other(AuxiliaryLoss):
        name, needs = "other", frozenset()
        released = Released(stop_gradient=True)
        Config = GSF.Config

    monkeypatch.setattr(losses, "find", lambda name: Found(name, "other", Other))
    config = AgentConfig(method="curl", released=True).resolved()
    assert (config.parts["cql"].alpha, config.stop_gradient) == (0.0, True)
    assert not AgentConfig(method="curl").resolved().stop_gradient


def test_options_survive_json() -> None:
    config = AgentConfig(
        method="gsf-reward", parts={"gsf": GSF.Config(tau=0.25)}, lr=1e-3
    ).resolved()
    again = from_json(AgentConfig, to_json(config)).resolved()
    assert again == config
    assert again.parts["gsf"].tau == 0.25
    with pytest.raises(UserError, match="temperature"):
        AgentConfig(method="gsf-reward", parts={"gsf": {"temperature": 1.0}}).resolved()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "dqn"}, "unknown method 'dqn'"),
        ({"lr": -1.0}, "--lr must be above 0"),
        ({"gamma": 1.5}, "at most 1"),
        ({"parts": {"cql": {"alpha": -0.1}}}, "--cql.alpha must be between 0"),
        ({"parts": {"cql": {"beta": 1}}}, "unknown option cql.'beta'"),
        ({"method": "bc", "parts": {"bc": CQL.Config()}}, "bc takes options of its own"),
        ({"method": "bc", "on": "cql"}, "is a base itself"),
        ({"method": "curl", "on": "sac"}, "unknown base 'sac'"),
        ({"crop": -1}, "--crop must be between 0"),
        ({"parts": {"gsf": {}}}, "method cql has no gsf to take options, only cql"),
        ({"method": "gsf-reward", "parts": {"gsf": AgentConfig()}}, "gsf takes options of its own"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        AgentConfig(**options).resolved()


# Acting


class FixedScores(torch.nn.Module):
    def __init__(self, *rows: list[float]) -> None:
        super().__init__()
        self.rows = torch.tensor(rows)

    def scores(self, z: Tensor) -> Tensor:
        return self.rows[0] if z.ndim == 1 else self.rows[: len(z)]


def fixed_agent(*rows: list[float]) -> Agent:
    base: Any = FixedScores(*rows)
    return Agent(Encoder((4, 4, 1), "impala"), base, (4, 4, 1), 3, "bc", 0)


def test_softmax_is_the_inverse_cdf_by_hand() -> None:
    probabilities = [0.2, 0.5, 0.3]
    agent = fixed_agent(*[np.log(probabilities).tolist()] * 5)
    obs = np.zeros((5, 4, 4, 1), np.uint8)
    uniform = np.array([0.0, 0.19, 0.21, 0.69, 0.999])
    assert agent.act(obs, "sampled", uniform).tolist() == [0, 0, 1, 1, 2]
    assert agent.act(obs, "greedy").tolist() == [1] * 5
    drawn = agent.act(obs, "sampled", np.random.default_rng(0))
    numbers = np.random.default_rng(0).random(5)
    assert drawn.tolist() == agent.act(obs, "sampled", numbers).tolist()


def test_an_agent_draws_at_its_temperature_from_its_own_stream() -> None:
    obs, uniform = np.zeros((5, 4, 4, 1), np.uint8), np.array([0.0, 0.1, 0.14, 0.8, 0.999])
    agent = fixed_agent(*[np.log([0.2, 0.5, 0.3]).tolist()] * 5)
    sharp = dataclasses.replace(agent, temperature=0.5, rng=np.random.default_rng(4))
    # squares 0.04, 0.25, 0.09 of 0.38: up to 0.105, 0.763, 1
    assert sharp.act(obs, "sampled", uniform).tolist() == [0, 0, 1, 2, 2]
    assert sharp.act(obs, "sampled-0.5", uniform).tolist() == [0, 0, 1, 2, 2]
    assert agent.act(obs, "sampled-0.5", uniform).tolist() == [0, 0, 1, 2, 2]
    assert sharp.act(obs, "sampled-1", uniform).tolist() == [0, 0, 0, 2, 2]
    stream = np.random.default_rng(4)
    for _ in range(3):
        own = sharp.act(obs, "sampled")
        assert own.tolist() == sharp.act(obs, "sampled", stream.random(5)).tolist()


def test_softmax_at_both_ends_of_the_unit_interval() -> None:
    obs = np.zeros((200, 4, 4, 1), np.uint8)
    scores = np.random.default_rng(0).normal(size=(200, 3)).tolist()
    largest = np.full(200, 1 - 2**-53)  # some sums of probabilities round to less than 1
    assert (fixed_agent(*scores).act(obs, "sampled", largest) == 2).all()
    impossible = fixed_agent([-1000.0, 0.0, 0.0])
    assert impossible.act(obs[:1], "sampled", np.zeros(1)).tolist() == [1]


class FixedTwins(torch.nn.Module):
    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        q1, q2 = torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([[0.0, 2.0, 0.5]])
        return q1.expand(len(z), 3), q2.expand(len(z), 3)


def test_critics_act_by_their_minimum() -> None:
    base: Any = CQL(CQL.Config(), Spec((4, 4, 1), 3, 1))
    base.q = FixedTwins()
    agent = Agent(Encoder((4, 4, 1), "impala"), base, (4, 4, 1), 3, "cql", 0)
    obs = np.zeros((2, 4, 4, 1), np.uint8)
    assert agent.scores(obs).tolist() == [[0.0, 1.0, 0.0]] * 2
    assert agent.act(obs).tolist() == [1, 1]
    assert agent.act(obs).dtype == np.int64


def test_embedding_is_the_encoder_whatever_the_number_of_images() -> None:
    with seeded(np.random.default_rng(0)):
        encoder = Encoder((8, 8, 3), "impala")
        base = CQL(CQL.Config(), Spec((8, 8, 3), 5, 1))
    agent = Agent(encoder, base, (8, 8, 3), 5, "cql", 0)
    obs = np.random.default_rng(0).integers(0, 256, (600, 8, 8, 3), dtype=np.uint8)
    with torch.no_grad():
        np.testing.assert_allclose(agent.embed(obs), encoder(torch.from_numpy(obs)), atol=1e-5)
    with torch.no_grad():
        low = base.scores(torch.from_numpy(agent.embed(obs)))
    np.testing.assert_allclose(agent.scores(obs), low, atol=1e-5)


def test_one_image_and_read_only_images() -> None:
    agent = fixed_agent([0.0, 2.0, 1.0])
    obs = np.zeros((4, 4, 1), np.uint8)
    obs.flags.writeable = False
    action = agent.act(obs)
    assert action == 1
    assert np.shape(action) == ()
    assert agent.act(obs, "sampled", np.random.default_rng(0)) in (0, 1, 2)
    assert agent.embed(obs).shape == (256,)


def test_what_an_agent_refuses() -> None:
    agent = fixed_agent([0.0, 1.0, 2.0])
    with pytest.raises(UserError, match=r"uint8 images \[4, 4, 1\]"):
        agent.act(np.zeros((2, 5, 4, 1), np.uint8))
    with pytest.raises(UserError, match="float64"):
        agent.act(np.zeros((2, 4, 4, 1)))
    with pytest.raises(ValueError, match="greedy"):
        agent.act(np.zeros((1, 4, 4, 1), np.uint8), "best")  # type: ignore[arg-type]


def test_state_goes_round(dataset: Dataset, labels: Path) -> None:
    learner = make_learner(dataset, labels, method="gsf-reward", update="alternating")
    step(learner)
    config = dataclasses.replace(learner.config)
    other = Learner(config, dataset, np.random.default_rng(5), labels)
    other.load(copy.deepcopy(learner.state()))  # as if it had been on disk
    first, second = step(learner, seed=2), step(other, seed=2)
    assert {k: float(v) for k, v in first.items()} == {k: float(v) for k, v in second.items()}
    for name, module in learner.modules.items():
        assert same(weights(module), weights(other.modules[name]))
