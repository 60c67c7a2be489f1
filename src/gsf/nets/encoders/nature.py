"""DQN's three convolutions (Mnih et al. 2015), the fastest on a CPU."""

from torch import nn

from gsf.nets.encoders import Shape, encoder


@encoder(min_size=36, orthogonal=True)
def nature(shape: Shape) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(shape[2], 32, 8, stride=4),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(inplace=True),
        nn.Conv2d(64, 64, 3),
    )
