"""What a fit and labels ask of a dataset: enough transitions of each level; to be made from it."""

from pathlib import Path
from typing import Any

import numpy as np

from gsf.core.errors import UserError
from gsf.core.logs import console
from gsf.core.stage import check_files
from gsf.data.dataset import Dataset


def check_levels(dataset: Dataset, allow_small: bool, n_needed: int = 1) -> None:
    """Every level has at least `n_needed` transitions, or the user allows smaller ones."""
    counts = np.bincount(dataset.level, minlength=dataset.n_levels)
    small = np.flatnonzero(counts < n_needed)
    if not len(small):
        return
    first = f"level {dataset.levels[small[0]]} has {counts[small[0]] or 'no'} transitions"
    others = f" (and {len(small) - 1} more levels like it)" if len(small) > 1 else ""
    if not allow_small:
        needed = f", fewer than the {n_needed} bins" if n_needed > 1 else ""
        raise UserError(
            f"{first} in {dataset.path}{needed}{others}; use more data or --allow-small-levels."
        )
    left_out = "they are" if others else "it is"
    console.print(f"[yellow]warning:[/] {first}{others}; {left_out} left out.", soft_wrap=True)


def check_made_from(dataset: Dataset, path: Path, manifest: dict[str, Any]) -> None:
    """Refuses a fit or labels that are damaged, or were made from another dataset."""
    check_known_levels(dataset, path, manifest)
    if manifest["inputs"]["dataset"] != dataset.digest:
        raise UserError(
            f"{path} was made from another dataset than {dataset.path}; make it again from this "
            "one, or name the one it was made from."
        )
    check_files(path, manifest)


def check_known_levels(dataset: Dataset, gvf: Path, manifest: dict[str, Any]) -> None:
    unknown = [x for x in dataset.levels if x not in manifest["levels"]]
    if unknown:
        raise UserError(
            f"{dataset.path} has {dataset.n_levels} levels but {gvf} was fitted on "
            f"{len(manifest['levels'])} and knows no level {unknown[0]}; fit a GVF on this dataset."
        )
