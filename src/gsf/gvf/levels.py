"""What a fit or labels ask of a dataset's levels: enough transitions, and none unknown."""

from pathlib import Path
from typing import Any

import numpy as np

from gsf.core.errors import UserError
from gsf.core.logs import console
from gsf.data.dataset import Dataset


def check_levels(dataset: Dataset, allow_small: bool, n_needed: int = 1) -> None:
    """Every declared level has `n_needed` transitions, or the user accepts those that have not."""
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


def check_known_levels(dataset: Dataset, gvf: Path, manifest: dict[str, Any]) -> None:
    unknown = [x for x in dataset.levels if x not in manifest["levels"]]
    if unknown:
        raise UserError(
            f"{dataset.path} has {dataset.n_levels} levels but {gvf} was fitted on "
            f"{len(manifest['levels'])} and knows no level {unknown[0]}; fit a GVF on this dataset."
        )
