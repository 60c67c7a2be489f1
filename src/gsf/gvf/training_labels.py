"""Labels as training has them: read from disk, or by the quantiles of each batch."""

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
from gsf.equations import bin_edges, labels_from_edges, quantile_labels
from gsf.gvf.levels import check_made_from

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
    check_made_from(dataset, path, manifest)
    n, n_bins, dtypes = len(dataset), manifest["n_bins"], {"label": np.signedinteger}
    arrays = {
        name.removesuffix(".npy"): read_array(path / name, dtypes.get(name[:5], np.floating), n)
        for name in ("label.npy", "rank.npy", "values.npy", "action_values.npy")
        if name in manifest["files"]
    }
    label = arrays.get("label", np.empty(0))
    if not {"label", "rank", "values"} <= set(arrays) or arrays["rank"].shape != label.shape:
        raise UserError(f"{path} lacks label, rank or values of its rows; run gsf label again.")
    if label.min() < -1 or label.max() >= n_bins:
        raise UserError(f"{path} has labels outside -1..{n_bins - 1}; run gsf label again.")
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return Labels(
        **{"action_values": None, **tensors},  # type: ignore[arg-type]
        n_bins=n_bins,
        quantiles=manifest["config"]["quantiles"],
        cumulant=manifest["cumulant"],
    )


def read_values(path: Path, manifest: dict[str, Any], dataset: Dataset) -> Array:
    """values.npy of a fit, refused unless it is of this very dataset."""
    check_made_from(dataset, path, manifest)
    return read_array(path / "values.npy", np.float32, len(dataset))


def read_array(path: Path, dtype: Any, n: int) -> Array:
    """n rows of such numbers, mapped from disk."""
    try:
        array: Array = np.load(path, mmap_mode="c", allow_pickle=False)  # torch wants to write
    except Exception:  # numpy reads the header as Python, which breaks in many ways
        raise UserError(f"{path} is missing or no array; make {path.parent} again.") from None
    if array.ndim not in (1, 2) or len(array) != n or not np.issubdtype(array.dtype, dtype):
        raise UserError(
            f"{path} has {array.dtype} {array.shape} instead of {n} rows of "
            f"{dtype.__name__}; make {path.parent} again."
        )
    return array


def batch_labels(values: Any, level: Any, n_bins: int) -> Any:
    """Labels by the quantiles of a minibatch: `quantiles="batch"`.  values [n] or [n,d] -> int64.

    -1 where a level has fewer than two distinct known values in the batch.
    """
    label = quantile_labels(values, level, n_bins)  # for its -1 alone; the rest is overwritten
    columns = values.reshape(len(values), -1).T
    for column, own in zip(columns, label.reshape(len(values), -1).T, strict=True):
        for i in np.unique(level):
            at = (level == i) & (own >= 0)
            if at.any():
                own[at] = labels_from_edges(column[at], bin_edges(column[at], n_bins))
    return label
