import io

import numpy as np
from PIL import Image

from gsf.reporting import pictures


def test_pictures_have_one_size_and_stay_within_their_bytes():
    rng = np.random.default_rng(0)
    noise = [rng.integers(0, 256, (64, 64, 3)).astype(np.uint8) for _ in range(6)]
    best, small = (pictures.sheet(noise, 4, limit) for limit in (10**9, 12_000))
    assert len(small) <= 12_000 < len(best)
    with Image.open(io.BytesIO(best)) as image:
        assert image.size == (4 * 64, 2 * 64)
    with Image.open(io.BytesIO(pictures.sheet(noise, 6, 10**9, gap=2))) as image:
        assert image.size == (6 * 66 - 2, 64)
    for shape in ((12, 12, 3), (84, 84, 4), (64, 64, 1), (40, 80, 2)):
        assert pictures.picture(np.full(shape, 7, np.uint8)).shape == (64, 64, 3)
    assert (pictures.picture(np.full((84, 84, 1), 7, np.uint8)) == 7).all()
