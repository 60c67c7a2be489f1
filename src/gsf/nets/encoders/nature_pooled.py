"""DQN's convolutions whose channels are averaged over the image, not flattened."""

from torch import nn

from gsf.nets.encoders import Shape, averaged, encoder
from gsf.nets.encoders.nature import nature


@encoder(min_size=36, orthogonal=True)
def nature_pooled(shape: Shape) -> nn.Module:
    return averaged(nature.build(shape))
