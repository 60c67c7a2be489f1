"""The encoder f with z = f(o) (the paper's appendix on architecture), and the folder of them.

An encoder is one file here with one function decorated with @encoder, named like the file: an
image's shape -> convolutions. Images come in as they lie on disk, uint8 NHWC, which is torch's
channels_last: permuting is a view, and no tensor changes its layout on the way to the loss.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gsf.core.errors import UserError
from gsf.core.registry import Registry

Shape = tuple[int, ...]  # of an image: height, width, channels


@dataclass(frozen=True)
class Architecture:
    """What `@encoder` makes of a function: how to build the convolutions of an encoder."""

    name: str
    build: Callable[[Shape], nn.Module]
    min_size: int  # of an image's height and width
    unshuffle: int
    orthogonal: bool
    z_dim: int = 256

    def convolutions(self, obs_shape: Shape) -> nn.Module:
        """For images of that shape; those that are too small are refused."""
        height, width, channels = obs_shape
        if min(height, width) < self.min_size:
            raise UserError(
                f"encoder {self.name} needs images of at least {self.min_size}x{self.min_size} "
                f"pixels, not {height}x{width}; choose another --encoder."
            )
        block = self.unshuffle
        return self.build((-(-height // block), -(-width // block), channels * block**2))


def encoder(
    *, min_size: int = 1, unshuffle: int = 1, orthogonal: bool = False, z_dim: int = 256
) -> Callable[[Callable[[Shape], nn.Module]], Architecture]:
    """Makes an encoder, named like the function, of (height, width, channels) -> a module.

    The module maps images, float32 [n,C,H,W] within 0..1, to features [n,C',H',W'] or [n,d], each
    image by itself (no batch normalisation); ReLU, FC and the layers up to z are put on top.
    min_size: the smallest height and width it takes.  unshuffle: blocks of b x b pixels become
    channels first.  orthogonal: PPO draws orthogonal first weights, which would double along
    residual blocks, and not Glorot's.  z_dim: how many numbers z is.

        @encoder()
        def flat(shape):
            return nn.Conv2d(shape[2], 16, 8, stride=8)
    """
    return lambda build: Architecture(build.__name__, build, min_size, unshuffle, orthogonal, z_dim)


def averaged(convolutions: nn.Module) -> nn.Module:
    """Each channel's mean over the image instead of its values everywhere: fewer weights in FC."""
    return nn.Sequential(convolutions, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


_registry: Registry[Architecture] = Registry(
    "encoder", __name__, lambda value: isinstance(value, Architecture)
)
names, find, find_again = _registry.names, _registry.find, _registry.find_again
owns = _registry.owns


class ConvTrunk(nn.Module):
    """Images -> as many features as z has: convolutions, ReLU, FC, ReLU. PPO uses it as it is."""

    bf16 = False  # computes in bfloat16; weights and what comes out stay float32

    def __init__(self, obs_shape: Shape, kind: str | Architecture = "impala") -> None:
        super().__init__()
        kind = find(kind).value if isinstance(kind, str) else kind
        self.unshuffle = kind.unshuffle
        self.convs = kind.convolutions(obs_shape)
        try:
            with torch.no_grad():
                n_flat = _flat(self.convs(self._image(torch.zeros(1, *obs_shape)))).shape[1]
        except RuntimeError as error:
            shape = "x".join(map(str, obs_shape))
            raise UserError(f"encoder {kind.name} fails on images {shape}: {error}.") from error
        self.z_dim = kind.z_dim
        self.fc = nn.Linear(n_flat, self.z_dim)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def _image(self, obs: Tensor) -> Tensor:
        """[n,H,W,C], 0..255 -> float32 [n,C,H,W] within 0..1, channels_last."""
        if self.unshuffle > 1:
            obs = pixel_unshuffle(obs, self.unshuffle)
        image = obs.permute(0, 3, 1, 2)
        if image.dtype != torch.uint8:
            return image / 255
        return image.to(torch.float32, memory_format=torch.channels_last).div_(255)

    def forward(self, obs: Tensor) -> Tensor:
        with torch.autocast(obs.device.type, torch.bfloat16, enabled=self.bf16):
            features: Tensor = self.fc(_flat(self.convs(self._image(obs)).relu()))
        return (features.float() if self.bf16 else features).relu_()


def _flat(features: Tensor) -> Tensor:
    """[n,C',H',W'] -> [n,H'*W'*C'], a view in channels_last; [n,d] as it is."""
    return features.permute(0, 2, 3, 1).flatten(1) if features.ndim == 4 else features


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
    """z = f(o): [n,H,W,C] uint8 (or float, 0..255) -> [n,z_dim] within (-1, 1), float32."""

    def __init__(self, obs_shape: Shape, kind: str | Architecture = "impala") -> None:
        super().__init__()
        self.trunk = ConvTrunk(obs_shape, kind)
        self.z_dim = n = self.trunk.z_dim
        self.embed = nn.Sequential(nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n), nn.Tanh())

    def forward(self, obs: Tensor) -> Tensor:
        z: Tensor = self.embed(self.trunk(obs))
        return z
