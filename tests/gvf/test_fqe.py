"""Fitted Q evaluation against values that are solved for exactly."""

import numpy as np
import pytest

from gsf.data.dataset import Dataset
from gsf.data.format import DatasetWriter
from gsf.gvf import fqe
from gsf.gvf.fqe import fitted_q

GAMMA, N_STATES, N_EPISODES = 0.9, 4, 600


@pytest.fixture(scope="module")
def walks(tmp_path_factory):
    """States 0..3 in a row: action 1 goes right, action 0 stays; -0.1 a step, 1 past the end."""
    rng, episodes = np.random.default_rng(0), []
    for _ in range(N_EPISODES):
        state, episode = 0, []
        while state < N_STATES:
            action = int(rng.random() < 0.5)
            after = state + action
            episode.append((state, action, -0.1 + (after == N_STATES)))
            state = after
        episodes.append(episode)
    path = tmp_path_factory.mktemp("walks") / "data"
    lengths = [len(x) for x in episodes]
    states, actions, rewards = (
        np.concatenate([[s[i] for s in x] for x in episodes]) for i in range(3)
    )
    episode = np.repeat(np.arange(N_EPISODES), lengths)
    last = np.append(episode[1:] != episode[:-1], True)
    with DatasetWriter(
        path,
        name="walks",
        obs_shape=(1, 1, 1),
        n_actions=2,
        levels=[0],
        region_frames=[len(states)],
    ) as writer:
        writer.append(0, states.astype(np.uint8).reshape(-1, 1, 1, 1))
        t = np.arange(len(states)) - (np.cumsum(lengths) - lengths)[episode]
        false = np.zeros(len(states), bool)
        rows = {"action": actions, "reward": rewards, "level": false, "episode": episode, "t": t}
        rows |= {"terminated": last, "truncated": false, "has_next": ~last}
        writer.finish(rows | {"frame": np.arange(len(states))})
    return Dataset.open(path), states.astype(int)


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


def test_values_stay_within_what_was_logged(walks):
    data, states = walks
    pi = np.tile([[[0.0], [1.0]]], (len(states), 1, 1))
    noise = np.random.default_rng(0).normal(size=(len(states), 4))
    value = fitted_q(data, noise, pi, GAMMA, np.arange(50))
    returns = [1 - 0.1, -1.0]
    assert np.isfinite(value).all()
    assert (value <= max(returns)).all()
