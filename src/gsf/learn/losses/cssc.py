"""CSSC: observations followed by the same K actions attract each other, in any level.

Liu et al. (2020), "Cross-State Self-Constraint for Feature Generalization in Deep RL".
    L = -E_i mean_{p in P(i)} log( e^{cos(z_i, z_p) / tau} / sum_{j != i} e^{cos(z_i, z_j) / tau} )
P(i) = the other rows with the actions a_t .. a_{t+K-1} of row i; i without any is left out, and so
is a row whose episode ends before it has K actions, as anchor, positive and negative.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from gsf.core.options import Temperature, between
from gsf.data.dataset import Batch, Dataset
from gsf.learn.losses import AuxiliaryLoss, Context, Info, Spec
from gsf.nets.heads import WIDTH, Projection

MASKED = -1e9  # not -inf: a row without any pair would have a NaN gradient


def action_classes(
    dataset: Dataset, index: npt.NDArray[np.int64], n_actions_ahead: int
) -> npt.NDArray[np.int64]:
    """The same number for rows with the same next actions; -1 where the episode ends too early."""
    known = np.flatnonzero(dataset.rows_left[index] >= n_actions_ahead)
    ahead = dataset.action[index[known, None] + np.arange(n_actions_ahead)]  # [n',K]
    label = np.full(len(index), -1, np.int64)
    label[known] = np.unique(ahead, axis=0, return_inverse=True)[1].ravel()
    return label


def same_class_contrast(embedding: Tensor, label: Tensor, tau: float) -> tuple[Tensor, Tensor]:
    """The loss above, and the share of rows that are anchors.  [n,x], [n] (-1 ignored)."""
    unit = normalize(embedding, dim=1)
    other = ~torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    pair = other & (label >= 0) & (label >= 0)[:, None]
    positive = pair & (label == label[:, None])
    n_positive = positive.sum(1)
    is_anchor = n_positive > 0
    logits = (unit @ unit.T / tau).masked_fill(~pair, MASKED)
    log_p = torch.where(positive, logits - logits.logsumexp(1, keepdim=True), 0)
    per_row = -log_p.sum(1) / n_positive.clamp(min=1)
    return per_row.sum() / is_anchor.sum().clamp(min=1), is_anchor.float().mean()


class CSSC(AuxiliaryLoss):
    name = "cssc"
    colour = "#4d114b"

    @dataclass(frozen=True)
    class Config(AuxiliaryLoss.Config):
        n_actions_ahead: Annotated[int, between(1, 1000)] = 2
        """K: actions that have to agree, the observation's own first."""
        tau: Temperature = 0.5
        """Temperature of the softmax."""
        head: bool = False
        """Compare FC256-ReLU-FC256 of z, as PSE and GSF do, instead of z itself."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        self.config = config
        self.h: nn.Module = Projection(spec.z_dim, WIDTH) if config.head else nn.Identity()

    def draw(self, dataset: Dataset, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        label = action_classes(dataset, batch.index.numpy(), self.config.n_actions_ahead)
        return {"label": torch.from_numpy(label)}

    def forward(self, context: Context) -> tuple[Tensor, Info]:
        label = context.drawn["label"]
        loss, anchors = same_class_contrast(self.h(context.z), label, self.config.tau)
        return loss, {"anchors": anchors, "ignored": (label < 0).float().mean()}
