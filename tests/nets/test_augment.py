import numpy as np
import torch

from gsf.nets.augment import crop, pad_symmetric, random_crop


def image(rows: list[list[int]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.uint8)[None, :, :, None]  # [1,H,W,1]


def test_padding_mirrors_at_the_border() -> None:
    """tf.pad's SYMMETRIC, as the authors pad: the border's own pixels come twice, then the next."""
    padded = pad_symmetric(image([[1, 2, 3], [4, 5, 6]]), 2)
    first, second = [2, 1, 1, 2, 3, 3, 2], [5, 4, 4, 5, 6, 6, 5]
    assert padded[0, :, :, 0].tolist() == [second, first, first, second, second, first]
    # More than the image has: mirrored again.
    assert pad_symmetric(image([[1, 2]]), 3)[0, 0, :, 0].tolist() == [2, 2, 1, 1, 2, 2, 1, 1]


def test_crop_takes_each_image_at_its_own_offset() -> None:
    padded = pad_symmetric(image([[1, 2], [3, 4]]), 1).repeat(3, 1, 1, 1)
    out = crop(padded, torch.tensor([0, 1, 2]), torch.tensor([2, 1, 0]), 2, 2)
    assert out[..., 0].tolist() == [[[2, 2], [2, 2]], [[1, 2], [3, 4]], [[3, 3], [3, 3]]]


def test_channels_and_oblong_images_stay_together() -> None:
    obs = torch.arange(2 * 3 * 5 * 4, dtype=torch.uint8).view(2, 3, 5, 4)
    out = crop(pad_symmetric(obs, 2), torch.tensor([2, 3]), torch.tensor([2, 1]), 3, 5)
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
