"""VPN: values of a chain in closed form, and what a rollout may be trained on."""

from typing import Any

import numpy as np
import pytest
import torch

from chains import LENGTH, chain_values, write_chain
from episodes import write_episodes
from gsf.data.dataset import Dataset
from gsf.learn.learner import AgentConfig, Learner
from gsf.learn.losses import vpn

GAMMA = 0.9


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_episodes(tmp_path_factory.mktemp("vpn") / "dataset")


def make_learner(dataset: Dataset, **options: Any) -> Learner:
    config = AgentConfig(method="vpn", on="bc", encoder="patches", crop=0, gamma=GAMMA, **options)
    return Learner(config, dataset, np.random.default_rng(0))


def test_value_targets_by_hand() -> None:
    reward = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 0.0]])
    discount = torch.tensor([[0.5, 0.5, 0.5], [0.5, 0.0, 1.0]])
    bootstrap = torch.tensor([8.0, 5.0])
    # 3 + 4 = 7, 2 + 3.5 = 5.5, 1 + 2.75; the second ends after two steps, whatever comes behind.
    expected = torch.tensor([[3.75, 5.5, 7.0, 8.0], [2.0, 2.0, 5.0, 5.0]])
    assert torch.equal(vpn.value_targets(reward, discount, bootstrap), expected)


def test_values_of_a_chain_are_the_closed_form(tmp_path_factory: pytest.TempPathFactory) -> None:
    dataset = write_chain(tmp_path_factory.mktemp("chain") / "dataset", (1.0, 1.0))
    learner: Any = make_learner(
        dataset, lr=1e-3, stop_gradient=True, target_rate=0.1, parts={"vpn": {"target_rate": 0.1}}
    )
    rng = np.random.default_rng(0)
    for _ in range(250):
        learner.update(dataset.sample(32, rng), rng)
    aux, scale = learner.losses["vpn"], learner.spec.reward_scale
    expected = chain_values(GAMMA) / scale
    episode = dataset.gather(np.arange(*dataset.episodes()[0]))
    one_hot = torch.nn.functional.one_hot(episode.action, dataset.n_actions)
    with torch.no_grad():
        s = learner.encoder(episode.obs)
        np.testing.assert_allclose(aux.value(s)[:, 0], expected, atol=0.12)
        for ahead in range(3):  # the same states, reached in latent space alone
            x = torch.cat([s[: LENGTH - ahead], one_hot[ahead:]], 1)
            reward, discount = aux.outcome(x).T
            np.testing.assert_allclose(reward, np.arange(ahead + 1, 6) / scale, atol=0.12)
            ends = np.arange(ahead, LENGTH) == LENGTH - 1
            np.testing.assert_allclose(discount, GAMMA * ~ends, atol=0.12)
            s = (s[: LENGTH - ahead] + aux.change(x))[:-1]
            np.testing.assert_allclose(aux.value(s)[:, 0], expected[ahead + 1 :], atol=0.12)


@pytest.mark.parametrize("n_steps", [1, 3])
def test_targets_and_masks_equal_a_slow_loop_for_every_kind_of_end(
    episodes: Dataset, n_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner: Any = make_learner(episodes, parts={"vpn": {"n_steps": n_steps}})
    with torch.no_grad():
        for p in learner.target_encoder.embed.parameters():
            p.add_(0.1)
    seen = []
    monkeypatch.setattr(vpn, "masked_huber", lambda *x: (seen.append(x), (0 * x[0]).sum())[1])
    batch = episodes.gather(np.arange(len(episodes)))
    learner.losses["vpn"](learner.look(batch, np.random.default_rng(0)))
    (_, reward, taken), (_, discount, _), (_, target, known) = seen

    def value(frame: int) -> float:
        with torch.no_grad():
            z = learner.target_encoder(torch.from_numpy(episodes.obs[frame : frame + 1].copy()))
            return float(learner.losses["vpn"].target_value(z))

    unit = np.asarray(episodes.reward, float) / learner.spec.reward_scale
    stop_of = {i: stop for start, stop in episodes.episodes() for i in range(start, stop)}
    n_checked = 0
    for i in range(len(episodes)):
        rows = list(range(i, min(i + n_steps, stop_of[i])))
        assert taken[i].tolist() == [k < len(rows) for k in range(n_steps)]
        last, after = rows[-1], {}
        for k, row in enumerate(rows):
            assert float(reward[i, k]) == pytest.approx(unit[row], abs=1e-5)
            alive = GAMMA * (not episodes.terminated[row])
            assert float(discount[i, k]) == pytest.approx(alive)
        if episodes.terminated[last]:
            after[last + 1] = 0.0
        elif episodes.has_next[last]:
            after[last + 1] = value(episodes.frame[last] + 1)
        for row in reversed(rows):
            if row + 1 in after:
                going_on = 0.0 if episodes.terminated[row] else after[row + 1]
                after[row] = unit[row] + GAMMA * going_on
        for k in range(n_steps + 1):
            exists = k < len(rows) or (
                k == n_steps == len(rows)
                and episodes.has_next[last]
                and not episodes.terminated[last]
            )
            assert bool(known[i, k]) == (exists and i + k in after), (i, k)
            if known[i, k]:
                assert float(target[i, k]) == pytest.approx(after[i + k], abs=1e-4)
                n_checked += 1
    assert n_checked > len(episodes)


def test_targets_take_no_gradient_and_the_target_head_follows_by_its_rate(
    episodes: Dataset,
) -> None:
    learner: Any = make_learner(episodes, parts={"vpn": {"target_rate": 0.25}})
    aux = learner.losses["vpn"]
    context = learner.look(episodes.gather(np.arange(10)), np.random.default_rng(0))
    assert not aux.bootstrap(context).requires_grad
    with torch.no_grad():  # targets that are not the online networks
        for p in (*aux.target_value.parameters(), *learner.target_encoder.parameters()):
            p.mul_(0.7)
        last_z = learner.target_encoder(context.crop(context.drawn["last_obs"]))
        expected = aux.target_value(last_z)[:, 0]
    torch.testing.assert_close(aux.bootstrap(context), expected)
    assert not any(p.requires_grad for p in aux.target_value.parameters())
    before = [p.clone() for p in aux.target_value.parameters()]
    aux.after_step()
    online, after = aux.value.parameters(), aux.target_value.parameters()
    for old, now, new in zip(before, online, after, strict=True):
        torch.testing.assert_close(new, 0.75 * old + 0.25 * now)
        assert not torch.equal(new, old)
