"""Networks: the encoder f with z = f(o), and the heads on z (the paper's appendix on architecture).

Images come in as they lie on disk, uint8 NHWC, which is torch's channels_last: permuting is a
view, and no tensor changes its layout on the way to the loss.
"""

import contextlib
import copy
import ctypes
from collections.abc import Iterator
from typing import Literal, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from gsf.runs import UserError

Z_DIM = 256
Module = TypeVar("Module", bound=nn.Module)

EncoderKind = Literal["impala", "impala_small", "nature"]
CriticKind = Literal["mlp", "linear"]

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


def pick_device(name: str) -> str:
    """auto: a GPU if there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: there is no CUDA device here; use --device cpu.")
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"


def keep_freed_memory() -> None:
    """For whatever trains: large blocks that are freed stay with this process.

    glibc hands them back to the system, and getting them again at every step, page by page, is a
    tenth of the step's time on a CPU. The peak of memory is the same.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other systems have none
    # Older versions take at most 32 MB; the second call alone would make matters worse.
    if mallopt and (mallopt(M_MMAP_THRESHOLD, 1 << 30) or mallopt(M_MMAP_THRESHOLD, 1 << 25)):
        mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


@contextlib.contextmanager
def seeded(rng: np.random.Generator) -> Iterator[None]:
    """Modules made inside draw their weights from `rng`; torch's global stream stays untouched."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63)))
        yield


def frozen_copy(online: Module) -> Module:
    """A target network: the same weights, and no gradient ever."""
    return copy.deepcopy(online).requires_grad_(False)


@torch.no_grad()
def update_target(target: nn.Module, online: nn.Module, rate: float) -> None:
    """`equations.ema` of every parameter, in place: a tenth of its time."""
    for old, new in zip(target.parameters(), online.parameters(), strict=True):
        old.lerp_(new, rate)


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


class Projection(nn.Sequential):
    """FC256-ReLU-FC: what the auxiliary losses put on z."""

    def __init__(self, z_dim: int, out: int) -> None:
        super().__init__(nn.Linear(z_dim, Z_DIM), nn.ReLU(inplace=True), nn.Linear(Z_DIM, out))


def mlp(z_dim: int, out: int) -> nn.Sequential:
    """Layers of 256, 256 and `out`: what the paper puts on z for values and actions."""
    return nn.Sequential(nn.Linear(z_dim, Z_DIM), nn.ReLU(inplace=True), Projection(Z_DIM, out))


def _head(z_dim: int, out: int, kind: CriticKind) -> nn.Module:
    # `linear` is the paper's text, theta_a^T z: no bias.
    return mlp(z_dim, out) if kind == "mlp" else nn.Linear(z_dim, out, bias=False)


class Critic(nn.Module):
    """Twin critics: z -> (q1, q2), each [n,A]."""

    def __init__(self, n_actions: int, kind: CriticKind = "mlp", z_dim: int = Z_DIM) -> None:
        super().__init__()
        self.q1 = _head(z_dim, n_actions, kind)
        self.q2 = _head(z_dim, n_actions, kind)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return self.q1(z), self.q2(z)


class Policy(nn.Module):
    """Behaviour cloning's head: z -> logits [n,A]."""

    def __init__(self, n_actions: int, kind: CriticKind = "mlp", z_dim: int = Z_DIM) -> None:
        super().__init__()
        self.logits = _head(z_dim, n_actions, kind)

    def forward(self, z: Tensor) -> Tensor:
        logits: Tensor = self.logits(z)
        return logits
