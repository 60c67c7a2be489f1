"""IQL: values of the best logged actions, and the logged actions imitated the more the better.

Kostrikov, Nair and Levine (2021), "Offline Reinforcement Learning with Implicit Q-Learning", with
discrete actions. A = min_j Q~_j(f~(o), a) - V(z), and no action that was not logged is asked about:
    L = E L_2^e(A) + sum_j E (Q_j(z,a) - y)^2 - E min(e^{beta A}, max_weight) log softmax(pi(z))_a
    y = r + gamma (1 - terminated) V(f(o')),   j = 1, 2
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gsf.core.options import StepSize, Weight, above, inside
from gsf.equations import gvf_target, iql_policy_loss, iql_value_loss, td_loss
from gsf.learn.bases import Base, Context, Info, Optimize, Spec
from gsf.nets.encoders import Encoder
from gsf.nets.heads import Critic, head
from gsf.nets.runtime import frozen_copy, update_target


class IQL(Base):
    name = "iql"
    colour = "#1a1aff"
    tuning: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "beta": ("3", "10"),
        "train.lr": ("3e-4", "1e-3"),
    }

    @dataclass(frozen=True)
    class Config:
        expectile: Annotated[float, inside(0, 1)] = 0.8
        """e: 1/2 values the behaviour, near 1 the best logged actions. Authors: 0.7 to 0.9; 0.8 in
        Mediratta et al. (2024) on offline Procgen."""
        beta: Weight = 3.0
        """How much better actions are preferred; 0 is behaviour cloning. Authors: 3 or 10."""
        max_weight: Annotated[float, above(0, 10**6)] = 100.0
        """No action weighs more in the policy's loss."""
        policy_lr: StepSize | None = None
        """The policy's learning rate, by an optimiser of its own. Default: --lr, by the one that
        trains all else."""
        apart: bool = False
        """Q and V have encoders of their own, as the authors' networks have nothing in common; z is
        the policy's alone. More than twice the cost."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        self.config, self.spec = config, spec
        self.q = self._on_z(Critic(spec.n_actions, spec.head, spec.z_dim))
        self.target_q = frozen_copy(self.q)
        self.value = self._on_z(head(spec.z_dim, 1, spec.head))
        self.pi = head(spec.z_dim, spec.n_actions, spec.head)

    def _on_z(self, head: nn.Module) -> nn.Module:
        """The head, on an encoder of its own if they are apart."""
        if not self.config.apart:
            return head
        return nn.Sequential(Encoder(self.spec.obs_shape, self.spec.encoder), head)

    def forward(self, z: Tensor, context: Context) -> tuple[Tensor, Info]:
        config, batch, action = self.config, context.batch, context.batch.action[:, None]
        # What Q and V, Q~, and V one step later look at.
        here, target_here, there = (
            (context.obs, context.obs, context.next_obs)
            if config.apart
            else (z, context.target_z, context.next_z)
        )
        value: Tensor = self.value(here)[:, 0]
        q1, q2 = (q.gather(1, action)[:, 0] for q in self.q(here))  # [n]
        with torch.no_grad():
            target_q = torch.minimum(*self.target_q(target_here)).gather(1, action)[:, 0]
            next_value = self.value(there)[:, 0]
            reward = self.spec.scaled(batch.reward)
            y = gvf_target(reward, next_value, batch.terminated, self.spec.gamma)
        # A cut episode's last step has no next observation, and its value is not 0: no target.
        known = batch.has_next | batch.terminated
        policy, info = iql_policy_loss(
            self.pi(z), batch.action, target_q - value, config.beta, config.max_weight
        )
        terms = {
            "value": iql_value_loss(value, target_q, config.expectile),
            "td": td_loss(q1, y, known) + td_loss(q2, y, known),
            "policy": policy,
        }
        info |= {
            "q": (q1 + q2).detach().mean() / 2,
            "target": (y * known).sum() / known.sum().clamp(min=1),
        }
        info |= {name: term.detach() for name, term in terms.items()}
        return torch.stack(list(terms.values())).sum(), info

    def scores(self, z: Tensor) -> Tensor:
        logits: Tensor = self.pi(z)
        return logits

    def optimizers(self, optimizer: Optimize) -> Mapping[str, Optimizer]:
        lr = self.config.policy_lr
        return {} if lr is None else {"policy": optimizer(self.pi.parameters(), lr)}

    def after_step(self, rate: float) -> None:
        update_target(self.target_q, self.q, rate)
