"""`gsf fit --compare`: which cumulant's labels are worth training on, before any agent is trained.

Per cumulant: the share of labels that are ignored, Spearman's correlation with the time left,
stability between two seeds, predictability on held-out levels, and their product (diagnostics.py).
Out: a table, best first, also as compare.csv and compare.json.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from gsf.core.files import refuse_links
from gsf.core.registry import Found
from gsf.core.sealed import write_json, write_table
from gsf.core.stage import read_manifest
from gsf.data.dataset import Dataset
from gsf.gvf import cumulants
from gsf.gvf.cumulants import Cumulant
from gsf.gvf.diagnostics import diagnose, table
from gsf.gvf.options import FitConfig
from gsf.gvf.training_labels import read_values
from gsf.gvf.trajectories import along_trajectories

Array = npt.NDArray[Any]
Fit = Callable[[FitConfig], Path]


def compare(dataset: Dataset, config: FitConfig, fit: Fit) -> Path:
    """`fit`: the stage, which makes one of the fits."""
    asked = [cumulants.find(x) for x in config.cumulants or cumulants.names()]
    refuse_links(config.out)
    rows = _whole_levels(dataset, config)
    found: list[dict[str, Any]] = []
    for one in asked:
        seeds = [config.seed, config.seed + 1]
        if config.estimator == "mc" and not one.value.random:
            seeds.pop()  # nothing in it depends on a seed: stability is n/a
        values = [
            _values(
                dataset, rows, one, dataclasses.replace(config, cumulant=one.spec, seed=seed), fit
            )
            for seed in seeds
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
        found.append({"cumulant": one.name, "estimator": config.estimator, **diagnosis.to_json()})
    found.sort(key=lambda row: -row["score"])
    write_json(config.out / "compare.json", {"cumulants": found})
    write_table(config.out / "compare.csv", pd.DataFrame(found))
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


def _values(
    dataset: Dataset, rows: Array, one: Found[Cumulant], config: FitConfig, fit: Fit
) -> Array:
    """What is ranked, for the given rows; a td fit stays on disk and is not made twice."""
    if config.estimator == "td":
        out = config.out / f"{one.name}-seed{config.seed}"
        fit(dataclasses.replace(config, compare=False, out=out, diagnose=False))
        return read_values(out, read_manifest(out, "gvf"), dataset)[rows]
    c = cumulants.evaluate(one.value, dataset, rows, config.seed, config.device)
    value = along_trajectories(dataset, one, c, rows, config)
    return cumulants.ranked(value, config.rank or one.value.rank, dataset.action[rows])
