"""CQL: Q-learning in which the logged action stands out among all others.

Kumar, Zhou, Tucker and Levine (2020), "Conservative Q-Learning for Offline Reinforcement Learning".
    L = sum_j E (Q_j(o,a) - y)^2 + alpha E (LSE_a Q_j(o,.) - Q_j(o,a)),   j = 1, 2
    y = r + gamma (1 - terminated) min_j Q~_j(o', a*),   a* = argmax_a min_j Q_j(o', a)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gsf.core.options import Weight
from gsf.equations import cql_loss, td_target
from gsf.learn.bases import Base, Context, Info, Spec
from gsf.nets.heads import Critic
from gsf.nets.runtime import frozen_copy, update_target


class CQL(Base):
    name = "cql"
    colour = "#3e2c8b"
    tuning: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "alpha": ("1", "4"),
        "train.lr": ("3e-4", "1e-3"),
    }
    released: ClassVar[Mapping[str, Any]] = {"alpha": 0.1}
    released_with_loss: ClassVar[Mapping[str, Any]] = {"alpha": 0.0}

    @dataclass(frozen=True)
    class Config:
        alpha: Weight = 1.0
        """Weight of the conservative term, the paper's lambda."""
        double: bool = True
        """The online critics choose the next action (double DQN); else the target's maximum."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        self.config, self.spec = config, spec
        self.q = Critic(spec.n_actions, spec.head, spec.z_dim)
        self.target_q = frozen_copy(self.q)

    @torch.no_grad()
    def target(self, context: Context) -> tuple[Tensor, Tensor]:
        """y, and where it is known, both [n]."""
        batch = context.batch
        next_q_target = torch.minimum(*self.target_q(context.target_next_z))  # [n,A]
        next_q = self.scores(context.next_z) if self.config.double else next_q_target
        reward = self.spec.scaled(batch.reward)
        y = td_target(reward, batch.terminated, next_q, next_q_target, self.spec.gamma)
        # A cut episode's last step has no next observation, and its value is not 0: no target.
        return y, batch.has_next | batch.terminated

    def forward(self, z: Tensor, context: Context) -> tuple[Tensor, Info]:
        action, alpha = context.batch.action, self.config.alpha
        y, known = self.target(context)
        losses, infos = zip(*(cql_loss(q, action, y, alpha, known) for q in self.q(z)), strict=True)
        info = {name: (infos[0][name] + infos[1][name]) / 2 for name in infos[0]}
        info["target"] = (y * known).sum() / known.sum().clamp(min=1)
        return losses[0] + losses[1], info

    def scores(self, z: Tensor) -> Tensor:
        return torch.minimum(*self.q(z))

    def after_step(self, rate: float) -> None:
        update_target(self.target_q, self.q, rate)
