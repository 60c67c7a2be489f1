"""Decision Transformer: its windows, no look ahead, and acting by its own past."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import corridors
from gsf.core.errors import UserError
from gsf.data.dataset import Dataset
from gsf.evaluation.judging import look
from gsf.evaluation.rollout import rollout, stream
from gsf.learn.agent import Agent
from gsf.learn.context import Past
from gsf.learn.learner import AgentConfig, Learner
from gsf.suites import find_game, name_game

OPTIONS = {"length": 5, "width": 16, "layers": 2, "heads": 2}


def make_learner(dataset: Dataset, **options: Any) -> Any:
    parts = {"dt": {**OPTIONS, **options}}
    config = AgentConfig(method="dt", encoder="impala_small", crop=0, parts=parts)
    return Learner(config, dataset, np.random.default_rng(0))


def make_agent(dataset: Dataset, learner: Any) -> Agent:
    for module in (learner.encoder, learner.base):
        module.eval().requires_grad_(False)
    place = dataset.obs_shape, dataset.n_actions
    return Agent(learner.encoder, learner.base, *place, "dt", 0)


@pytest.mark.parametrize("train", [True, False])
def test_what_comes_later_changes_nothing_before(dataset: Dataset, train: bool) -> None:
    base = make_learner(dataset).base.train(train).requires_grad_(train)
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    parts = [drawn(3, 5), drawn(3, 5, 256), torch.randint(0, 3, (3, 5), generator=generator)]
    before = base.logits(*parts)
    for t in range(5):
        for i, x in enumerate(parts):
            other = x.clone()
            other[:, t] = other[:, t].roll(1, 0) if i < 2 else (x[:, t] + 1) % 3
            after = base.logits(*[other if j == i else y for j, y in enumerate(parts)])
            unseen = t + 1 if i == 2 else t  # the action at t is told before it is seen
            torch.testing.assert_close(after[:, :unseen], before[:, :unseen])
            if unseen < 5:
                assert not torch.allclose(after[:, unseen], before[:, unseen], atol=1e-6)


def test_rows_that_follow_each_other_are_a_window(dataset: Dataset) -> None:
    base, rng = make_learner(dataset).base, np.random.default_rng(0)
    (_, stop), (start, _) = dataset.episodes()[:2]
    assert start == stop
    rows = np.array([0, 1, 2, 3, 4, 5, 6, stop - 1, start, start + 1, 1, 1])
    drawn = base.draw(dataset, dataset.gather(rows), rng)
    assert drawn["place"].tolist() == [0, 1, 2, 3, 4, 0, 1, 0, 0, 1, 0, 0]
    assert drawn["window"].tolist() == [0] * 5 + [1, 1, 2, 3, 3, 4, 5]
    batch = base.sample(dataset, 64, rng, None)
    assert len(batch.index) == 64
    place = base.draw(dataset, batch, rng)["place"]
    assert set(place.tolist()) == set(range(5))
    of_two = base.sample(dataset, 64, rng, 2)
    assert len(of_two.level.unique()) <= 2


def test_loss_equals_a_loop_over_windows(dataset: Dataset) -> None:
    learner = make_learner(dataset)
    base, rng = learner.base, np.random.default_rng(0)
    (start, stop), *_ = dataset.episodes()
    batch = dataset.gather(np.array([start, start + 1, start + 2, stop - 1]))
    context = learner.look(batch, rng)
    loss, _ = base(context.z, context)
    scale = learner.spec.reward_scale
    rows = batch.index.tolist()
    to_go = torch.tensor([dataset.reward[row:stop].sum() / scale for row in rows]).float()
    losses = []
    for window in ([0, 1, 2], [3]):
        at = torch.tensor(window)
        logits = base.logits(to_go[at][None], context.z[at][None], batch.action[at][None])[0]
        losses.append(cross_entropy(logits, batch.action[at], reduction="sum"))
    torch.testing.assert_close(loss, sum(losses) / 4)
    returns = [dataset.reward[a:b].sum() / scale for a, b in dataset.episodes()]
    assert base.asked.item() == pytest.approx(np.quantile(returns, 0.9), rel=1e-5)


def plain(agent: Any, z: Tensor, action: list[int], reward: list[float]) -> Tensor:
    """Scores after an episode of these steps, by hand: the latest five, what is left to earn."""
    base = agent.base
    received = np.cumsum([0.0, *reward])
    to_go = base.asked.item() - torch.tensor(received) / base.spec.reward_scale
    actions = torch.tensor([*action, 0])
    latest = slice(max(0, len(actions) - 5), len(actions))
    found: Tensor = base.logits(to_go[None, latest].float(), z[None, latest], actions[None, latest])
    return found[0, -1]


def test_it_acts_by_its_own_episode_wherever_slots_end(dataset: Dataset) -> None:
    agent: Any = make_agent(dataset, make_learner(dataset))
    rng = np.random.default_rng(0)
    memory = agent.memory(3)
    past: list[tuple[list[Tensor], list[int], list[float]]] = [([], [], []) for _ in range(3)]
    for step in range(12):
        obs = rng.integers(0, 255, (3, *dataset.obs_shape), np.uint8)
        z = torch.from_numpy(agent.embed(obs))
        before = memory.in_slots(np.array([2, 0, 0]))  # some slots, one of them twice
        some = agent.scores(obs[[2, 0, 0]], before)
        scores = agent.scores(obs, memory)
        np.testing.assert_allclose(some, scores[[2, 0, 0]], atol=1e-5)
        for slot, (seen, action, reward) in enumerate(past):
            seen.append(z[slot])
            wanted = plain(agent, torch.stack(seen), action, reward)
            np.testing.assert_allclose(scores[slot], wanted, atol=1e-5)
        did = agent.act(obs, memory=memory)
        assert did.tolist() == scores.argmax(1).tolist()
        got, ended = rng.normal(size=3), np.array([step == 7, step in (2, 3), False])
        memory.after(did, got, ended)
        for slot, (seen, action, reward) in enumerate(past):
            action.append(int(did[slot]))
            reward.append(float(got[slot]))
            if ended[slot]:
                for x in (seen, action, reward):
                    x.clear()
    with pytest.raises(UserError, match="the memory is of 3 slots, not of 2 images"):
        agent.act(obs[:2], memory=memory)
    first = agent.scores(obs)  # without a memory: an episode's first step
    np.testing.assert_allclose(first[0], plain(agent, z[:1], [], []), atol=1e-5)
    one = agent.memory()
    assert agent.act(obs[0], memory=one) == first.argmax(1)[0]


def test_it_plays_the_same_alone_and_among_others(dataset: Dataset) -> None:
    """Slots end at different times and take their next levels."""
    agent = make_agent(dataset, make_learner(dataset))
    with torch.no_grad():
        agent.base.of_to_go.weight.mul_(30)  # so that what it has received matters
        agent.base.pi.weight.mul_(20)
    game = name_game(f"{corridors.__file__}:corridors/corridor")[1]
    levels = range(9)

    def play(n_envs: int) -> dict[int, list[int]]:
        did: dict[int, list[int]] = {level: [] for level in levels}
        for step in rollout(agent, game, levels, 1.0, seed=3, n_envs=n_envs):
            for at, action in zip(step.at, step.action, strict=True):
                did[int(at)].append(int(action))
        return did

    together = play(4)
    assert len({len(actions) for actions in together.values()}) > 2
    assert together == play(1)

    suite, name = find_game(game)
    for level in levels:  # as in a loop of one's own
        env, memory = suite.make_env(name, [level], 1, 0), agent.memory()
        obs, _ = env.reset()
        uniform, did, over = stream(3, level), [], False
        while not over:
            seen = np.asarray(obs).copy()
            action = agent.act(seen, "sampled-1", np.array([uniform.random()]), memory)
            obs, reward, terminated, truncated, _ = env.step(action)
            memory.after(action, reward, terminated | truncated)
            did.append(int(action[0]))
            over = bool((terminated | truncated)[0])
        assert did == together[level]


def test_held_out_data_are_judged_by_their_own_past(dataset: Dataset) -> None:
    agent: Any = make_agent(dataset, make_learner(dataset))
    _, scores = look(agent, dataset)
    z = torch.from_numpy(agent.embed(np.asarray(dataset.obs[: len(dataset.obs)])))
    for start, stop in dataset.episodes()[:3]:
        for row in (start, start + 1, (start + stop) // 2, stop - 1):
            steps = slice(start, row)
            past = dataset.action[steps].tolist(), dataset.reward[steps].tolist()
            seen = z[dataset.frame[start : row + 1]]
            found = scores[dataset.frame[row]]
            np.testing.assert_allclose(found, plain(agent, seen, *past), atol=1e-5)


def test_an_agent_without_a_memory_is_the_same_with_one(dataset: Dataset) -> None:
    learner = Learner(AgentConfig(encoder="impala_small"), dataset, np.random.default_rng(0))
    agent = make_agent(dataset, learner)
    obs, memory = np.asarray(dataset.obs[:4]), agent.memory(4)
    for _ in range(3):
        assert np.array_equal(agent.scores(obs, memory), agent.scores(obs))
        memory.after(agent.act(obs), np.ones(4), np.zeros(4, bool))
    z = torch.from_numpy(agent.embed(obs))
    now = torch.zeros(4, dtype=torch.long)
    past = Past(z[:, None], now[:, None], now[:, None].float(), now)
    assert np.array_equal(agent.scores_in(past), agent.scores(obs))


def test_actions_are_remembered_as_the_env_calls_them(dataset: Dataset) -> None:
    agent = make_agent(dataset, make_learner(dataset))
    renamed = Agent(agent.encoder, agent.base, agent.obs_shape, 3, "dt", 0, actions=(4, 0, 9))
    obs = np.asarray(dataset.obs[:1])
    first, second = agent.memory(), renamed.memory()
    for plain_id, env_id in ((0, 4), (1, 0), (2, 9)):
        assert np.array_equal(agent.scores(obs, first), renamed.scores(obs, second))
        first.after(np.array([plain_id]), np.zeros(1), np.zeros(1, bool))
        second.after(np.array([env_id]), np.zeros(1), np.zeros(1, bool))
    with pytest.raises(UserError, match="none of the agent's actions"):
        second.after(np.array([5]), np.zeros(1), np.zeros(1, bool))


def test_heads_divide_the_width(dataset: Dataset) -> None:
    with pytest.raises(UserError, match=r"--dt.heads 3 does not divide --dt.width 16"):
        make_learner(dataset, heads=3)
