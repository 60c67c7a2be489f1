"""Fitted Q evaluation: the GVF of reward under an agent's own policy, from logged data alone.

Q(o, a) = w_a . x(o), one ridge regression per action on features that stay as they are: the agent's
z, and random ReLUs of it. y = r + gamma (1 - terminated) sum_a pi(a|o') Q(o', a) is regressed on
again and again until the values stand still: no step size, no seed to choose, seconds on a CPU.
Values stay between the worst and the best logged return: a regression that feeds on its own
extrapolation could else leave every bound.
"""

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from gsf.core.errors import UserError
from gsf.core.logs import progress
from gsf.data.dataset import Dataset
from gsf.equations import expected_value, gvf_return, gvf_target
from gsf.gvf.td import usable_rows

Array = npt.NDArray[Any]
N_RELU = 256
MOST_ROWS = 100_000  # that are regressed on; more are drawn from
PRIOR_ROWS = 10_000  # an action with few rows is shrunk as if it had so many more
RIDGE = 1e-5  # of features of variance 1; the constant is free, or every round would shrink Q
ROUNDS = 500
STILL = 1e-4  # of the range of returns: a change of the mean value below which it is over


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
    frames, which = np.unique(np.concatenate(wanted), return_inverse=True)
    now, later, start = np.split(which, np.cumsum([len(x) for x in wanted])[:-1])
    x, pi = _widen(features[frames].astype(np.float32), rng), pi[frames].astype(np.float32)
    reward = np.asarray(dataset.reward, np.float64)[rows]
    end = np.asarray(dataset.terminated)[rows]
    bounds = np.searchsorted(dataset.action[rows], np.arange(dataset.n_actions + 1))
    blocks = [slice(*pair) for pair in itertools.pairwise(bounds)]
    logged = x[now]
    inverses = [_inverse(logged[block]) for block in blocks]
    value = np.zeros((len(at), pi.shape[2]))
    last = np.append(dataset.episode[1:] != dataset.episode[:-1], True)
    returns = gvf_return(np.asarray(dataset.reward, np.float64), gamma, last)
    lowest, highest = returns.min(), returns.max()
    still = STILL * max(highest - lowest, 1e-12)
    with progress("fitted Q", ROUNDS * pi.shape[2], "rounds at most") as advance:
        for d in range(pi.shape[2]):
            v, before = np.zeros(len(x)), np.inf
            for number in range(ROUNDS):
                y = gvf_target(reward, v[later], end, gamma).astype(np.float32)
                sums = (logged[block].T @ y[block] for block in blocks)
                w = np.stack([inverse @ b for inverse, b in zip(inverses, sums, strict=True)])
                q = np.clip(x @ w.T.astype(np.float32), lowest, highest)
                v = expected_value(q, pi[:, :, d]).astype(np.float64)
                mean = float(v[now].mean())
                advance(d * ROUNDS + number + 1, value=mean)
                if abs(mean - before) < still:
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
    wide: Array = np.concatenate([z, relu, np.ones((len(z), 1))], 1).astype(np.float32)
    return wide


def _inverse(x: Array) -> Array:
    """(X^T X + penalty)^-1 of the rows of an action, x [n,k] -> [k,k]."""
    gram = (x.T @ x).astype(np.float64)
    penalty = np.full(len(gram), RIDGE * (len(x) + PRIOR_ROWS))
    penalty[-1] = 1e-6  # the constant
    inverse: Array = np.linalg.inv(gram + np.diag(penalty))
    return inverse
