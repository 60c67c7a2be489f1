"""Fitted Q evaluation against values that are solved for exactly."""

import numpy as np
import pytest

from gsf.data.dataset import Dataset
from gsf.data.format import DatasetWriter
from gsf.equations import expected_value
from gsf.gvf import fqe
from gsf.gvf.fqe import fitted_q

GAMMA, N_STATES, N_EPISODES = 0.9, 4, 600


@pytest.fixture(scope="module")
def walks(tmp_path_factory):
    """States 0..3 in a row: action 1 goes right, action 0 stays; -0.1 a step, 0 or 2 past the end.

    Of three episodes one gets there, one is cut after three steps and one is truncated then, but
    its last state is shown.
    """
    rng, states, rows = np.random.default_rng(0), [], []
    for k in range(N_EPISODES):
        state, t, most = 0, 0, 3 if k % 3 else np.inf
        while state < N_STATES and t < most:
            action = int(rng.random() < 0.5)
            end, limit = state + action == N_STATES, t + 1 == most
            rows.append(
                {
                    "action": action,
                    "reward": -0.1 + end * 2 * (k % 2),
                    "level": 0,
                    "episode": k,
                    "t": t,
                    "terminated": end,
                    "truncated": limit and k % 3 == 2,
                    "has_next": not (end or (limit and k % 3 == 1)),
                    "frame": len(states),
                }
            )
            states.append(state)
            state, t = state + action, t + 1
        states += [state] if k % 3 == 2 else []
    path = tmp_path_factory.mktemp("walks") / "data"
    with DatasetWriter(
        path,
        name="walks",
        obs_shape=(1, 1, 1),
        n_actions=2,
        levels=[0],
        region_frames=[len(states)],
    ) as writer:
        writer.append(0, np.array(states, np.uint8).reshape(-1, 1, 1, 1))
        writer.finish({name: np.array([row[name] for row in rows]) for name in rows[0]})
    return Dataset.open(path), np.array(states)


def exact(right):
    """V of going right with this probability, by the Bellman equation."""
    v, after = np.zeros(N_STATES), 0.0
    for state in reversed(range(N_STATES)):
        reward = -0.1 + right * (state == N_STATES - 1)
        v[state] = (reward + GAMMA * right * after) / (1 - GAMMA * (1 - right))
        after = v[state]
    return v


def test_values_of_other_policies_than_the_logged_one_are_the_exact_ones(walks, monkeypatch):
    monkeypatch.setattr(fqe, "PRIOR_ROWS", 0)  # shrinking is for features that may be noise
    monkeypatch.setattr(fqe, "RIDGE", 1e-6)
    data, states = walks
    chances = (0.5, 0.95, 0.3)
    pi = np.stack([np.tile([1 - p, p], (len(states), 1)) for p in chances], 2)
    starts = np.flatnonzero(np.asarray(data.t) == 0)[:3]
    features = np.eye(N_STATES)[states]
    value = fitted_q(data, features, pi, GAMMA, starts)
    assert value.shape == (3, 3)
    for i, p in enumerate(chances):
        assert value[:, i] == pytest.approx(exact(p)[0], abs=0.01)


def test_values_stay_within_what_was_logged(walks, monkeypatch):
    data, states = walks
    seen = []

    def watched(q, pi):
        seen.extend([q.min(), q.max()])
        return expected_value(q, pi)

    monkeypatch.setattr(fqe, "expected_value", watched)
    pi = np.tile([[[0.0], [1.0]]], (len(states), 1, 1))
    noise = np.random.default_rng(0).normal(size=(len(states), 4))
    noise[np.setdiff1d(np.arange(len(states)), data.frame)] *= 1000  # unlike all that was acted on
    value = fitted_q(data, noise, pi, GAMMA, np.arange(50))
    assert np.isfinite(value).all()
    reward = np.asarray(data.reward, np.float64)
    returns = [
        (GAMMA ** np.arange(stop - row) * reward[row:stop]).sum()
        for start, stop in data.episodes()
        for row in range(start, stop)
    ]
    assert [min(seen), max(seen)] == pytest.approx([min(returns), max(returns)])
