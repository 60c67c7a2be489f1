"""CURL: two crops of one observation attract each other, crops of other observations repel.

Srinivas, Laskin and Abbeel (2020), "CURL: Contrastive Unsupervised Representations for
Reinforcement Learning".
    L = -E_i log softmax_j(z_i^T W z~_j / tau)_i
with z = f(crop of o), and z~ = f~(another crop of o) from the EMA encoder, without gradient.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gsf.core.options import Rate, Temperature
from gsf.learn.losses import AuxiliaryLoss, Context, Info, Spec


class CURL(AuxiliaryLoss):
    name = "curl"
    colour = "#5cd9dd"

    @dataclass(frozen=True)
    class Config(AuxiliaryLoss.Config):
        tau: Temperature = 1.0
        """Temperature of the softmax; the authors have none, W learns the scale."""
        encoder_rate: Rate = 0.025
        """EMA step of the target encoder, for z~ and the base's targets alike, as the authors have
        it: 0.05 every second step. On Atari theirs is 0.001."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        self.config, self.encoder_rate = config, config.encoder_rate
        # Deviation: not uniform noise in [0, 1) as in the authors' code, whose logits on a z of
        # this size would start in the tens.
        self.w = nn.Parameter(torch.eye(spec.z_dim) / spec.z_dim**0.5)

    def forward(self, context: Context) -> tuple[Tensor, Info]:
        with torch.no_grad():
            target_z = context.target_encoder(context.crop(context.batch.obs))  # the second crop
        logits = context.z @ self.w @ target_z.T / self.config.tau  # [n,n]
        own = torch.arange(len(logits), device=logits.device)
        accuracy = (logits.detach().argmax(1) == own).float().mean()
        return cross_entropy(logits, own), {"accuracy": accuracy}
