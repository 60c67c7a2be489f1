"""Squares of 4x4 pixels, each looked at alone and then with its neighbours: fast, for grids."""

from torch import nn

from gsf.nets.encoders import Shape, encoder


@encoder(min_size=4, orthogonal=True)
def patches(shape: Shape) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(shape[2], 32, 4, stride=4),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 32, 3, padding=1),
    )
