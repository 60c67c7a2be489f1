import numpy as np

from gsf.reporting.sections import explorer


def test_the_grid_is_from_all_levels_and_the_pool_fits():
    level = np.repeat(np.arange(5), [100, 1, 1, 1, 1])
    assert sorted(level[explorer.over_levels(level, 5)]) == [0, 1, 2, 3, 4]
    assert len(set(explorer.over_levels(level, 50))) == 50
    assert len(explorer._pool(3000, np.arange(80), 3, 10_000_000)) == 3000
    assert len(explorer._pool(3000, np.arange(80), 12, 400_000)) == 400_000 // 1300 - 80
