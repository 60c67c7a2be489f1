"""Sums along logged trajectories, exact; what a cut hides is not known."""

import numpy as np
import pytest

from chains import chain_values, write_chain
from gsf.gvf.fit import FitConfig, fit
from gsf.gvf.monte_carlo import cut_horizon, monte_carlo

SCALES = (1.0, 1000.0)


def values_of(config):
    return np.load(fit(config) / "values.npy")


def test_mc_is_exact_on_a_chain_at_every_scale(tmp_path):
    dataset = write_chain(tmp_path / "d", SCALES)
    values = values_of(FitConfig(dataset.path, tmp_path / "fit", gamma=0.9))
    truth = chain_values(0.9)[dataset.t] * np.array(SCALES)[dataset.level]
    np.testing.assert_allclose(values, truth, rtol=1e-6)


def test_mc_by_hand_with_several_components_and_blocks(monkeypatch):
    c = np.array([[1, 0], [0, 1], [2, 0], [0, 4], [8, 8]], np.float32)
    episode, terminated = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 1, 1], bool)
    expected = [[1, 0.5], [0, 1], [2, 2], [0, 4], [8, 8]]
    for rows in (1, 2, 3, 100):  # blocks smaller than an episode, of one, of all
        monkeypatch.setattr("gsf.gvf.monte_carlo.MC_ROWS", rows)
        np.testing.assert_allclose(monte_carlo(c, episode, terminated, 0.5), expected)


@pytest.mark.parametrize(
    ("gamma", "steps"), [(0.99, 299), (0.9, 29), (0.5, 5), (0.0, 0), (1.0, np.inf)]
)
def test_the_horizon_holds_95_percent(gamma, steps):
    assert cut_horizon(gamma) == steps
    if 0 < gamma < 1:
        assert gamma**steps <= 0.05 < gamma ** (steps - 1)


@pytest.mark.parametrize("end", ["truncated", "cut"])
def test_mc_does_not_know_what_a_cut_hides(tmp_path, end):
    dataset = write_chain(tmp_path / "d", (1.0,), length=12, end=end)
    values = values_of(FitConfig(dataset.path, tmp_path / "fit", gamma=0.5))
    # gamma 0.5: 5 steps hold 95 %; rows 0..7 have 12..5 steps to the cut, rows 8..11 fewer.
    np.testing.assert_array_equal(np.isnan(values), dataset.t > 7)
    np.testing.assert_allclose(values[:8], chain_values(0.5, 12)[:8], rtol=1e-6)
    everything = values_of(FitConfig(dataset.path, tmp_path / "fit1", gamma=1.0))
    assert np.isnan(everything).all()


def test_a_bootstrapped_cut_takes_the_given_value():
    c = np.ones((6, 1), np.float32)
    episode, terminated = np.array([0, 0, 0, 1, 1, 1]), np.zeros(6, bool)
    at_cut = np.full((6, 1), np.nan)
    at_cut[2] = 10.0  # the second episode's cut has none, and must not leak into the first
    value = monte_carlo(c, episode, terminated, 0.5, at_cut)
    np.testing.assert_allclose(value[:3, 0], [1 + 0.5 * 6, 1 + 0.5 * 10, 10])
    assert np.isnan(value[3:]).all()
