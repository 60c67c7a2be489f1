"""Squares of 4x4 pixels, then two looks at their neighbours: a quarter of impala_small's time."""

from torch import nn

from gsf.nets.encoders import Shape, encoder


@encoder(min_size=20, orthogonal=True)
def strided(shape: Shape) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(shape[2], 32, 4, stride=4),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 32, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 32, 3),
    )
