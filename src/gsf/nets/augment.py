"""Augmentation: images moved or coloured at random, each by itself.

crop: padded symmetrically (64 -> 68), cropped back to 64. shift: the same, the border's pixels
repeated instead of mirrored (DrQ, Kostrikov et al. 2021). colour: crop, then contrast, brightness
and hue (as the colour jitter of RAD, Laskin et al. 2020). uint8 NHWC in and out, so that what
reaches the encoder is still channels_last.
"""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gsf.core.images import turned_hue

Augmentation = Literal["crop", "shift", "colour", "none"]
Border = Literal["symmetric", "edge"]
CONTRAST, BRIGHTNESS, HUE = 0.4, 50.0, np.pi / 5  # farthest from 1, from 0 of 255, and by angle


def augment(obs: Tensor, rng: np.random.Generator, kind: Augmentation, pad: int) -> Tensor:
    """obs [n,H,W,C] -> the same shape. All that is random comes from rng."""
    if kind == "none":
        return obs
    moved = random_crop(obs, rng, pad, "edge" if kind == "shift" else "symmetric") if pad else obs
    return random_colour(moved, rng) if kind == "colour" else moved


def random_colour(obs: Tensor, rng: np.random.Generator) -> Tensor:
    """Image i's colours times a matrix of its own; where channels are no colours, no hue."""
    n, channels = len(obs), obs.shape[3]
    contrast = 1 + rng.uniform(-CONTRAST, CONTRAST, n)
    brighter = rng.uniform(-BRIGHTNESS, BRIGHTNESS, n)
    angles = rng.uniform(-HUE, HUE, n)
    turned = turned_hue(angles) if channels == 3 else np.eye(channels)[None].repeat(n, 0)
    matrix, shift = (
        torch.from_numpy(x.astype(np.float32)).to(obs.device)
        for x in (contrast[:, None, None] * turned, brighter[:, None, None])
    )
    pixels = obs.flatten(1, 2).float()  # [n,H*W,C]
    middle = pixels.mean((1, 2), keepdim=True)
    coloured = torch.baddbmm(middle + shift, pixels - middle, matrix)
    return coloured.round_().clamp_(0, 255).to(torch.uint8).view(obs.shape)


def random_crop(
    obs: Tensor, rng: np.random.Generator, pad: int = 2, border: Border = "symmetric"
) -> Tensor:
    """obs [n,H,W,C] -> the same shape; image i moves by an own offset, uniform in [-pad, pad]^2."""
    top, left = torch.from_numpy(rng.integers(2 * pad + 1, size=(2, len(obs)))).to(obs.device)
    return crop(padded(obs, pad, border), top, left, obs.shape[1], obs.shape[2])


def padded(obs: Tensor, pad: int, border: Border = "symmetric") -> Tensor:
    """[n,H,W,C] -> [n,H+2p,W+2p,C]: mirrored at the border, whose own pixels come twice, or the
    border's pixels repeated (edge)."""
    for axis in (1, 2):
        size = obs.shape[axis]
        mirrored = torch.from_numpy(np.pad(np.arange(size), pad, mode=border)).to(obs.device)
        sides = (mirrored[:pad], mirrored[pad + size :])
        before, after = (obs.index_select(axis, side) for side in sides)
        obs = torch.cat([before, obs, after], axis)
    return obs


def crop(obs: Tensor, top: Tensor, left: Tensor, height: int, width: int) -> Tensor:
    """Image i from row top[i], column left[i] on: [n,height,width,C], one gather of whole rows."""
    n, channels = len(obs), obs.shape[3]
    windows = obs.flatten(2).unfold(1, height, 1).unfold(2, width * channels, channels)
    chosen = windows[torch.arange(n, device=obs.device), top, left]  # [n,height,width*C]
    return chosen.view(n, height, width, channels)
