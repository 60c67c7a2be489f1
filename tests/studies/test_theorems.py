from pathlib import Path

import numpy as np

from gsf.core.drawing import save
from gsf.equations import theorem2_bound
from gsf.studies.theorems import draw_bins, draw_visits, visits_per_label


def test_the_most_visited_states_have_the_highest_label():
    found = visits_per_label(30, 3000, 0.95, 5, np.random.default_rng(0))
    assert found["visits"].sum() == 3000
    visited = found["visits"] > 0
    lower, upper = theorem2_bound(found["visits"], 0.95, "proof")
    assert (lower[visited] <= found["norm"][visited] + 1e-9).all()
    assert (found["norm"] <= upper + 1e-9).all()
    means = found["mean_visits"][~np.isnan(found["mean_visits"])]
    assert (np.diff(means) > 0).all()


def test_both_theorems_are_drawn(tmp_path: Path):
    terms = {k: {"estimation": 0.1, "p": 1 / k, "width": 1 / k, "flip": k / 20} for k in (2, 4, 8)}
    bins, visits = draw_bins(terms), draw_visits(2, 500)
    assert [text.get_text() for text in bins.axes[1].texts] == ["suggested K = 4"]
    assert [line.get_label() for line in visits.axes[1].lines] == ["printed", "proof"]
    for name, figure in (("bins", bins), ("visits", visits)):
        save(figure, tmp_path / name)
        assert (tmp_path / f"{name}.png").stat().st_size > 5000
