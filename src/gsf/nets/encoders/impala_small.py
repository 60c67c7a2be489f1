"""The paper's encoder on images of half the size and four times the channels: a CPU's choice."""

from torch import nn

from gsf.nets.encoders import Shape, encoder
from gsf.nets.encoders.impala import impala


@encoder(unshuffle=2)
def impala_small(shape: Shape) -> nn.Module:
    return impala.build(shape)
