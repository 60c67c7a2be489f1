"""n-step CQL: its targets add up n logged rewards before they ask the critic.

As CQL (cql.py) but for y. What the player did on the way counts as if the agent had chosen it, so
nothing is corrected; where rewards are rare, a value travels n steps at a time.
    y = sum_{k<n} gamma^k r_{t+k} + gamma^n (1 - terminated) min_j Q~_j(o_{t+n}, a*)
Where an episode ends sooner the sum ends there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor

from gsf.core.options import between
from gsf.equations import gvf_sum, td_target
from gsf.learn.bases import Context
from gsf.learn.bases.cql import CQL

if TYPE_CHECKING:
    from gsf.data.dataset import Batch, Dataset


class NStepCQL(CQL):
    name = "nstep_cql"
    colour = "#732e5c"
    tuning: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "n_steps": ("5", "20"),
        "train.lr": ("3e-4", "1e-3"),
    }

    @dataclass(frozen=True)
    class Config(CQL.Config):
        n_steps: Annotated[int, between(1, 1000)] = 5
        """Logged steps whose rewards are added up; 1 is CQL."""

    config: Config

    def draw(self, dataset: Dataset, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        rows, taken = dataset.ahead(batch.index, self.config.n_steps)
        last = dataset.gather(rows[:, -1])
        return {
            "reward": torch.from_numpy(dataset.reward[rows]),  # [n,n_steps]
            "taken": torch.from_numpy(taken),
            "last_obs": last.next_obs,
            "terminated": last.terminated,
            "known": last.has_next | last.terminated,  # else a cut: the future is not 0
        }

    @torch.no_grad()
    def target(self, context: Context) -> tuple[Tensor, Tensor]:
        drawn, gamma = context.drawn, self.spec.gamma
        last = context.crop(drawn["last_obs"])
        next_q_target = torch.minimum(*self.target_q(context.target_encoder(last)))  # [n,A]
        next_q = self.scores(context.encoder(last)) if self.config.double else next_q_target
        reward = gvf_sum(self.spec.scaled(drawn["reward"]), drawn["taken"], gamma)
        discount = gamma ** drawn["taken"].sum(1)
        y = td_target(reward, drawn["terminated"], next_q, next_q_target, discount)
        return y.to(reward), drawn["known"]
