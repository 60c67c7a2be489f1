"""`gsf fit --compare`: which cumulant's labels are worth training on, before any agent is trained.

Per cumulant: the share of labels that are ignored, Spearman's correlation with the time left,
stability between two seeds, predictability on held-out levels, and their product (diagnostics.py).
Out: a table, best first, also as compare.csv and compare.json.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from gsf.core.files import write_atomic
from gsf.data.dataset import Dataset
from gsf.gvf import cumulants
from gsf.gvf.diagnostics import diagnose, table
from gsf.gvf.fit import FitConfig, along_trajectories, fit

Array = npt.NDArray[Any]


def compare(dataset: Dataset, config: FitConfig) -> Path:
    rows = _whole_levels(dataset, config)
    found: list[dict[str, Any]] = []
    for name in config.cumulants:
        cumulant = cumulants.find(name)
        seeds = [config.seed, config.seed + 1]
        if config.estimator == "mc" and not cumulant.random:
            seeds.pop()  # nothing in it depends on a seed: stability is n/a
        values = [
            _values(dataset, rows, name, dataclasses.replace(config, seed=seed)) for seed in seeds
        ]
        diagnosis = diagnose(
            dataset,
            rows,
            values[0],
            config.n_bins,
            np.random.default_rng(config.seed),
            second=values[1] if len(values) > 1 else None,
            device=config.device,
        )
        found.append({"cumulant": name, "estimator": config.estimator, **diagnosis.to_json()})
    found.sort(key=lambda row: -row["score"])
    write_atomic(config.out / "compare.json", json.dumps(found, indent=1) + "\n")
    write_atomic(config.out / "compare.csv", pd.DataFrame(found).to_csv(index=False))
    print(table(found))
    print(f"{len(rows):,} transitions; best first; also in {config.out / 'compare.csv'}")
    return config.out


def _whole_levels(dataset: Dataset, config: FitConfig) -> Array:
    """Rows of randomly drawn levels, at least `compare_rows` if there are so many."""
    if config.estimator == "td" or len(dataset) <= config.compare_rows:
        return np.arange(len(dataset))
    counts = np.bincount(dataset.level, minlength=dataset.n_levels)
    order = np.random.default_rng(config.seed).permutation(dataset.n_levels)
    n_levels = int(np.searchsorted(np.cumsum(counts[order]), config.compare_rows)) + 1
    return np.flatnonzero(np.isin(dataset.level, order[:n_levels]))


def _values(dataset: Dataset, rows: Array, name: str, config: FitConfig) -> Array:
    """What is ranked, for the given rows; a td fit stays on disk and is not made twice."""
    cumulant = cumulants.find(name)
    if config.estimator == "td":
        out = config.out / f"{cumulant.name}-seed{config.seed}"
        fit(dataclasses.replace(config, compare=False, cumulant=name, out=out, diagnose=False))
        values: Array = np.load(out / "values.npy", allow_pickle=False)[rows]
        return values
    c = cumulants.evaluate(cumulant, dataset, rows, config.seed, config.device)
    value = along_trajectories(dataset, cumulant, c, rows, config)
    return cumulants.ranked(value, config.rank or cumulant.rank, dataset.action[rows])
