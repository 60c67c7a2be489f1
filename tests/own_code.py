"""Code of a user's own, as small as it goes: a loss, a base, an encoder and a cumulant."""

LOSS = '''
"""Pulls z towards 0: no use, but all that a loss has to have."""

from dataclasses import dataclass

import torch

from gsf.learn.losses import AuxiliaryLoss


class Pull(AuxiliaryLoss):
    name = "pull"

    @dataclass(frozen=True)
    class Config(AuxiliaryLoss.Config):
        power: float = 2.0
        """Of |z|."""

    def __init__(self, config, spec):
        super().__init__(config, spec)
        self.config = config

    def forward(self, context):
        return context.z.abs().pow(self.config.power).mean(), {}
'''

BASE = '''
from dataclasses import dataclass

from gsf.equations import bc_loss
from gsf.learn.bases import Base
from gsf.nets.heads import head


class Imitate(Base):
    name = "imitate"

    @dataclass(frozen=True)
    class Config:
        weight: float = 1.0
        """Of the loss."""

    def __init__(self, config, spec):
        super().__init__(config, spec)
        self.config, self.pi = config, head(spec.z_dim, spec.n_actions, spec.head)

    def forward(self, z, context):
        loss, info = bc_loss(self.pi(z), context.batch.action)
        return self.config.weight * loss, info

    def scores(self, z):
        return self.pi(z)
'''

ENCODER = """
from torch import nn

from gsf.nets.encoders import encoder


@encoder()
def shallow(shape):
    return nn.Sequential(nn.Conv2d(shape[2], 16, 4, stride=4), nn.ReLU())
"""

CUMULANT = """
import numpy as np

from gsf.gvf.cumulants import cumulant


@cumulant()
def danger(chunk):
    return chunk.reward + 0.1 * chunk.t
"""
