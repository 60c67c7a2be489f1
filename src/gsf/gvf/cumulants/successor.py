"""How unusual the places ahead are: features of o_t from a network that is never trained.

No collapse, and no leak from o'.
"""

import torch

from gsf.gvf.cumulants import Array, Chunk, cumulant
from gsf.nets.random_features import random_features

# All 256 would give a TD head of 51,200 outputs for 200 levels and 5 GB of cumulants for 5M
# transitions; 32 random projections keep the L1 norm's order up to ~1/sqrt(32).
N_FEATURES = 32


@cumulant(rank="l1", centred=True, random=True)
def successor(chunk: Chunk) -> Array:
    # The last layer is random, so its first outputs are a random projection like any others.
    obs = torch.from_numpy(chunk.obs)
    return random_features(obs, chunk.seed, chunk.device)[:, :N_FEATURES].numpy()
