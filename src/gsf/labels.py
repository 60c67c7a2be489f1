"""Stage: GVF -> per-level quantile labels (paper: "Measuring distances between GVFs").

Out: label.npy int8 [n] or [n,d], 0..K-1, -1 where ignored; rank.npy float32, the rank within the
level, NaN where ignored; values.npy, and action_values.npy of a SARSA fit, for in-batch quantiles.
Also here: what the labels are worth, how to choose K (Theorem 1), visits per label (Theorem 2).
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
import tyro
from torch import Tensor

from gsf import gvf
from gsf.config import require_positive, to_json
from gsf.dataset import Dataset
from gsf.diagnostics import stability, time_left_correlation
from gsf.equations import (
    bin_edges,
    labels_from_edges,
    quantile_labels,
    suggest_bins,
    theorem1_terms,
    within_level_rank,
)
from gsf.runs import (
    UserError,
    atomic_directory,
    console,
    digest_file,
    read_manifest,
    write_manifest,
)

Array = npt.NDArray[Any]
KIND, FORMAT = "labels", 1
PLACES = frozenset({"gvf", "out", "dataset", "against", "suggest_bins", "epsilon"})
CANDIDATE_BINS = (2, 3, 4, 5, 7, 10, 15, 20, 30, 50)


@dataclass(frozen=True)
class LabelConfig:
    """Turn GVFs into labels: the bin of each value among the values of its own level."""

    gvf: tyro.conf.Positional[Path]
    """A fit (`gsf fit` makes it)."""
    out: Path
    """Directory of the labels to make."""
    n_bins: int = 7
    """K, the number of quantile bins."""
    quantiles: Literal["dataset", "batch"] = "dataset"
    """dataset: ranks among all transitions of the level. batch: training bins the values of each
    minibatch anew, the paper's Algorithm 2 to the letter."""
    allow_small_levels: bool = False
    """Give levels with fewer than n-bins transitions the label -1 instead of refusing them."""
    dataset: Path | None = None
    """Where the dataset is now, if it was moved after the fit."""
    against: Path | None = None
    """Another fit of the same dataset, e.g. of another seed: report how far the labels agree."""
    suggest_bins: bool = False
    """Also print Theorem 1's terms and a suggested K."""
    epsilon: float = 0.2
    """--suggest-bins: Theorem 1's epsilon, as a share of a level's range of values."""

    def __post_init__(self) -> None:
        require_positive(self, "epsilon")
        if self.n_bins < 2:
            raise UserError(f"--n-bins must be at least 2, got {self.n_bins}.")


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of a dataset, row by row; tensors are mapped from disk."""

    label: Tensor  # int8 or int64 [n] or [n,d], -1: ignored
    rank: Tensor  # float32 as label, NaN: ignored
    values: Tensor  # float32 as label, NaN: unknown
    action_values: Tensor | None  # float32 [n,A] of a SARSA fit
    n_bins: int
    quantiles: Literal["dataset", "batch"]
    cumulant: str

    @property
    def n_labels(self) -> int:
        """Labels per observation."""
        return self.label.shape[1] if self.label.ndim == 2 else 1


def load_labels(path: Path, dataset: Dataset) -> Labels:
    """The labels in `path`, refused unless they are of this very dataset."""
    manifest = read_manifest(path, KIND, FORMAT)
    gvf.check_known_levels(dataset, path, manifest)
    if manifest["inputs"]["dataset"] != dataset.digest:
        raise UserError(
            f"{path} holds labels of another dataset than {dataset.path}; run gsf fit and gsf "
            "label on this one."
        )
    arrays = {x: _mapped(path / f"{x}.npy", len(dataset)) for x in ("label", "rank", "values")}
    own_actions = path / "action_values.npy"
    return Labels(
        **arrays,
        action_values=_mapped(own_actions, len(dataset)) if own_actions.is_file() else None,
        n_bins=manifest["n_bins"],
        quantiles=manifest["config"]["quantiles"],
        cumulant=manifest["cumulant"],
    )


def _mapped(path: Path, n: int) -> Tensor:
    try:
        array = np.load(path, mmap_mode="c", allow_pickle=False)  # copy on write: torch wants it
    except (OSError, ValueError):
        raise UserError(f"{path} is missing or damaged; run gsf label again.") from None
    if len(array) != n:
        raise UserError(f"{path} has {len(array)} rows instead of {n}; run gsf label again.")
    return torch.from_numpy(array)


def batch_labels(values: Any, level: Any, n_bins: int) -> Any:
    """Labels by the quantiles of a minibatch: `quantiles="batch"`.  values [n] or [n,d] -> int64.

    -1 as ever where a level has fewer than two distinct known values, here in the batch.
    """
    label = quantile_labels(values, level, n_bins)  # only for its -1
    columns = values.reshape(len(values), -1).T
    for column, own in zip(columns, label.reshape(len(values), -1).T, strict=True):  # views
        for i in np.unique(level):
            at = (level == i) & (own >= 0)
            if at.any():
                own[at] = labels_from_edges(column[at], bin_edges(column[at], n_bins))
    return label


def label(config: LabelConfig) -> Path:
    manifest = read_manifest(config.gvf, gvf.KIND, gvf.FORMAT)
    dataset = Dataset.open(config.dataset or Path(manifest["config"]["dataset"]))
    inputs = {"dataset": dataset.digest, "gvf": manifest["digest"]}
    values = read_values(config.gvf, manifest, dataset)
    if not gvf.is_finished(config.out, KIND, FORMAT, config, inputs, PLACES):
        gvf.check_levels(dataset, config.allow_small_levels, config.n_bins)
        _write(config, dataset, manifest, values, inputs)
    else:
        console.print(f"{config.out} is there already.")
    _print_labels(config.out)
    if config.against:
        _print_stability(config, dataset, values)
    if config.suggest_bins:
        rng = np.random.default_rng(0)
        terms = choose_bins(values, dataset.level, CANDIDATE_BINS, config.epsilon, rng)
        print(bins_table(terms, config.epsilon))
    return config.out


def read_values(path: Path, manifest: dict[str, Any], dataset: Dataset) -> Array:
    """values.npy of a fit, refused unless it is of this very dataset."""
    gvf.check_known_levels(dataset, path, manifest)
    if manifest["inputs"]["dataset"] != dataset.digest:
        raise UserError(
            f"{path} was fitted on another dataset than {dataset.path}; fit it again or give the "
            "right one with --dataset."
        )
    if digest_file(path / "values.npy") != manifest["values"]:
        raise UserError(f"{path / 'values.npy'} is damaged; remove {path} and fit it again.")
    values: Array = np.load(path / "values.npy", allow_pickle=False)
    return values


def _write(
    config: LabelConfig,
    dataset: Dataset,
    fitted: dict[str, Any],
    values: Array,
    inputs: dict[str, str],
) -> None:
    found = quantile_labels(values, dataset.level, config.n_bins)
    rank = within_level_rank(values, dataset.level).astype(np.float32)
    small = np.bincount(dataset.level, minlength=dataset.n_levels) < config.n_bins
    found[small[dataset.level]], rank[small[dataset.level]] = -1, np.nan
    columns = found.reshape(len(found), -1)
    by_time = time_left_correlation(columns, dataset.rows_left)
    with atomic_directory(config.out) as out:
        dtype = np.int8 if config.n_bins < 128 else np.int64
        np.save(out / "label.npy", found.astype(dtype), allow_pickle=False)
        np.save(out / "rank.npy", rank, allow_pickle=False)
        for name in ("values.npy", "action_values.npy"):
            if (config.gvf / name).is_file():
                shutil.copyfile(config.gvf / name, out / name)
        write_manifest(
            out,
            KIND,
            FORMAT,
            config=to_json(config),
            inputs=inputs,
            cumulant=fitted["cumulant"],
            levels=dataset.levels,
            n=len(dataset),
            n_bins=config.n_bins,
            n_labels=columns.shape[1],
            files={x.name: digest_file(x) for x in sorted(out.glob("*.npy"))},
            histogram=np.bincount(columns[columns >= 0], minlength=config.n_bins).tolist(),
            share_ignored=float(np.mean(found < 0)),
            spearman_time_left=[None if np.isnan(x) else float(x) for x in by_time],
        )


def _print_labels(out: Path) -> None:
    manifest = read_manifest(out, KIND, FORMAT)
    each = f", {manifest['n_labels']} each" if manifest["n_labels"] > 1 else ""
    print(f"{out}: {manifest['cumulant']} labels of {manifest['n']:,} transitions{each}")
    print(histogram(manifest["histogram"]))
    known = [x for x in manifest["spearman_time_left"] if x is not None]
    by_time = f"{np.mean(known):+.3f}" if known else "n/a"
    print(f"ignored (-1)                    {manifest['share_ignored']:.1%}")
    print(f"Spearman with the time left     {by_time}")


def histogram(counts: Sequence[int], width: int = 40) -> str:
    """A bar per label, in eighths of a character."""
    total, most = max(sum(counts), 1), max(*counts, 1)
    lines = []
    for k, count in enumerate(counts):
        eighths = round(8 * width * count / most)
        bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
        lines.append(f"label {k:<3} {bar:<{width}} {count / total:6.1%}")
    return "\n".join(lines)


def _print_stability(config: LabelConfig, dataset: Dataset, values: Array) -> None:
    assert config.against is not None
    manifest = read_manifest(config.against, gvf.KIND, gvf.FORMAT)
    other = read_values(config.against, manifest, dataset)
    if other.shape != values.shape:
        raise UserError(f"{config.against} ranks another number of components; compare like fits.")
    one, two = (quantile_labels(x, dataset.level, config.n_bins) for x in (values, other))
    equal, kappa = stability(one, two, config.n_bins)
    shown = "n/a" if equal is None else f"{equal:.1%} equal"
    shown += "" if kappa is None else f", Cohen's kappa {kappa:.3f}"
    print(f"stability against {config.against}: {shown}")


def bins_table(terms: Mapping[int, Mapping[str, float]], epsilon: float) -> str:
    """What `choose_bins` found, as text: Theorem 1's terms and the criterion that does choose K."""
    best = min(terms, key=lambda k: terms[k]["width"] + terms[k]["flip"])
    lines = [
        f"K against Theorem 1 at epsilon = {epsilon:g} of a level's range, mean over levels:",
        "   K  estimation  p(n,K,eps)   bin width  P[flip]  width + flip",
    ]
    for k, x in terms.items():
        lines.append(
            f"{k:4d}  {x['estimation']:10.3f}  {x['p']:10.3f}  {x['width']:10.3f}  {x['flip']:7.3f}"
            f"  {x['width'] + x['flip']:12.3f}{'  <- suggested' if k == best else ''}"
        )
    return "\n".join(lines)


def choose_bins(
    values: Array,
    level: Array,
    candidates: Sequence[int],
    epsilon: float,
    rng: np.random.Generator,
    max_groups: int = 20,
    max_rows: int = 5_000,
) -> dict[int, dict[str, float]]:
    """Per K: Theorem 1's two terms (estimation, p) and the terms of `suggest_bins`.

    Means over a sample of the levels (and components), their values scaled to [0, 1].
    """
    groups = []
    for i in np.unique(level):
        for x in values[level == i].reshape(np.sum(level == i), -1).T:
            known = x[~np.isnan(x)]
            if len(known) > 1 and np.ptp(known) > 0:
                groups.append((known - known.min()) / np.ptp(known))
    if not groups:
        raise UserError("no level has two distinct values: there is nothing to bin.")
    rows: dict[int, list[dict[str, float]]] = {k: [] for k in candidates}
    for g in rng.permutation(len(groups))[:max_groups]:
        x = rng.permutation(groups[g])[:max_rows]
        if np.ptp(x) == 0:
            continue
        _, table = suggest_bins(x, candidates, rng)
        for k in candidates:
            bound = theorem1_terms(x, k, epsilon, rng, n_boot=50)
            rows[k].append({**table[k], "estimation": bound["estimation"], "p": bound["width"]})
    return {
        k: {name: float(np.mean([row[name] for row in found])) for name in found[0]}
        for k, found in rows.items()
    }


def visits_per_label(
    n_states: int, n_steps: int, gamma: float, n_bins: int, rng: np.random.Generator
) -> dict[str, Array]:
    """Theorem 2 on a chain: visits and label of each state, and mean visits per label.

    A walk that steps right with probability 1/4, left with 3/4, starts at the left end; G(o) is
    the successor representation of the counts, P~(o,o') = n(o,o') / (n(o) + 1), ranked by its L1
    norm. "visits" [S], "norm" [S], "label" [S], "mean_visits" [K] (NaN for an empty bin).
    """
    steps = np.where(rng.random(n_steps) < 0.25, 1, -1)
    counts = np.zeros((n_states, n_states))
    state = 0
    for step in steps:
        following = min(max(state + step, 0), n_states - 1)
        counts[state, following] += 1
        state = following
    visits = counts.sum(1)
    transition = counts / (visits + 1)[:, None]
    norm = np.linalg.inv(np.eye(n_states) - gamma * transition).sum(1)
    found = quantile_labels(norm, np.zeros(n_states, np.int64), n_bins)
    sizes = np.bincount(found[found >= 0], minlength=n_bins)
    sums = np.bincount(found[found >= 0], visits[found >= 0], minlength=n_bins)
    mean_visits = np.where(sizes > 0, sums / np.maximum(sizes, 1), np.nan)
    return {"visits": visits, "norm": norm, "label": found, "mean_visits": mean_visits}
