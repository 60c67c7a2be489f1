"""Nearest neighbours from other levels under an embedding, and how they agree.

The paper's claim, made visible: observations that GSF brings together have the same value quantile
in their own levels. `agree` is that share among the k nearest; chance is that of any observation of
another level. Torch is loaded by what needs it: reports load without.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsf.core.errors import UserError
from gsf.core.results import Stage
from gsf.data.dataset import Dataset
from gsf.evaluation.intervals import mean_over_levels

PIXELS = "pixels"  # in place of a method: distances between the images themselves
N_BINS = 7  # where there are no labels to say it
GAMMA = 0.99
Array = NDArray[Any]


@dataclass(frozen=True)
class Sample:
    """Observations with a known value quantile, of one dataset."""

    obs: NDArray[np.uint8]  # [n,H,W,C]
    level: NDArray[np.int64]  # [n]
    label: NDArray[np.int64]  # [n], 0..n_bins-1
    returns: NDArray[np.str_]  # [n], of the episodes they are from
    names: list[str]  # of the levels
    n_bins: int
    chance: float  # that an observation of another level has the same label


def draw_sample(dataset: Stage, labels: Stage | None, n: int) -> Sample:
    """Rows drawn evenly over the dataset among those with a label."""
    data = Dataset.open(dataset.path)
    label, n_bins = _labels(data, labels)
    known = np.flatnonzero(label >= 0)
    if len(np.unique(data.level[known])) < 2:
        raise UserError(f"{dataset.path} has no two levels with value quantiles to compare.")
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(known, min(n, len(known)), replace=False))
    level, label = data.level[rows].astype(np.int64), label[rows]
    obs = np.take(data.obs, data.frame[rows], axis=0)
    names = [str(x) for x in data.levels]
    return Sample(obs, level, label, _returns(data, rows), names, n_bins, _chance(level, label))


def _labels(data: Dataset, labels: Stage | None) -> tuple[NDArray[np.int64], int]:
    """The reward labels of training if there are any, else labels of the logged return."""
    if labels is not None:
        from gsf.gvf.training_labels import load_labels

        found = load_labels(labels.path, data)
        if found.label.ndim == 1:
            return found.label.numpy().astype(np.int64), found.n_bins
    from gsf.equations import quantile_labels
    from gsf.gvf.monte_carlo import monte_carlo

    value = monte_carlo(data.reward[:, None], data.episode, data.terminated, GAMMA)[:, 0]
    return quantile_labels(value, data.level, N_BINS), N_BINS


def _returns(data: Dataset, rows: Array) -> NDArray[np.str_]:
    """Return of each row's episode; "2.5+" where its start or end is not in the data."""
    starts = np.flatnonzero(np.diff(data.episode, prepend=data.episode[0] - 1))
    stops = np.append(starts[1:], len(data.episode)) - 1
    totals = np.add.reduceat(data.reward, starts, dtype=np.float64)
    whole = (data.t[starts] == 0) & (data.terminated | data.truncated)[stops]
    at = np.searchsorted(starts, rows, side="right") - 1
    return np.array([f"{totals[i]:.4g}{'' if whole[i] else '+'}" for i in at])


def _chance(level: Array, label: Array) -> float:
    """Mean over observations of the share of other levels' observations with their label."""
    table = np.zeros((level.max() + 1, label.max() + 1))
    np.add.at(table, (level, label), 1)
    elsewhere = table.sum(0) - table  # [levels, labels]
    return float((elsewhere / elsewhere.sum(1, keepdims=True))[level, label].mean())


def embed(run: Stage, dataset: Stage, obs: NDArray[np.uint8]) -> Array:
    """z of the run's latest checkpoint, float32 [n,256]."""
    from gsf.learn.agent import load_agent

    if run.inputs.get("dataset") != dataset.digest:
        raise UserError("it was trained on another dataset than the other methods")
    z: Array = load_agent(run.path).embed(obs)
    return z


def flat_pixels(obs: NDArray[np.uint8]) -> Array:
    flat: Array = obs.reshape(len(obs), -1).astype(np.float32) / 255
    flat -= flat.mean(0)
    return flat


def similarity(z: Array, level: Array) -> Array:
    """Cosine of every pair [n,n], -inf inside a level."""
    if not np.isfinite(z).all():
        raise UserError("its embedding is not finite")
    unit = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
    cosine: Array = unit @ unit.T
    cosine[level[:, None] == level] = -np.inf
    return cosine


def nearest(similar: Array, k: int) -> NDArray[np.int64]:
    """[q, n] -> columns of the k most similar, best first, [q, k]; the earlier of equals."""
    return np.argsort(-similar, axis=1, kind="stable")[:, :k]


def agree(similar: Array, sample: Sample, k: int) -> dict[str, float]:
    """Share of the k nearest with the query's label."""
    same = (sample.label[nearest(similar, k)] == sample.label[:, None]).mean(1)
    return mean_over_levels(same, sample.level)
