"""DeepMDP: z and the action have to tell the reward and the next z.

Gelada, Kumar, Buckman, Nachum and Bellemare (2019), "DeepMDP: Learning Continuous Latent Space
Models for Representation Learning".
    L = w_r E[(R(z, a) - r)^2] + w_z E_{has_next}[|P(z, a) - sg(z')|^2 / dim z]
with z' = f(o') without gradient (sg), and r in the unit that TD learns it in.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from gsf.core.options import Weight
from gsf.learn.losses import AuxiliaryLoss, Context, Info, Released, Spec
from gsf.nets.heads import mlp


class DeepMDP(AuxiliaryLoss):
    name = "deepmdp"
    colour = "#c5aa16"
    released: ClassVar[Released] = Released(stop_gradient=True)

    @dataclass(frozen=True)
    class Config(AuxiliaryLoss.Config):
        reward_weight: Weight = 1.0
        """Weight of the error of the predicted reward."""
        latent_weight: Weight = 1.0
        """Weight of the error of the predicted next latent."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        self.config, self.spec = config, spec
        self.reward = mlp(spec.z_dim + spec.n_actions, 1)
        self.next_z = mlp(spec.z_dim + spec.n_actions, spec.z_dim)

    def forward(self, context: Context) -> tuple[Tensor, Info]:
        batch = context.batch
        x = torch.cat([context.z, one_hot(batch.action, self.spec.n_actions)], 1)
        # The reward of a step that ends an episode is known; only its next observation is not.
        reward = (self.reward(x)[:, 0] - self.spec.scaled(batch.reward)).square().mean()
        error = (self.next_z(x) - context.next_z.detach()).square().mean(1)  # [n]
        latent = (error * batch.has_next).sum() / batch.has_next.sum().clamp(min=1)
        loss = self.config.reward_weight * reward + self.config.latent_weight * latent
        # The error of predicting that nothing changes; latents that collapse bring it to 0.
        still = (context.z.detach() - context.next_z).square().mean(1)
        still = (still * batch.has_next).sum() / batch.has_next.sum().clamp(min=1)
        return loss, {"reward": reward.detach(), "latent": latent.detach(), "still": still}
