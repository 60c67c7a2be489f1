"""Images as users have them, [H,W], [H,W,C] or [C,H,W], and as gsf has them: uint8 [H,W,C]."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def image_shape(shape: Sequence[int]) -> tuple[int, int, int] | None:
    """[H,W,C] of images that come as [H,W], [H,W,C] or [C,H,W] with few channels, or None."""
    if 0 in shape:
        return None
    if len(shape) == 2:
        return shape[0], shape[1], 1
    if len(shape) != 3:
        return None
    height, width, channels = shape
    if height <= 4 < min(width, channels):  # channels came first
        return width, channels, height
    return height, width, channels


def to_hwc(obs: Array) -> Array:
    """[n, ...] of those shapes as [n,H,W,C]."""
    shape = image_shape(obs.shape[1:])
    if shape is not None and obs.ndim == 4 and shape != obs.shape[1:]:
        return np.moveaxis(obs, 1, -1)
    return obs if shape is None else obs.reshape(-1, *shape)


def as_trained(obs: Array, shape: tuple[int, ...]) -> Array:
    """Images [...,H,W], [...,C,H,W] or [...,H,W,C] as [...,H,W,C]; as they are if none fits."""
    height, width, channels = shape
    if obs.shape[-3:] == shape:
        return obs
    if channels == 1 and obs.shape[-2:] == (height, width):
        return obs[..., None]
    return np.moveaxis(obs, -3, -1) if obs.shape[-3:] == (channels, height, width) else obs


def in_colour(image: Array) -> Array:
    """[H,W,C] as three channels to look at: of more the last three, of fewer the last repeated."""
    return image[..., -3:] if image.shape[-1] >= 3 else image[..., -1:].repeat(3, -1)


def turned_hue(angle: Any) -> Array:
    """What colours [...,3] are multiplied with to turn their hue, greys staying.  -> [...,3,3]"""
    cos, sin = (np.asarray(f(angle))[..., None, None] for f in (np.cos, np.sin))
    axis = 3**-0.5  # of the line of greys, in each direction
    cross = np.array([[0, -axis, axis], [axis, 0, -axis], [-axis, axis, 0]])
    turned: Array = cos * np.eye(3) + sin * cross + (1 - cos) * axis * axis
    return turned.swapaxes(-1, -2)
