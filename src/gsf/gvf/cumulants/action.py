"""Which actions lie ahead: one-hot of the logged one, as many labels as actions."""

import numpy as np

from gsf.gvf.cumulants import Array, Chunk, cumulant


@cumulant(rank="components")
def action(chunk: Chunk) -> Array:
    return np.eye(chunk.n_actions, dtype=np.float32)[chunk.action]
