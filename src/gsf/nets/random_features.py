"""Features of images that nobody trained: z of an encoder with random weights."""

import functools

import numpy as np
import torch
from torch import Tensor

from gsf.nets.encoders import Encoder
from gsf.nets.runtime import seeded

BATCH = 512
STREAM = 1  # of random numbers, beside the seed


def random_features(obs: Tensor, seed: int, device: str = "cpu") -> Tensor:
    """obs [n,H,W,C] -> [n,256], z of an `impala_small` with random weights fixed by the seed."""
    encoder = random_encoder(tuple(obs.shape[1:]), seed, device)
    with torch.no_grad():
        return torch.cat([encoder(x.to(device)).cpu() for x in torch.split(obs, BATCH)])


@functools.lru_cache(maxsize=2)
def random_encoder(obs_shape: tuple[int, ...], seed: int, device: str) -> Encoder:
    # A stream of its own: an agent of the same seed must not start as this very network.
    with seeded(np.random.default_rng([seed, STREAM])):
        return Encoder(obs_shape, "impala_small").to(device).eval()
