"""IMPALA's residual network (Espeholt et al. 2018), the paper's encoder."""

from torch import Tensor, nn

from gsf.nets.encoders import Shape, encoder


class ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        # The second ReLU and the sum overwrite tensors that no backward pass looks at.
        y: Tensor = self.conv2(self.conv1(x.relu()).relu_())
        return y.add_(x)


def stack(c_in: int, c_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1),
        nn.MaxPool2d(3, stride=2, padding=1),
        ResidualBlock(c_out),
        ResidualBlock(c_out),
    )


@encoder()
def impala(shape: Shape) -> nn.Sequential:
    return nn.Sequential(stack(shape[2], 16), stack(16, 32), stack(32, 32))
