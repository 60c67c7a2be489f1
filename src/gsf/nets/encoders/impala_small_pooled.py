"""impala_small whose channels are averaged over the image, not flattened (Trumpp et al. 2025)."""

from torch import nn

from gsf.nets.encoders import Shape, averaged, encoder
from gsf.nets.encoders.impala import impala


@encoder(unshuffle=2)
def impala_small_pooled(shape: Shape) -> nn.Module:
    return averaged(impala.build(shape))
