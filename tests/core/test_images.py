"""The one shape of images, whatever people have."""

import numpy as np
import pytest

from gsf.core.images import as_trained, image_shape, to_hwc, turned_hue


@pytest.mark.parametrize(
    ("given", "expected"),
    [((28, 30), (28, 30, 1)), ((28, 30, 3), (28, 30, 3)), ((3, 28, 30), (28, 30, 3)), ((5,), None)],
)
def test_shapes_people_have(given, expected):
    assert image_shape(given) == expected


def test_images_are_the_same_images():
    images = np.arange(2 * 3 * 5 * 6).reshape(2, 3, 5, 6)
    assert (to_hwc(images)[1, 2, 3] == images[1, :, 2, 3]).all()
    assert (to_hwc(images[:, 0])[1, 2, 3] == images[1, 0, 2, 3]).all()


def test_what_an_agent_is_shown_may_come_in_every_way_that_is_imported():
    images = np.arange(4 * 5 * 6 * 3).reshape(4, 5, 6, 3)
    assert as_trained(images, (5, 6, 3)) is images
    assert (as_trained(images.transpose(0, 3, 1, 2), (5, 6, 3)) == images).all()
    assert (as_trained(images[0].transpose(2, 0, 1), (5, 6, 3)) == images[0]).all()
    grey = images[..., :1]
    assert (as_trained(grey[..., 0], (5, 6, 1)) == grey).all()
    assert (as_trained(grey[0, ..., 0], (5, 6, 1)) == grey[0]).all()
    assert as_trained(images, (7, 7, 3)) is images  # refused by whoever asked


def test_turning_the_hue_a_third_moves_each_channel_to_the_next():
    turned = turned_hue(2 * np.pi / 3)
    assert np.array([200, 30, 10]) @ turned == pytest.approx([10, 200, 30])
    assert np.array([70, 70, 70]) @ turned_hue(1.234) == pytest.approx([70, 70, 70])
