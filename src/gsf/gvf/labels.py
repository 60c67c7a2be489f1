"""Labels on disk, as training reads them (`gsf label` writes them), and in-batch quantiles."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gsf.core.errors import UserError
from gsf.core.stage import read_manifest
from gsf.data.dataset import Dataset
from gsf.equations import (
    bin_edges,
    labels_from_edges,
    quantile_labels,
)
from gsf.gvf.levels import check_known_levels

Array = npt.NDArray[Any]


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
    """The labels in `path`, refused unless they are of this very dataset.

    load_labels(Path("labels"), Dataset.open("dataset")).label[:10]
    """
    manifest = read_manifest(path, "labels")
    check_known_levels(dataset, path, manifest)
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
