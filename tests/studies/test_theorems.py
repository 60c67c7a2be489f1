import numpy as np

from gsf.equations import theorem2_bound
from gsf.studies.theorems import visits_per_label


def test_the_most_visited_states_have_the_highest_label():
    found = visits_per_label(30, 3000, 0.95, 5, np.random.default_rng(0))
    assert found["visits"].sum() == 3000
    visited = found["visits"] > 0
    lower, upper = theorem2_bound(found["visits"], 0.95, "proof")
    assert (lower[visited] <= found["norm"][visited] + 1e-9).all()
    assert (found["norm"] <= upper + 1e-9).all()
    means = found["mean_visits"][~np.isnan(found["mean_visits"])]
    assert (np.diff(means) > 0).all()
