"""How many bins: Theorem 1 as a tool."""

import numpy as np
import pytest

from gsf.core.errors import UserError
from gsf.gvf.bins import choose_bins


def test_more_data_suggests_more_bins():
    def suggested(n):
        rng = np.random.default_rng(0)
        terms = choose_bins(rng.normal(size=n), np.zeros(n, int), (2, 5, 10, 20, 40), 0.2, rng)
        assert [x["width"] for x in terms.values()] == sorted(
            (x["width"] for x in terms.values()), reverse=True
        )
        assert [x["flip"] for x in terms.values()] == sorted(x["flip"] for x in terms.values())
        return min(terms, key=lambda k: terms[k]["width"] + terms[k]["flip"])

    assert suggested(60) < suggested(2000)


def test_bins_need_two_values():
    with pytest.raises(UserError, match="nothing to bin"):
        choose_bins(
            np.array([1.0, np.nan, 1.0]), np.zeros(3, int), (2,), 0.2, np.random.default_rng(0)
        )
