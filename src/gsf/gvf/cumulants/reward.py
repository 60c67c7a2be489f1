"""How much will be earned: the logged reward, neither scaled nor clipped."""

from gsf.gvf.cumulants import Array, Chunk, cumulant


@cumulant()
def reward(chunk: Chunk) -> Array:
    return chunk.reward
