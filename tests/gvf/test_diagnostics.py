"""What labels are worth, by hand and on chains."""

import numpy as np
import pytest

from chains import write_chain
from gsf.gvf import diagnostics


def test_spearman_by_hand():
    assert diagnostics.spearman(np.array([1, 2, 3]), np.array([10, 20, 90])) == pytest.approx(1)
    assert diagnostics.spearman(np.array([1, 2, 3]), np.array([3, 2, 1])) == pytest.approx(-1)
    # ranks 1.5 1.5 3 and 1 2 3: cov .75+..., the textbook value
    assert diagnostics.spearman(np.array([0, 0, 1]), np.array([1, 2, 3])) == pytest.approx(
        0.75**0.5
    )
    assert np.isnan(diagnostics.spearman(np.array([1, 1]), np.array([1, 2])))


def test_values_follow_the_logged_future_level_by_level():
    level = np.repeat([0, 1, 2, 3], 3)
    logged = np.array([1, 2, 3, 1, 2, 3, 5, np.nan, 5, 1, 2, 3.0])  # constant in level 2: left out
    values = np.array([10, 20, 30, 9, 8, 7, 1, 2, 3, 4, 4, 4.0])  # 1, -1, none, and constant: 0
    assert diagnostics.level_correlation(values, logged, level) == pytest.approx(0)
    assert diagnostics.level_correlation(values[:3], logged[:3], level[:3]) == pytest.approx(1)
    both = np.stack([values, -values], 1)[:6]
    assert diagnostics.level_correlation(both, both, level[:6]) == pytest.approx(1)
    assert diagnostics.level_correlation(values[6:9], logged[6:9], level[6:9]) is None


def test_stability_by_hand():
    one, two = np.array([0, 0, 1, 1, -1]), np.array([0, 1, 1, 1, 1])
    equal, kappa = diagnostics.stability(one, two, 2)
    assert equal == 0.75
    assert kappa == pytest.approx((0.75 - 0.5) / (1 - 0.5))  # by chance: .5 * .25 + .5 * .75
    assert diagnostics.stability(np.array([-1]), np.array([0]), 2) == (None, None)


def test_a_label_in_the_image_is_predictable_on_other_levels_and_noise_is_not(tmp_path):
    dataset = write_chain(tmp_path / "d", (1.0,) * 10, n_episodes=10)
    rows = np.arange(len(dataset))
    rng = np.random.default_rng(0)
    seen = dataset.t[:, None].astype(np.int64)
    accuracy, chance = diagnostics.predictability(dataset, rows, seen, 5, rng)
    assert accuracy > 0.95
    assert chance == pytest.approx(0.2)
    noise = rng.integers(5, size=(len(rows), 1))
    accuracy, chance = diagnostics.predictability(dataset, rows, noise, 5, rng)
    assert abs(accuracy - chance) < 0.15
    one_level = np.flatnonzero(dataset.level == 0)
    assert diagnostics.predictability(dataset, one_level, seen[one_level], 5, rng) == (None, None)


def test_the_probe_is_judged_on_levels_it_was_not_trained_on():
    z = np.array([[1.0], [-1.0]], np.float32).repeat(20, 0)
    held_out = np.arange(40) % 2 == 0
    label = (z[:, 0] > 0).astype(int)
    assert diagnostics._probe(z, label, held_out, 2) == (1.0, 0.5)
    label[held_out] = 1 - label[held_out]
    assert diagnostics._probe(z, label, held_out, 2) == (0.0, 0.5)
