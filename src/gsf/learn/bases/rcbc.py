"""RCBC: behaviour cloning that is told what was earned afterwards, and at play asks for much.

Emmons, Eysenbach, Kostrikov and Levine (2022), "RvS: What is Essential for Offline RL via
Supervised Learning?", conditioned on rewards. G = sum_k gamma^k r_{t+k} to the episode's end:
    L = -E log softmax(pi(z, g))_a,   g = (G - mean of the level's G) / their standard deviation
It acts by pi(z, g*), g* a high quantile of the g of all transitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gsf.core.options import Share
from gsf.equations import bc_loss, gvf_return
from gsf.learn.bases import Base, Context, Info, Spec
from gsf.nets.heads import head

if TYPE_CHECKING:
    from gsf.data.dataset import Batch, Dataset

Array = npt.NDArray[np.float64]


def within_groups(values: Array, group: npt.NDArray[Any]) -> Array:
    """Each value less its group's mean, in its group's standard deviations; 0 if all are equal."""
    n = np.maximum(np.bincount(group), 1)
    centred = values - (np.bincount(group, values) / n)[group]
    spread = np.sqrt(np.bincount(group, centred**2) / n)[group]
    return np.where(spread > 1e-9, centred / np.maximum(spread, 1e-9), 0.0)


class RCBC(Base):
    name = "rcbc"
    colour = "#72fc00"
    asked: Tensor  # g*, known once data were seen
    tuning: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "quantile": ("0.9", "0.7"),
        "train.lr": ("3e-4", "1e-3"),
    }

    @dataclass(frozen=True)
    class Config:
        gamma: Share = 1.0
        """Discount of what is earned from a step on; 1: none."""
        quantile: Share = 0.9
        """What the agent asks for: so high among all transitions, each seen within its level."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        self.config = config
        self.pi = head(spec.z_dim + 1, spec.n_actions, spec.head)
        self.register_buffer("asked", torch.zeros(()))

    def prepare(self, dataset: Dataset) -> None:
        reward = np.asarray(dataset.reward, np.float64)
        to_go = gvf_return(reward, self.config.gamma, dataset.rows_left == 1)
        g = within_groups(to_go, dataset.level)
        self.to_go = torch.from_numpy(g.astype(np.float32))
        self.asked.fill_(float(np.quantile(g, self.config.quantile)))

    def draw(self, dataset: Dataset, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        return {"to_go": self.to_go[batch.index]}

    def forward(self, z: Tensor, context: Context) -> tuple[Tensor, Info]:
        logits = self._logits(z, context.drawn["to_go"])
        loss, info = bc_loss(logits, context.batch.action)
        return loss, info

    def scores(self, z: Tensor) -> Tensor:
        return self._logits(z, self.asked.expand(len(z)))

    def _logits(self, z: Tensor, to_go: Tensor) -> Tensor:
        logits: Tensor = self.pi(torch.cat([z, to_go[:, None]], 1))
        return logits
