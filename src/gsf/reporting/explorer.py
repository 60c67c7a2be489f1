"""Nearest neighbours from other levels under every method's embedding, and how they agree.

The paper's claim, made visible: observations that GSF brings together have the same value quantile
in their own levels. `agreement` is that share among the k nearest; chance is that of any
observation of another level. Only ids of neighbours go into the page. Torch is imported late.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsf.core.errors import UserError
from gsf.reporting import pictures
from gsf.reporting.plots import colour
from gsf.reporting.returns import in_order
from gsf.reporting.sources import Sources, Stage

PIXELS = "pixels"  # a reference that learns nothing: distance of the images themselves
COLUMNS = 32
N_BINS = 7  # where there are no labels to say it
GAMMA = 0.99
_BROKEN = (UserError, KeyError, TypeError, ValueError, RuntimeError, OSError)
Array = NDArray[Any]


@dataclass(frozen=True)
class Sample:
    """Observations with a known value quantile, of one dataset."""

    obs: NDArray[np.uint8]  # [n,H,W,C]
    level: NDArray[np.int64]  # [n]
    label: NDArray[np.int64]  # [n], 0..n_bins-1
    returns: list[str]  # of the episodes they are from
    names: list[str]  # of the levels
    n_bins: int
    chance: float  # that an observation of another level has the same label


@dataclass(frozen=True)
class Explored:
    """One game: what the page's script shows, and rows for the table."""

    data: dict[str, Any]
    agreement: list[dict[str, Any]]  # game, method, value, low, high, chance, k, seed
    problems: list[str]


def explore(
    game: str,
    runs: Sequence[Stage],
    sources: Sources,
    *,
    n_sample: int,
    n_queries: int,
    k: int,
    limit: int,
    advance: Callable[[], None] = lambda: None,
) -> Explored:
    """`runs`: one per method. `limit`: bytes that the pictures may take."""
    dataset = sources.dataset_of(runs[0])
    if dataset is None:
        raise UserError(f"the dataset of {game} is not there any more: no neighbours of {game}.")
    sample = draw_sample(dataset, sources.labels_of(dataset, "reward"), n_sample)
    queries = spread(sample.level, n_queries)
    pool = _pool(len(sample.level), queries, len(runs) + 1, k, limit)
    k = min(k, _elsewhere(sample.level[pool]))
    agreement: list[dict[str, Any]] = []
    neighbours: dict[str, Array] = {}
    problems: list[str] = []

    def add(method: str, z: Array) -> None:
        similar = similarity(z, sample.level)
        neighbours[method] = pool[nearest(similar[queries][:, pool], k)]
        facts = {"chance": sample.chance, "k": k, "n": len(sample.level)}
        agreement.append({"game": game, "method": method, **agree(similar, sample, k), **facts})

    by_method = {str(run.manifest["method"]): run for run in runs}
    for run in (by_method[method] for method in in_order(by_method)):
        try:
            add(str(run.manifest["method"]), embed(run, dataset, sample.obs))
        except _BROKEN as error:
            problems.append(f"{run.path}: no neighbours under its embedding ({_said(error)}).")
        advance()
    if not neighbours:
        raise UserError(f"no run of {game} has a checkpoint to embed observations with.")
    add(PIXELS, flat_pixels(sample.obs))
    data = _for_page(game, sample, queries, neighbours, limit)
    for shown, row in zip(data["methods"], agreement, strict=True):
        shown["agreement"] = round(row["value"], 4)
    data["about"] = (
        f"{len(queries)} observations of {game}'s training data; their {k} nearest (cosine) from "
        f"other levels among {len(pool):,} of {len(np.unique(sample.level[pool]))} levels. "
        "Choose one."
    )
    return Explored(data, agreement, problems)


def _elsewhere(level: Array) -> int:
    """Observations that every level has in other levels, at least."""
    return len(level) - int(np.bincount(level).max())


def _said(error: Exception) -> str:
    return str(error).rstrip(".") if isinstance(error, UserError) else type(error).__name__


def draw_sample(dataset: Stage, labels: Stage | None, n: int) -> Sample:
    """Rows drawn evenly over the dataset among those with a label."""
    from gsf.data.dataset import Dataset

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


def _labels(data: Any, labels: Stage | None) -> tuple[NDArray[np.int64], int]:
    """Reward labels as they were trained on, else those of the logged return."""
    if labels is not None:
        from gsf.gvf.labels import load_labels

        found = load_labels(labels.path, data)
        if found.label.ndim == 1:
            return found.label.numpy().astype(np.int64), found.n_bins
    from gsf.equations import quantile_labels
    from gsf.gvf.monte_carlo import monte_carlo

    value = monte_carlo(data.reward[:, None], data.episode, data.terminated, GAMMA)[:, 0]
    return quantile_labels(value, data.level, N_BINS), N_BINS


def _returns(data: Any, rows: Array) -> list[str]:
    """Return of each row's episode; "2.5+" where its start or end is not in the data."""
    starts = np.flatnonzero(np.diff(data.episode, prepend=data.episode[0] - 1))
    stops = np.append(starts[1:], len(data.episode)) - 1
    totals = np.add.reduceat(data.reward, starts, dtype=np.float64)
    whole = (data.t[starts] == 0) & (data.terminated | data.truncated)[stops]
    at = np.searchsorted(starts, rows, side="right") - 1
    return [f"{totals[i]:.4g}{'' if whole[i] else '+'}" for i in at]


def _chance(level: Array, label: Array) -> float:
    """Mean over observations of the share of other levels' observations with their label."""
    table = np.zeros((level.max() + 1, label.max() + 1))
    np.add.at(table, (level, label), 1)
    elsewhere = table.sum(0) - table  # [levels, labels]
    return float((elsewhere / elsewhere.sum(1, keepdims=True))[level, label].mean())


def embed(run: Stage, dataset: Stage, obs: NDArray[np.uint8]) -> Array:
    """z of the run's latest checkpoint, float32 [n,256]."""
    from gsf.learn.agent import load_agent

    if run.inputs.get("dataset") != dataset.manifest["digest"]:
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


def mean_over_levels(x: Array, level: Array) -> dict[str, float]:
    """Mean of x [n] with a 95 % interval from a bootstrap over levels."""
    levels, place = np.unique(level, return_inverse=True)
    total = np.bincount(place, x, len(levels))
    count = np.bincount(place, minlength=len(levels))
    rng = np.random.default_rng(0)
    weight = rng.multinomial(len(levels), np.full(len(levels), 1 / len(levels)), size=2000)
    low, high = np.quantile((weight @ total) / (weight @ count), [0.025, 0.975])
    return {"value": float(np.mean(x)), "low": float(low), "high": float(high)}


def spread(level: Array, n: int) -> NDArray[np.int64]:
    """n places: one of every level, then a second of every level... in an order of no meaning."""
    order = np.random.default_rng(1).permutation(len(level))
    turn = np.zeros(len(level), np.int64)
    seen: dict[int, int] = {}
    for i in order:
        turn[i] = seen[level[i]] = seen.get(level[i], -1) + 1
    return order[np.argsort(turn[order], kind="stable")][:n]


def _pool(n: int, queries: Array, n_methods: int, k: int, limit: int) -> NDArray[np.int64]:
    """Who may be shown as a neighbour: all, or as many as pictures of them fit."""
    fit = limit // pictures.BYTES
    if len(queries) * (1 + n_methods * k) <= fit or n <= fit:
        return np.arange(n)
    chosen = np.random.default_rng(2).choice(n, max(fit - len(queries), 4 * k), replace=False)
    return np.sort(chosen)


def _for_page(
    game: str, sample: Sample, queries: Array, neighbours: Mapping[str, Array], limit: int
) -> dict[str, Any]:
    """Pictures of those that are shown, and ids among these."""
    shown = np.unique(np.concatenate([queries, *(x.ravel() for x in neighbours.values())]))
    items = [
        [sample.names[sample.level[i]], int(sample.label[i]), sample.returns[i]] for i in shown
    ]
    return {
        "game": game,
        "bins": sample.n_bins,
        "columns": COLUMNS,
        "sprite": base64.b64encode(pictures.sheet(sample.obs[shown], COLUMNS, limit)).decode(),
        "items": items,
        "queries": np.searchsorted(shown, queries).tolist(),
        "methods": [
            {
                "name": method,
                "colour": "#777777" if method == PIXELS else colour(method),
                "neighbours": np.searchsorted(shown, found).tolist(),
            }
            for method, found in neighbours.items()
        ],
    }
