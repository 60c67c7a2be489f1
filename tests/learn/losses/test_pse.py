"""PSE: the metric, who is compared with whom, and the soft coupling."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from episodes import write_episodes
from gsf.core.errors import UserError
from gsf.data.dataset import Dataset
from gsf.learn.learner import AgentConfig, Learner
from gsf.learn.losses import Spec
from gsf.learn.losses.pse import (
    PSE,
    action_distance,
    both_ways,
    choose_anchors,
    coupled_contrast,
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    path = tmp_path_factory.mktemp("pse") / "dataset"
    return write_episodes(path, lengths=(5, 30, 1, 14, 26, 2), levels=(7, 8, 9), n_actions=3)


def slow_distance(action_1: np.ndarray, action_2: np.ndarray, gamma: float) -> np.ndarray:
    """d(i, j) = 1[a_i != b_j] + gamma d(i+1, j+1), an index past the end staying at the end."""
    end = len(action_1) - 1, len(action_2) - 1

    @cache
    def d(i: int, j: int) -> float:
        cost = float(action_1[i] != action_2[j])
        if (i, j) == end:
            return cost
        return cost + gamma * d(min(i + 1, end[0]), min(j + 1, end[1]))

    return np.array([[d(i, j) for j in range(end[1] + 1)] for i in range(end[0] + 1)])


@pytest.mark.parametrize("lengths", [(1, 1), (1, 6), (9, 4), (7, 7), (12, 30)])
def test_metric_equals_the_recursion(lengths: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    first, second = (rng.integers(3, size=n) for n in lengths)
    d = action_distance(first, second, 0.8)
    assert d.dtype == np.float32
    np.testing.assert_allclose(d, slow_distance(first, second, 0.8), rtol=1e-5)


@pytest.mark.parametrize(("absorbing", "corner"), [(False, 1.0), (True, 2.0)])
def test_where_both_episodes_end(dataset: Dataset, absorbing: bool, corner: float) -> None:
    """Actions 0 1 and 0 2 at gamma 1/2: the ends differ, by 1 once or by 1 + 1/2 + ... = 2."""
    found = action_distance([0, 1], [0, 2], 0.5, absorbing)
    assert found.tolist() == [[corner / 2, 1 + corner / 2], [1 + corner / 2, corner]]
    if absorbing:
        with pytest.raises(UserError, match="gamma below 1"):
            PSE(PSE.Config(gamma=1.0, absorbing=True), Spec(dataset.obs_shape, 3, 3))


def test_identical_action_sequences_are_at_distance_zero() -> None:
    action = np.random.default_rng(0).integers(3, size=20)
    assert (np.diag(action_distance(action, action, 0.99)) == 0).all()
    # From step 3 of one on, the same is done as from the start of the other.
    assert action_distance(action, action[3:], 0.99)[3, 0] == 0
    other = action.copy()
    other[-1] += 1
    assert action_distance(action, other, 0.5)[0, 0] == pytest.approx(0.5**19)


def test_anchors_hold_each_rows_nearest_column() -> None:
    rng = np.random.default_rng(0)
    for n_rows, n_columns, n in [(40, 50, 8), (5, 50, 8), (50, 5, 8), (1, 1, 8), (9, 60, 60)]:
        distance = rng.random((n_rows, n_columns), dtype=np.float32)
        rows, columns = choose_anchors(distance, n, rng)
        assert len(set(rows)) == len(rows) == min(n, n_rows)
        assert len(set(columns)) == len(columns) == min(n, n_columns)
        assert (np.diff(rows) > 0).all()
        assert (np.diff(columns) > 0).all()
        chosen = distance[np.ix_(rows, columns)]
        assert np.array_equal(columns[chosen.argmin(1)], distance[rows].argmin(1))
        assert np.array_equal(chosen.min(1), distance[rows].min(1))


def test_drawn_observations_and_distances_belong_together(dataset: Dataset) -> None:
    aux = PSE(PSE.Config(n_anchors=6, gamma=0.9), Spec(dataset.obs_shape, 3, 3))
    row_of = {dataset.obs[frame].tobytes(): row for row, frame in enumerate(dataset.frame)}
    rng, seen = np.random.default_rng(0), set()
    for _ in range(30):
        drawn = aux.draw(dataset, dataset.sample(64, rng), rng)
        n, m = drawn["distance"].shape
        assert drawn["obs"].shape == (n + m, *dataset.obs_shape)
        rows = np.array([row_of[image.numpy().tobytes()] for image in drawn["obs"]])
        first, second = rows[:n], rows[n:]
        assert len(set(dataset.episode[first])) == len(set(dataset.episode[second])) == 1
        assert dataset.level[first[0]] != dataset.level[second[0]]
        bounds = [dataset.episodes()[dataset.episode[x[0]]] for x in (first, second)]
        whole = slow_distance(*(dataset.action[start:stop] for start, stop in bounds), 0.9)
        i, j = first - bounds[0][0], second - bounds[1][0]
        np.testing.assert_allclose(drawn["distance"], whole[np.ix_(i, j)], rtol=1e-5)
        # The positive is the nearest observation of the whole other episode.
        np.testing.assert_allclose(drawn["distance"].amin(1), whole[i].min(1), rtol=1e-5)
        assert max(n, m) <= 6
        seen.add((n, m))
    assert len(seen) > 3


def test_no_more_anchors_than_half_a_batch(dataset: Dataset) -> None:
    aux, rng = PSE(PSE.Config(), Spec(dataset.obs_shape, 3, 3)), np.random.default_rng(0)
    drawn = [aux.draw(dataset, dataset.sample(10, rng), rng) for _ in range(20)]
    assert max(len(x["obs"]) for x in drawn) == 10


def test_coupling_by_hand() -> None:
    cosine = torch.tensor([[0.5, -0.5, 0.25], [0.0, 0.1, 0.2]], requires_grad=True)
    distance = torch.tensor([[0.2, 0.1, 0.4], [0.0, 0.3, 0.0]])
    loss = coupled_contrast(cosine, distance, tau=0.5, beta=0.1)
    gamma = np.exp(-distance.double().numpy() / 0.1)
    e = np.exp(cosine.detach().double().numpy() / 0.5)
    # Row 0: column 1 is nearest. Row 1: column 0 is, and column 2 is as near: no negative.
    positive = gamma[0, 1] * e[0, 1]
    row_0 = positive / (positive + (1 - gamma[0, 0]) * e[0, 0] + (1 - gamma[0, 2]) * e[0, 2])
    row_1 = e[1, 0] / (e[1, 0] + (1 - gamma[1, 1]) * e[1, 1])
    assert float(loss.detach()) == pytest.approx(-(np.log(row_0) + np.log(row_1)) / 2, rel=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert cosine.grad is not None
    assert cosine.grad[1, 2] == 0
    assert cosine.grad[0, 1] < 0 < cosine.grad[0, 0]


def test_either_episode_is_asked_about_the_other_by_hand() -> None:
    """d = beta log 2 times 1, 2 or 3, so that Gamma is 1/2, 1/4 or 1/8; cosines 0, so that e^s = 1.

    Either row: 1/2 / (1/2 + 3/4 + 7/8) = 4/17. Columns: 1/2 / (1/2 + 3/4) = 2/5, the same, and
    1/8 / (1/8 + 7/8) = 1/8, where both rows are as near and the first is the positive.
    """
    distance = torch.tensor([[1.0, 2.0, 3.0], [2.0, 1.0, 3.0]]) * 0.1 * np.log(2)
    zero, of_rows, of_columns = torch.zeros(2, 3), np.log(17 / 4), np.log([5 / 2, 5 / 2, 8]).mean()
    expected = (of_rows + of_columns) / 2
    assert float(both_ways(zero, distance, 0.5, 0.1)) == pytest.approx(expected, rel=1e-5)
    # Exchanging the episodes changes nothing.
    cosine = torch.tensor([[0.5, -0.5, 0.25], [0.0, 0.1, 0.2]])
    exchanged = both_ways(cosine.T, distance.T, 0.5, 0.1)
    torch.testing.assert_close(both_ways(cosine, distance, 0.5, 0.1), exchanged)


def test_loss_is_the_coupling_less_its_constant(dataset: Dataset) -> None:
    config = AgentConfig(method="pse", encoder="impala_small", crop=0, parts={"pse": {"tau": 0.7}})
    learner: Any = Learner(config, dataset, np.random.default_rng(0))
    context = learner.look(dataset.gather(np.arange(16)), np.random.default_rng(1))
    loss, info = learner.losses["pse"](context)
    distance = context.drawn["distance"]
    h = learner.losses["pse"].h(learner.encoder(context.drawn["obs"]))
    first, second = h[: len(distance)], h[len(distance) :]
    cosine = torch.stack([torch.cosine_similarity(x[None], second) for x in first])
    nearest = (distance.amin(1).mean() + distance.amin(0).mean()) / 2
    expected = both_ways(cosine, distance, 0.7, 0.1) - nearest / 0.1
    torch.testing.assert_close(loss, expected, rtol=1e-3, atol=1e-3)
    assert float(info["distance"]) == pytest.approx(float(nearest))


def test_one_level_is_not_enough(tmp_path: Path) -> None:
    dataset = write_episodes(tmp_path / "dataset", levels=(3,))
    aux, rng = PSE(PSE.Config(), Spec(dataset.obs_shape, 5, 1)), np.random.default_rng(0)
    with pytest.raises(UserError, match="pse compares episodes of different levels"):
        aux.draw(dataset, dataset.sample(8, rng), rng)
