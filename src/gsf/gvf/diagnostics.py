"""What can be known of labels before any agent is trained (the paper's second open question).

Four numbers: do a network's values follow the logged future, does a label say more than the time
left in the episode, is it the same for another seed, and can it be told from the image on levels
never seen. `gsf fit` and `gsf label` report them; `gsf fit --compare` ranks cumulants by the last
three.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy import stats

from gsf.data.dataset import Dataset
from gsf.equations import quantile_labels
from gsf.gvf.cumulants import CHUNK_ROWS
from gsf.nets.probe import fit_probe
from gsf.nets.random_features import random_features

Array = npt.NDArray[Any]
PROBE_ROWS = 20_000
WEAK = 0.1  # the rank correlation below which values hardly follow the logged future
PROBE_SEED = 1_000_003  # another one than that of the `successor` cumulant's features


@dataclass(frozen=True)
class Diagnosis:
    """Numbers of one set of labels; None where a number does not exist."""

    n_labels: int
    """Labels per observation (components of the cumulant ranked on their own)."""
    ignored: float
    """Share of labels that are -1."""
    time_left: float | None
    """Spearman's correlation with the time left in the episode, mean over components."""
    time_left_abs: float | None
    """The mean of its absolute value."""
    accuracy: float | None
    """Of a linear probe on fixed random features, on levels that it was not trained on."""
    chance: float | None
    """Accuracy there of always answering the training levels' most frequent label."""
    agreement: float | None = None
    """Share of equal labels between two seeds."""
    kappa: float | None = None
    """Cohen's kappa of the same: 0 by chance, 1 if equal."""
    follows: float | None = None
    """Of a network's values: `level_correlation` with the logged future."""

    @property
    def skill(self) -> float | None:
        """How far the probe gets from chance (0) to certainty (1)."""
        if self.accuracy is None or self.chance is None or self.chance >= 1:
            return None
        return (self.accuracy - self.chance) / (1 - self.chance)

    @property
    def score(self) -> float:
        """skill x kappa x (1 - |time left|): a label that fails in one of the three is of no use.

        Labels that are the same for every seed have no kappa, which then counts as 1.
        """
        kappa = 1.0 if self.kappa is None else self.kappa
        beyond_time = 1 - (self.time_left_abs or 0.0)
        return max(self.skill or 0.0, 0.0) * max(kappa, 0.0) * beyond_time

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "skill": self.skill, "score": self.score}


def diagnose(
    dataset: Dataset,
    rows: Array,
    values: Array,
    n_bins: int,
    rng: np.random.Generator,
    second: Array | None = None,
    logged: Array | None = None,
    device: str = "cpu",
) -> Diagnosis:
    """values [n] or [n,d] of the given rows; `second`: the same from another seed; `logged`: the
    same from the logged future, NaN where it is not known."""
    level = dataset.level[rows]
    label = quantile_labels(values, level, n_bins).reshape(len(rows), -1)
    correlations = time_left_correlation(label, dataset.rows_left[rows])
    accuracy, chance = predictability(dataset, rows, label, n_bins, rng, device)
    agreement, kappa = None, None
    if second is not None:
        other = quantile_labels(second, level, n_bins).reshape(len(rows), -1)
        agreement, kappa = stability(label, other, n_bins)
    known = correlations[~np.isnan(correlations)]
    return Diagnosis(
        n_labels=label.shape[1],
        ignored=float(np.mean(label < 0)),
        time_left=float(known.mean()) if len(known) else None,
        time_left_abs=float(np.abs(known).mean()) if len(known) else None,
        accuracy=accuracy,
        chance=chance,
        agreement=agreement,
        kappa=kappa,
        follows=None if logged is None else level_correlation(values, logged, level),
    )


def level_correlation(a: Array, b: Array, level: Array) -> float | None:
    """Spearman within each level and component where b varies, a constant a counting as 0: the
    median; None if b varies nowhere.  a, b [n] or [n,d], b NaN where it is not known."""
    a, b = a.reshape(len(level), -1), b.reshape(len(level), -1)
    found = []
    for one in np.unique(level):
        for x, y in zip(a[level == one].T, b[level == one].T, strict=True):
            known = ~np.isnan(x) & ~np.isnan(y)
            if known.any() and np.ptp(y[known]) > 0:
                found.append(np.nan_to_num(spearman(x[known], y[known])))
    return float(np.median(found)) if found else None


def weakness(fit: Path, manifest: Mapping[str, Any]) -> str | None:
    """A warning, if a fit's values hardly follow the logged future."""
    follows = manifest.get("diagnosis", {}).get("follows")
    if follows is None or follows >= WEAK:
        return None
    return (
        f"{fit}: the network's values hardly follow the logged future of {manifest['cumulant']} "
        f"(rank correlation {follows:.2f} in the median level), so labels made of them are mostly "
        "noise. Try more --grad-steps or --n-steps, another --lr, or --estimator mc."
    )


def spearman(a: Array, b: Array) -> float:
    """Correlation of middle ranks; NaN where one of them is constant.  [n], [n] -> scalar."""
    if len(a) == 0 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(stats.spearmanr(a, b).statistic)


def time_left_correlation(label: Array, rows_left: Array) -> Array:
    """Spearman per component over the rows with a label.  label [n,d] -> [d]."""
    return np.array([spearman(x[x >= 0], rows_left[x >= 0]) for x in label.T])


def stability(label_1: Array, label_2: Array, n_bins: int) -> tuple[float | None, float | None]:
    """Share of equal labels and Cohen's kappa where both have one, over all components."""
    both = (label_1 >= 0) & (label_2 >= 0)
    a, b = label_1[both], label_2[both]
    if not len(a):
        return None, None
    equal = float(np.mean(a == b))
    p, q = (np.bincount(x, minlength=n_bins) / len(x) for x in (a, b))
    by_chance = float(p @ q)
    return equal, (equal - by_chance) / (1 - by_chance) if by_chance < 1 else None


def predictability(
    dataset: Dataset,
    rows: Array,
    label: Array,
    n_bins: int,
    rng: np.random.Generator,
    device: str = "cpu",
) -> tuple[float | None, float | None]:
    """(accuracy, chance) of a linear probe trained on 80 % of the levels, on the other 20 %.

    label [n,d] of the given rows, of which at most PROBE_ROWS are looked at. (None, None) if
    fewer than two levels have labels.
    """
    labelled = np.flatnonzero((label >= 0).any(1))
    chosen = np.sort(rng.permutation(labelled)[:PROBE_ROWS])
    level, label = dataset.level[rows[chosen]], label[chosen]
    present = rng.permutation(np.unique(level))
    if len(present) < 2:
        return None, None
    held_out = np.isin(level, present[: max(1, len(present) // 5)])
    parts = [rows[chosen][at : at + CHUNK_ROWS] for at in range(0, len(chosen), CHUNK_ROWS)]
    z = np.concatenate(
        [random_features(dataset.observations(x), PROBE_SEED, device).numpy() for x in parts]
    )
    scores = [_probe(z, column, held_out, n_bins) for column in label.T]
    pairs = [pair for pair in scores if pair is not None]
    if not pairs:
        return None, None
    accuracy, chance = np.mean(pairs, axis=0)
    return float(accuracy), float(chance)


def _probe(z: Array, label: Array, held_out: Array, n_bins: int) -> tuple[float, float] | None:
    train, test = ~held_out & (label >= 0), held_out & (label >= 0)
    if not train.any() or not test.any():
        return None
    guess = fit_probe(z[train], label[train], n_bins)(torch.from_numpy(z[test])).numpy()
    usual = np.bincount(label[train]).argmax()
    return float(np.mean(guess == label[test])), float(np.mean(label[test] == usual))


def table(rows: list[dict[str, Any]]) -> str:
    """Diagnoses as a table to print. rows: of `Diagnosis.to_json`, each with its cumulant."""
    names = {
        "cumulant": "cumulant",
        "n_labels": "labels",
        "ignored": "ignored",
        "follows": "follows mc",
        "time_left": "time left",
        "kappa": "stability",
        "accuracy": "accuracy",
        "chance": "chance",
        "skill": "skill",
        "score": "score",
    }
    shown = [{names[k]: np.nan if row[k] is None else row[k] for k in names} for row in rows]
    frame = pd.DataFrame(shown)
    text: str = frame.to_string(index=False, float_format="{:.3f}".format, na_rep="n/a")
    return text
