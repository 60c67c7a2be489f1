"""GSF: observations with the same quantile of future behaviour, in any level, get close embeddings.

The paper's "Self-supervised learning of GSFs" and Algorithm 2. In: z and the labels that `gsf label`
wrote, one per transition or one per component of the cumulant. `cce` classifies the label,
`infonce` contrasts pairs (appendix), `rank` needs no bins (the paper's first open question).
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gsf import equations
from gsf.dataset import Batch, Dataset
from gsf.losses import AuxiliaryLoss, Context, Info, Released, Spec
from gsf.nets import Z_DIM, Projection
from gsf.runs import UserError, read_manifest


class GSF(AuxiliaryLoss):
    name = "gsf"
    needs = frozenset({"labels"})
    released: ClassVar[Released] = Released(
        cql_alpha=1.0,
        config={"quantiles": "batch", "frequent_levels": 5, "label_action": "greedy"},
    )

    @dataclass(frozen=True)
    class Config:
        objective: Literal["cce", "infonce", "rank"] = "cce"
        """cce: classify the label; infonce: contrast pairs of labels; rank: contrast by rank."""
        tau: float = 0.5
        """Temperature of the softmax."""
        bandwidth: float = 0.1
        """rank: pairs weigh exp(-|difference of ranks| / bandwidth)."""
        quantiles: Literal["dataset", "batch"] = "dataset"
        """Bins of the whole dataset, or of each minibatch as in Algorithm 2."""
        batch_levels: int = 8
        """quantiles=batch: levels in a minibatch, few so that a level's bins mean something."""
        frequent_levels: int | None = None
        """quantiles=batch: draw from all levels, label only those most frequent in the batch."""
        label_action: Literal["logged", "greedy"] = "logged"
        """quantiles=batch: rank G at the logged action, or at the one the critic prefers."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        self.config, directory = config, spec.files["labels"]
        self.n_bins = int(read_manifest(directory, "labels", 1)["n_bins"])
        self.file = {"dataset": "label.npy", "batch": "values.npy"}[config.quantiles]
        if config.objective == "rank":
            self.file = "rank.npy"
        elif config.quantiles == "batch" and config.label_action == "greedy":
            self.file = "action_values.npy"
        if not (directory / self.file).is_file():
            raise UserError(f"{directory} has no {self.file}, which these options of gsf need.")
        self.column: npt.NDArray[Any] = np.load(directory / self.file, mmap_mode="r")
        per_row = self.column.ndim == 1 or self.file == "action_values.npy"
        self.n_components = 1 if per_row else self.column.shape[1]
        if config.quantiles == "batch" and config.frequent_levels is None:
            self.n_levels = config.batch_levels
        self.h = Projection(spec.z_dim, Z_DIM)
        if config.objective == "cce":
            self.w = nn.Linear(Z_DIM, self.n_components * self.n_bins, bias=False)

    def draw(self, dataset: Dataset, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        return {"column": torch.from_numpy(self.column[batch.index.numpy()])}

    def forward(self, context: Context) -> tuple[Tensor, Info]:
        h: Tensor = self.h(context.z)  # [n,256]
        if self.config.objective == "rank":
            u = context.drawn["column"].view(len(h), -1)  # [n,d]
            loss = _mean(
                equations.rank_contrast(h, x, self.config.tau, self.config.bandwidth) for x in u.T
            )
            return loss, {"ignored": u.isnan().float().mean()}
        label = self._label(context).view(len(h), -1)  # [n,d]
        ignored = (label < 0).float().mean()
        if self.config.objective == "infonce":
            loss = _mean(equations.contrastive_infonce(h, x, self.config.tau) for x in label.T)
            return loss, {"ignored": ignored}
        logits = self.w(h).view(len(h), self.n_components, self.n_bins)
        loss = equations.contrastive_cce(logits, label, self.config.tau)
        right = (logits.detach().argmax(2) == label).sum() / (label >= 0).sum().clamp(min=1)
        return loss, {"accuracy": right, "ignored": ignored}

    def _label(self, context: Context) -> Tensor:
        column = context.drawn["column"]
        if self.config.quantiles == "dataset":
            return column.long()
        if self.config.label_action == "greedy":
            column = column.gather(1, context.q.argmax(1, keepdim=True))
        level = context.batch.level.cpu().numpy()
        label = batch_labels(column.cpu().numpy(), level, self.n_bins, self.config.frequent_levels)
        return torch.from_numpy(label).to(context.z.device)


def batch_labels(
    values: npt.NDArray[Any], level: npt.NDArray[Any], n_bins: int, n_frequent: int | None = None
) -> npt.NDArray[np.int64]:
    """Algorithm 2's labels: bin edges of each level from the minibatch alone.

    values [n] or [n,d], NaN unknown -> int64, same shape; -1 where a level has fewer than two
    distinct values here, or is not among the `n_frequent` levels with most rows (ties: lower id).
    """
    columns = values.reshape(len(values), -1)
    label = np.full(columns.shape, -1, np.int64)
    present, counts = np.unique(level, return_counts=True)
    for i in present[np.argsort(-counts, kind="stable")][:n_frequent]:
        for j, column in enumerate(columns.T):
            rows = np.flatnonzero((level == i) & ~np.isnan(column))
            own = column[rows]
            if len(own) and own.min() < own.max():
                edges = equations.bin_edges(own, n_bins)
                label[rows, j] = equations.labels_from_edges(own, edges)
    return label.reshape(values.shape)


def _mean(losses: Any) -> Tensor:
    return torch.stack(list(losses)).mean()
