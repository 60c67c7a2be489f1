"""Fitted Q evaluation: the GVF of reward under an agent's own policy, from logged data alone.

Q(o, a) = w_a . x(o), one ridge regression per action on features that stay as they are: the agent's
z, and random ReLUs of it. y = r + gamma (1 - terminated) sum_a pi(a|o') Q(o', a) is regressed on
again and again until the values stand still: no step size, no seed to choose, seconds on a CPU.
"""

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from gsf.core.errors import UserError
from gsf.core.logs import progress
from gsf.data.dataset import Dataset
from gsf.equations import expected_value, gvf_target
from gsf.gvf.td import usable_rows

Array = npt.NDArray[Any]
N_RELU = 256
MOST_ROWS = 100_000  # that are regressed on; more are drawn from
RIDGE = 1e-2  # of features of variance 1; the constant is free, or every round would shrink Q
ROUNDS = 500
STILL = 1e-4  # of the largest reward: a change of the mean value below which it is over


def fitted_q(dataset: Dataset, features: Array, pi: Array, gamma: float, at: Array) -> Array:
    """V of each policy at the rows `at`, float64 [len(at),d].

    features [n_frames,x] and pi [n_frames,A,d] are of the dataset's frames.
    """
    rng = np.random.default_rng(0)
    rows = usable_rows(dataset, q=False)
    if not len(rows):
        raise UserError(f"{dataset.path} has no transition with a next observation or an end.")
    if len(rows) > MOST_ROWS:
        rows = np.sort(rng.choice(rows, MOST_ROWS, replace=False))
    rows = rows[np.argsort(dataset.action[rows], kind="stable")]  # each action's stand together
    frame = np.asarray(dataset.frame)
    wanted = (frame[rows], frame[rows] + dataset.has_next[rows], frame[at])
    frames, place = np.unique(np.concatenate(wanted), return_inverse=True)
    now, later, start = np.split(place, np.cumsum([len(x) for x in wanted])[:-1])
    x, pi = _widen(features[frames].astype(np.float32), rng), pi[frames].astype(np.float32)
    reward = np.asarray(dataset.reward, np.float64)[rows]
    end = np.asarray(dataset.terminated)[rows]
    bounds = np.searchsorted(dataset.action[rows], np.arange(dataset.n_actions + 1))
    blocks = [slice(*pair) for pair in itertools.pairwise(bounds)]
    logged = x[now]
    inverses = [_inverse(logged[block]) for block in blocks]
    value = np.zeros((len(at), pi.shape[2]))
    most = float(np.abs(reward).max()) / (1 - min(gamma, 1 - 1e-6))  # beyond any return
    with progress("fitted Q", ROUNDS * pi.shape[2], "rounds at most") as advance:
        for d in range(pi.shape[2]):
            v, before = np.zeros(len(x)), np.inf
            for number in range(ROUNDS):
                y = gvf_target(reward, v[later], end, gamma).astype(np.float32)
                sums = (logged[block].T @ y[block] for block in blocks)
                w = np.stack([inverse @ b for inverse, b in zip(inverses, sums, strict=True)])
                v = expected_value(x @ w.T.astype(np.float32), pi[:, :, d]).astype(np.float64)
                mean = float(v[now].mean())
                advance(d * ROUNDS + number + 1, value=mean)
                if not abs(mean) <= most:
                    v[:] = np.nan  # regression and future feed each other: no value is known
                if not abs(mean - before) >= STILL * most * (1 - gamma):
                    break
                before = mean
            value[:, d] = v[start]
    return value


def _widen(z: Array, rng: np.random.Generator) -> Array:
    """z [n,x] of variance 1, random ReLUs of it and a constant, float32."""
    z = (z - z.mean(0)) / (z.std(0) + 1e-3)
    weight = rng.normal(size=(z.shape[1], N_RELU)) * np.sqrt(2 / z.shape[1])
    bias = rng.normal(size=N_RELU) / 2
    relu = np.maximum(z @ weight.astype(np.float32) + bias.astype(np.float32), 0)
    return np.concatenate([z, relu, np.ones((len(z), 1), np.float32)], 1).astype(np.float32)


def _inverse(x: Array) -> Array:
    """(X^T X + penalty)^-1 of the rows of an action, x [n,k] -> [k,k]."""
    gram = (x.T @ x).astype(np.float64)
    penalty = np.full(len(gram), RIDGE * max(len(x), 1))
    penalty[-1] = 1e-6  # the constant
    inverse: Array = np.linalg.inv(gram + np.diag(penalty))
    return inverse
