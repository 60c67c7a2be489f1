"""n-step CQL and BC of the best episodes: what they draw, by hand, and what they are at edges."""

from typing import Any

import numpy as np
import pytest
import torch

from episodes import write_episodes
from gsf.data.dataset import Dataset
from gsf.learn.bases.top_bc import best_rows
from gsf.learn.learner import AgentConfig, Learner


def make_learner(dataset: Dataset, method: str, **options: Any) -> Learner:
    config = AgentConfig(method=method, encoder="impala_small", crop=0, parts={method: options})
    return Learner(config, dataset, np.random.default_rng(0))


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Of many lengths and returns, some of which go on after their last transition."""
    path = tmp_path_factory.mktemp("episodes") / "dataset"
    return write_episodes(path, lengths=(5, 3, 1, 4, 6, 2, 7, 3) * 2)


def test_rows_ahead_end_with_their_episode(dataset: Dataset) -> None:
    start, stop = dataset.episodes()[1]
    rows, taken = dataset.ahead([start, stop - 2, stop - 1], 3)
    assert rows.tolist() == [
        [start, start + 1, start + 2],
        [stop - 2, stop - 1, stop - 1],
        [stop - 1] * 3,
    ]
    assert taken.sum(1).tolist() == [3, 2, 1]


def test_the_target_adds_up_logged_rewards_and_then_asks_the_critic(episodes: Dataset) -> None:
    dataset = episodes
    learner = make_learner(dataset, "nstep_cql", n_steps=3)
    base: Any = learner.base
    with torch.no_grad():  # targets that are not the online networks
        for p in (*learner.target_encoder.parameters(), *base.target_q.parameters()):
            p.mul_(1.3)
    rng = np.random.default_rng(0)
    context = learner.look(dataset.gather(np.arange(len(dataset))), rng)
    y, known = base.target(context)
    gamma, scale = base.spec.gamma, base.spec.reward_scale
    for start, stop in dataset.episodes():
        for row in range(start, stop):
            last = min(row + 2, stop - 1)
            expected = sum(
                gamma**k * float(dataset.reward[row + k]) / scale for k in range(last - row + 1)
            )
            assert bool(known[row]) == bool(dataset.has_next[last] or dataset.terminated[last])
            if dataset.has_next[last] and not dataset.terminated[last]:
                obs = dataset.gather([last]).next_obs
                with torch.no_grad():
                    best = base.scores(learner.encoder(obs)).argmax()
                    q = torch.minimum(*base.target_q(learner.target_encoder(obs)))[0, best]
                expected += gamma ** (last - row + 1) * float(q)
            if known[row]:
                assert float(y[row]) == pytest.approx(expected, abs=1e-5)


def test_with_one_step_it_is_cql(dataset: Dataset) -> None:
    learners = [make_learner(dataset, "cql"), make_learner(dataset, "nstep_cql", n_steps=1)]
    for learner in learners:
        rng = np.random.default_rng(1)
        for _ in range(2):
            learner.update(*_drawn(learner, rng))
    one, other = (learner.encoder.state_dict() for learner in learners)
    for name, weight in one.items():
        torch.testing.assert_close(weight, other[name], atol=1e-6, rtol=1e-5)


def _drawn(learner: Learner, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    batch, drawn = learner.draw(16, rng)
    return batch, rng, drawn


def test_the_best_episodes_of_every_level(episodes: Dataset) -> None:
    dataset = episodes
    bounds = np.array(dataset.episodes())
    returns = np.array([dataset.reward[start:stop].sum() for start, stop in bounds])
    levels = dataset.level[bounds[:, 0]]
    kept = {int(dataset.episode[row]) for row in best_rows(dataset, 0.5)}
    for level in np.unique(levels):
        mine = np.flatnonzero(levels == level)
        chosen = [i for i in mine if dataset.episode[bounds[i, 0]] in kept]
        assert len(chosen) == round(0.5 * len(mine))
        left_out = set(mine) - set(chosen)
        assert returns[chosen].min() > max(returns[list(left_out)])
    assert best_rows(dataset, 1).size == len(dataset)
    assert np.unique(dataset.level[best_rows(dataset, 1e-6)]).size == dataset.n_levels


def test_only_the_best_episodes_are_imitated(dataset: Dataset) -> None:
    learner = make_learner(dataset, "top_bc", share=0.25)
    best = set(best_rows(dataset, 0.25).tolist())
    for n_levels in (None, 2):
        batch, _ = learner.draw(64, np.random.default_rng(0), n_levels)
        assert set(batch.index.tolist()) <= best
        assert n_levels is None or len(set(batch.level.tolist())) == n_levels
