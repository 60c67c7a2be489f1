"""Random crop: pad symmetrically (64 -> 68), crop back to 64, an own offset per image.

uint8 NHWC in and out, so that what reaches the encoder is still channels_last.
"""

import numpy as np
import torch
from torch import Tensor


def random_crop(obs: Tensor, rng: np.random.Generator, pad: int = 2) -> Tensor:
    """obs [n,H,W,C] -> the same shape; image i moves by an own offset, uniform in [-pad, pad]^2."""
    top, left = torch.from_numpy(rng.integers(2 * pad + 1, size=(2, len(obs)))).to(obs.device)
    return crop(pad_symmetric(obs, pad), top, left, obs.shape[1], obs.shape[2])


def pad_symmetric(obs: Tensor, pad: int) -> Tensor:
    """[n,H,W,C] -> [n,H+2p,W+2p,C]: mirrored at the border, whose own pixels come twice."""
    for axis in (1, 2):
        size = obs.shape[axis]
        mirrored = torch.from_numpy(np.pad(np.arange(size), pad, mode="symmetric")).to(obs.device)
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
