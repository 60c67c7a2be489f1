"""Observations as small pictures in one sheet, within a given number of bytes.

64 x 64 pixels each, whatever the observation's own size and channels; WebP, lower in quality only
where the bytes do not suffice.
"""

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gsf.core.images import in_colour

SIDE = 64
BYTES = 1_300  # of one picture at the best quality, on average
_QUALITIES = (82, 60, 40, 20)
Array = NDArray[Any]


def picture(obs: Array) -> NDArray[np.uint8]:
    """uint8 [H,W,C] -> RGB [64,64,3]; of stacked frames the last three channels."""
    rgb = in_colour(obs)
    if rgb.shape[:2] != (SIDE, SIDE):
        larger = max(rgb.shape[:2]) > SIDE
        how = Image.Resampling.BOX if larger else Image.Resampling.NEAREST
        rgb = np.asarray(Image.fromarray(np.ascontiguousarray(rgb)).resize((SIDE, SIDE), how))
    return np.asarray(rgb, np.uint8)


def sheet(observations: Sequence[Array], columns: int, limit: int, gap: int = 0) -> bytes:
    """A WebP of all observations, row by row, of at most `limit` bytes if any quality allows."""
    rows = math.ceil(len(observations) / columns)
    step = SIDE + gap
    canvas = np.full((rows * step - gap, columns * step - gap, 3), 255, np.uint8)
    for i, obs in enumerate(observations):
        y, x = step * (i // columns), step * (i % columns)
        canvas[y : y + SIDE, x : x + SIDE] = picture(obs)
    image, encoded = Image.fromarray(canvas), b""
    for quality in _QUALITIES:
        buffer = io.BytesIO()
        image.save(buffer, "WEBP", quality=quality, method=4)
        encoded = buffer.getvalue()
        if len(encoded) <= limit:
            break
    return encoded
