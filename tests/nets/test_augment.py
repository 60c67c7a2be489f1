import numpy as np
import torch

from gsf.nets.augment import BRIGHTNESS, augment, crop, padded, random_colour, random_crop


def image(rows: list[list[int]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.uint8)[None, :, :, None]  # [1,H,W,1]


def test_padding_mirrors_at_the_border() -> None:
    """tf.pad's SYMMETRIC, as the authors pad: the border's own pixels come twice, then the next."""
    wide = padded(image([[1, 2, 3], [4, 5, 6]]), 2)
    first, second = [2, 1, 1, 2, 3, 3, 2], [5, 4, 4, 5, 6, 6, 5]
    assert wide[0, :, :, 0].tolist() == [second, first, first, second, second, first]
    # More than the image has: mirrored again.
    assert padded(image([[1, 2]]), 3)[0, 0, :, 0].tolist() == [2, 2, 1, 1, 2, 2, 1, 1]


def test_crop_takes_each_image_at_its_own_offset() -> None:
    wide = padded(image([[1, 2], [3, 4]]), 1).repeat(3, 1, 1, 1)
    out = crop(wide, torch.tensor([0, 1, 2]), torch.tensor([2, 1, 0]), 2, 2)
    assert out[..., 0].tolist() == [[[2, 2], [2, 2]], [[1, 2], [3, 4]], [[3, 3], [3, 3]]]


def test_channels_and_oblong_images_stay_together() -> None:
    obs = torch.arange(2 * 3 * 5 * 4, dtype=torch.uint8).view(2, 3, 5, 4)
    out = crop(padded(obs, 2), torch.tensor([2, 3]), torch.tensor([2, 1]), 3, 5)
    assert torch.equal(out[0], obs[0])
    assert torch.equal(out[1, :2, 1:], obs[1, 1:, :-1])  # moved by one row and one column
    assert torch.equal(out[1, 2, 1:], obs[1, 2, :-1])  # the last row repeats


def test_random_crop_keeps_type_and_layout_and_depends_on_rng_only() -> None:
    obs = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (8, 9, 9, 3), dtype=np.uint8))
    before = obs.clone()
    first = random_crop(obs, np.random.default_rng(1))
    assert first.dtype == torch.uint8
    assert first.shape == obs.shape
    assert first.is_contiguous()
    assert torch.equal(first, random_crop(obs, np.random.default_rng(1)))
    assert not torch.equal(first, random_crop(obs, np.random.default_rng(2)))
    assert torch.equal(obs, before)


def test_all_25_offsets_are_equally_likely() -> None:
    n = 25_000
    ramp = torch.arange(81, dtype=torch.uint8).view(1, 9, 9, 1).expand(n, -1, -1, -1)
    centre = random_crop(ramp, np.random.default_rng(0))[:, 4, 4, 0].numpy()
    offsets, counts = np.unique(centre, return_counts=True)
    assert sorted(offsets) == sorted(9 * y + x for y in range(2, 7) for x in range(2, 7))
    expected = n / 25
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert chi2 < 51.2  # 24 degrees of freedom, p = 0.001


def test_no_padding_is_the_identity() -> None:
    obs = image([[1, 2], [3, 4]])
    assert torch.equal(random_crop(obs, np.random.default_rng(0), pad=0), obs)


def noisy(n: int = 8, channels: int = 3) -> torch.Tensor:
    pixels = np.random.default_rng(0).integers(60, 190, (n, 9, 9, channels), dtype=np.uint8)
    return torch.from_numpy(pixels)


def test_shift_repeats_the_border_and_moves_as_crop_does() -> None:
    assert padded(image([[1, 2, 3]]), 2, "edge")[0, 0, :, 0].tolist() == [1, 1, 1, 2, 3, 3, 3]
    obs = noisy()
    shifted, cropped = (augment(obs, np.random.default_rng(3), k, 2) for k in ("shift", "crop"))
    assert torch.equal(cropped, random_crop(obs, np.random.default_rng(3)))
    assert torch.equal(shifted[:, 2:-2, 2:-2], cropped[:, 2:-2, 2:-2])
    assert not torch.equal(shifted, cropped)
    assert torch.equal(augment(obs, np.random.default_rng(3), "none", 2), obs)
    assert torch.equal(augment(obs, np.random.default_rng(3), "shift", 0), obs)


def test_colours_are_each_images_own_and_depend_on_rng_only() -> None:
    obs = noisy()
    before = obs.clone()
    first = augment(obs, np.random.default_rng(1), "colour", 2)
    assert first.dtype == torch.uint8
    assert first.shape == obs.shape
    assert torch.equal(first, augment(obs, np.random.default_rng(1), "colour", 2))
    assert not torch.equal(first, augment(obs, np.random.default_rng(2), "colour", 2))
    assert torch.equal(obs, before)
    alike = random_colour(obs[:1].expand(50, -1, -1, -1), np.random.default_rng(0))
    assert len(alike.unique(dim=0)) == 50


def test_a_grey_image_stays_grey_and_moves_by_its_brightness_alone() -> None:
    grey = torch.full((200, 2, 2, 3), 128, dtype=torch.uint8)
    found = random_colour(grey, np.random.default_rng(0)).float()
    assert torch.equal(found, found[:, :1, :1, :1].expand_as(found))
    moved = (found[:, 0, 0, 0] - 128).numpy()
    assert np.abs(moved).max() <= BRIGHTNESS
    assert moved.min() < -0.9 * BRIGHTNESS
    assert moved.max() > 0.9 * BRIGHTNESS


def test_contrast_widens_or_narrows_around_the_mean() -> None:
    two = torch.tensor([100, 150], dtype=torch.uint8).view(1, 1, 2, 1).repeat(300, 1, 1, 1)
    found = random_colour(two, np.random.default_rng(0)).float()[:, 0, :, 0]
    spread = (found[:, 1] - found[:, 0]).numpy() / 50
    assert 0.58 <= spread.min() < 0.65
    assert 1.35 < spread.max() <= 1.42
