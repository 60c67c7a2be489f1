"""The encoder f with z = f(o) (the paper's appendix on architecture).

Images come in as they lie on disk, uint8 NHWC, which is torch's channels_last: permuting is a
view, and no tensor changes its layout on the way to the loss.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from gsf.core.errors import UserError

Z_DIM = 256


EncoderKind = Literal["impala", "impala_small", "nature"]


class ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        # The second ReLU and the sum overwrite tensors that no backward pass looks at.
        y: Tensor = self.conv2(self.conv1(x.relu()).relu_())
        return y.add_(x)


def _impala_stack(c_in: int, c_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1),
        nn.MaxPool2d(3, stride=2, padding=1),
        ResidualBlock(c_out),
        ResidualBlock(c_out),
    )


def _impala(c_in: int) -> nn.Sequential:
    return nn.Sequential(_impala_stack(c_in, 16), _impala_stack(16, 32), _impala_stack(32, 32))


def _nature(c_in: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(c_in, 32, 8, stride=4),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(inplace=True),
        nn.Conv2d(64, 64, 3),
    )


class ConvTrunk(nn.Module):
    """Images -> 256 features: convolutions, flatten, ReLU, FC256, ReLU. PPO uses it as it is."""

    def __init__(self, obs_shape: tuple[int, ...], kind: EncoderKind = "impala") -> None:
        super().__init__()
        height, width, channels = obs_shape
        if kind == "nature" and min(height, width) < 36:
            raise UserError(
                f"encoder nature needs images of at least 36x36 pixels, not {height}x{width}; "
                "choose impala or impala_small."
            )
        self.unshuffle = 2 if kind == "impala_small" else 1
        c_in = channels * self.unshuffle**2
        self.convs = _nature(c_in) if kind == "nature" else _impala(c_in)
        with torch.no_grad():
            n_flat = self.convs(self._image(torch.zeros(1, *obs_shape))).numel()
        self.fc = nn.Linear(n_flat, Z_DIM)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def _image(self, obs: Tensor) -> Tensor:
        """[n,H,W,C], 0..255 -> float32 [n,C,H,W] within 0..1, channels_last."""
        if self.unshuffle > 1:
            obs = pixel_unshuffle(obs, self.unshuffle)
        image = obs.permute(0, 3, 1, 2)
        return image.float().div_(255) if image.dtype == torch.uint8 else image / 255

    def forward(self, obs: Tensor) -> Tensor:
        x = self.convs(self._image(obs)).relu_()
        flat = x.permute(0, 2, 3, 1).flatten(1)  # [n,H'*W'*C'], a view in channels_last
        features: Tensor = self.fc(flat)
        return features.relu_()


def pixel_unshuffle(obs: Tensor, block: int) -> Tensor:
    """[n,H,W,C] -> [n,H/b,W/b,b*b*C]; a size b does not divide is padded with zeros."""
    n, height, width, channels = obs.shape
    if height % block or width % block:
        obs = nn.functional.pad(obs, (0, 0, 0, -width % block, 0, -height % block))
        height, width = obs.shape[1:3]
    rows = obs.reshape(n, height, width // block, block * channels)
    # A third of the time of transposing and copying.
    return torch.cat([rows[:, i::block] for i in range(block)], -1)


class Encoder(nn.Module):
    """z = f(o): [n,H,W,C] uint8 (or float, 0..255) -> [n,256] within (-1, 1)."""

    def __init__(self, obs_shape: tuple[int, ...], kind: EncoderKind = "impala") -> None:
        super().__init__()
        self.trunk = ConvTrunk(obs_shape, kind)
        self.embed = nn.Sequential(
            nn.Linear(Z_DIM, Z_DIM), nn.Linear(Z_DIM, Z_DIM), nn.LayerNorm(Z_DIM), nn.Tanh()
        )

    def forward(self, obs: Tensor) -> Tensor:
        z: Tensor = self.embed(self.trunk(obs))
        return z
