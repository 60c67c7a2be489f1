"""GSF: observations with the same quantile of future behaviour, in any level, become neighbours.

The paper's "Self-supervised learning of GSFs" and Algorithm 2. In: z and what `gsf label` wrote,
one label per transition or one per component of the cumulant. `cce` classifies the label,
`infonce` contrasts pairs (appendix), `rank` needs no bins (the paper's first open question).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from gsf.core.errors import UserError
from gsf.core.options import Count, Temperature, above
from gsf.data.dataset import Batch, Dataset
from gsf.equations import contrastive_cce, contrastive_infonce, rank_contrast
from gsf.gvf.training_labels import batch_labels
from gsf.learn.losses import AuxiliaryLoss, Context, Info, Released, Spec
from gsf.nets.heads import WIDTH, Projection


class GSF(AuxiliaryLoss):
    name = "gsf"
    colour: ClassVar = {"reward": "#d55e00", "successor": "#513a12", "action": "#a14056"}
    needs = ("labels",)
    released: ClassVar[Released] = Released(
        base={"cql": {"alpha": 1.0}},
        config={"quantiles": "batch", "frequent_levels": 5, "label_action": "greedy"},
    )

    @dataclass(frozen=True)
    class Config(AuxiliaryLoss.Config):
        objective: Literal["cce", "infonce", "rank"] = "cce"
        """cce: classify the label; infonce: contrast pairs of labels; rank: contrast by rank."""
        tau: Temperature = 0.5
        """Temperature of the softmax."""
        bandwidth: Annotated[float, above(0, 10**6)] = 0.1
        """rank: a pair weighs exp(-|difference of ranks| / bandwidth)."""
        quantiles: Literal["dataset", "batch"] | None = None
        """Bins of the whole dataset, or of each batch as in Algorithm 2. Default: the labels'."""
        batch_levels: Count = 8
        """quantiles=batch: levels in a batch, few so that a level's bins mean something."""
        frequent_levels: Count | None = None
        """quantiles=batch: instead draw from all levels and label those most frequent."""
        label_action: Literal["logged", "greedy"] = "logged"
        """quantiles=batch: rank G at the logged action, or at the one the critic prefers."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        assert spec.labels is not None
        self.config, self.labels = config, spec.labels
        self.in_batch = (config.quantiles or spec.labels.quantiles) == "batch"
        self.greedy = self.in_batch and config.label_action == "greedy"
        if self.greedy and spec.labels.action_values is None:
            raise UserError(
                "labels at the critic's own action need G of every action: gsf fit with "
                "--estimator td --q, then gsf label."
            )
        if self.in_batch and config.frequent_levels is None:
            self.n_levels = config.batch_levels
        self.n_components = 1 if self.greedy else spec.labels.n_labels
        self.h = Projection(spec.z_dim, WIDTH)
        if config.objective == "cce":
            self.w = nn.Linear(WIDTH, self.n_components * spec.labels.n_bins, bias=False)

    def draw(self, dataset: Dataset, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        labels = self.labels
        if self.config.objective == "rank":
            return {"u": labels.rank[batch.index]}
        if self.greedy:
            assert labels.action_values is not None
            return {"action_values": labels.action_values[batch.index]}
        if self.in_batch:
            return {"label": self._batch_labels(labels.values[batch.index], batch.level)}
        return {"label": labels.label[batch.index].long()}

    def _batch_labels(self, values: Tensor, level: Tensor) -> Tensor:
        label: Tensor = batch_labels(values, level, self.labels.n_bins)
        if self.config.frequent_levels is not None:
            present, counts = torch.unique(level, return_counts=True)
            order = counts.argsort(descending=True, stable=True)
            label[~torch.isin(level, present[order[: self.config.frequent_levels]])] = -1
        return label

    def forward(self, context: Context) -> tuple[Tensor, Info]:
        config, drawn = self.config, dict(context.drawn)
        h: Tensor = self.h(context.z)  # [n,256]
        if config.objective == "rank":
            u = drawn["u"].view(len(h), -1)  # [n,d]
            loss = _mean(rank_contrast(h, x, config.tau, config.bandwidth) for x in u.T)
            return loss, {"ignored": u.isnan().float().mean()}
        if self.greedy:
            best = context.scores.argmax(1, keepdim=True)
            values = drawn["action_values"].gather(1, best)[:, 0].cpu()
            drawn["label"] = self._batch_labels(values, context.batch.level.cpu()).to(h.device)
        label = drawn["label"].view(len(h), -1)  # [n,d]
        info: Info = {"ignored": (label < 0).float().mean()}
        if config.objective == "infonce":
            return _mean(contrastive_infonce(h, x, config.tau) for x in label.T), info
        logits = self.w(h).view(len(h), self.n_components, -1)  # [n,d,K]
        right = (logits.argmax(2) == label).sum() / (label >= 0).sum().clamp(min=1)
        return contrastive_cce(logits, label, config.tau), {"accuracy": right, **info}


def _mean(losses: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(losses)).mean()
