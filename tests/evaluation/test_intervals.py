import numpy as np
import pytest

from gsf.evaluation.intervals import (
    estimate,
    intervals_over,
    mean_over_levels,
    redraw,
    redraw_within,
)


def test_a_replicate_is_a_draw_with_replacement():
    weights = redraw(50, np.random.default_rng(0), 4000)
    assert weights.shape == (4000, 50)
    assert weights.sum(1) == pytest.approx(np.ones(4000))
    x = np.random.default_rng(1).normal(size=50)
    assert (weights @ x).std() == pytest.approx(x.std() / np.sqrt(50), rel=0.05)


def test_the_interval_is_the_middle_of_the_replicates():
    found = estimate(7, np.arange(1001.0))
    assert found == {"value": 7.0, "low": 25.0, "high": 975.0}


def test_levels_are_redrawn_whole():
    level = np.repeat(np.arange(20), 10)
    shared = np.random.default_rng(0).normal(size=20)[level]  # one number per level, ten times
    found = mean_over_levels(shared, level)
    assert found["value"] == pytest.approx(shared.mean())
    width = 2 * 1.96 * shared.std() / np.sqrt(20)
    assert found["high"] - found["low"] == pytest.approx(width, rel=0.1)
    assert mean_over_levels([2.0, 2.0], [5, 6]) == {"value": 2, "low": 2, "high": 2}


def test_groups_are_drawn_again_and_within_them_their_own_things():
    counts = redraw_within([7, 7, 7, 9, 9], np.random.default_rng(0), 4000)
    of_groups = counts[:, :3].sum(1) / 3, counts[:, 3:].sum(1) / 2  # how often each was drawn
    assert set(of_groups[0]) == {0, 1, 2}
    np.testing.assert_array_equal(of_groups[0] + of_groups[1], 2)
    assert (of_groups[0] == 0).mean() == pytest.approx(1 / 4, abs=0.03)
    assert (counts[of_groups[0] == 1][:, 0] == 0).mean() == pytest.approx((2 / 3) ** 3, abs=0.03)


@pytest.mark.parametrize(
    ("n_seeds", "over"),
    [
        ([], "levels"),
        ([1, 1], "levels"),
        ([2, 3], "seeds and levels"),
        ([1, 3], "levels, and over seeds where there are several"),
    ],
)
def test_what_intervals_are_over(n_seeds, over):
    assert intervals_over(n_seeds) == f"95 % intervals over {over}"
