import numpy as np
import pytest

from gsf.core.errors import UserError
from gsf.reporting import contrasts, power, stats
from gsf.reporting.power import Noise
from gsf.reporting.scores import scores
from synthetic import table_rows


def test_noise_by_hand():
    seeds_differ, levels_differ = np.array([[0.0, 0.0], [2.0, 2.0]]), np.array([[0.0, 4.0]] * 2)
    # seeds 0 and 2 have variance 2; by level 1 - 0 and 1 - 4 have 8; nothing is left
    assert power.noise(seeds_differ, levels_differ) == Noise(2.0, 8.0, 0.0)
    crossed = np.array([[1.0, 0.0], [0.0, 1.0]])  # four times +-0.5 and one degree of freedom
    assert power.noise(crossed, np.zeros((2, 2))) == Noise(0.0, 0.0, 1.0)
    assert power.noise(crossed[:1], crossed) is None


def test_effect_by_hand():
    found = Noise(seeds=6.0, levels=20.0, rest=30.0)
    assert found.of_mean(3, 10) == 2 + 2 + 1
    assert found.of_bootstrap(3, 10) == pytest.approx(2 / 3 * 2 + 2 + (1 + 4 / 3) * 1)
    wide, true = 1.959964 * (17 / 3) ** 0.5, 0.841621 * 5**0.5
    assert power.effect([(found, 3, 10)]) == pytest.approx(wide + true, rel=1e-5)
    # Of four games alike, the mean's noise is half of one game's.
    assert power.effect([(found, 3, 10)] * 4) == pytest.approx((wide + true) / 2, rel=1e-5)
    few = Noise(6.0, 0.0, 0.0)  # one seed: the bootstrap sees no noise at all, but there is
    assert power.effect([(few, 1, 10)]) == pytest.approx(2.801585 * 6**0.5, rel=1e-5)
    assert few.scaled(0.5) == Noise(1.5, 0.0, 0.0)


SEED, LEVEL, REST = 0.15, 0.5, 1.0  # standard deviations of one method


def compared(rng, n_seeds: int, n_levels: int, gain: float):
    """Two methods whose noise is known, on levels that are hard for both."""
    shape, shared = (n_seeds, n_levels), rng.normal(5, 3, n_levels)

    def runs():
        own = rng.normal(0, LEVEL, n_levels) + rng.normal(0, SEED, (n_seeds, 1))
        return shared + own + rng.normal(0, REST, shape)

    return scores(table_rows({("mine", "bc"): runs() + gain, ("mine", "cql"): runs()}))


@pytest.mark.parametrize(("n_seeds", "n_levels"), [(3, 60), (8, 30)])
def test_the_reports_intervals_exclude_0_as_often_as_power_says(n_seeds, n_levels):
    rng = np.random.default_rng(0)
    true = Noise(2 * SEED**2, 2 * LEVEL**2, 2 * REST**2)
    smallest = power.effect([(true, n_seeds, n_levels)])
    seen = {0.0: 0, smallest: 0}
    estimates, n = [], 150
    for gain in seen:
        for _ in range(n):
            found = compared(rng, n_seeds, n_levels, gain)
            gains = contrasts.differences(stats.bootstrap(found, n=300)).iloc[0]
            seen[gain] += gains["low"] > 0 or gains["high"] < 0
            estimates.append(power.smallest_effect(found, "bc", "cql"))
    assert seen[smallest] / n == pytest.approx(0.8, abs=0.08)
    assert seen[0.0] / n < 0.11
    assert np.mean(estimates) == pytest.approx(smallest, rel=0.05)


def test_it_is_in_the_unit_of_the_scores():
    x, y = [[4.0, 4.0], [6.0, 6.0]], [[5.0, 5.0], [5.0, 5.0]]
    raw = scores(table_rows({("mine", "bc"): x, ("mine", "cql"): y}))
    scored = scores(table_rows({("coinrun", "bc"): x, ("coinrun", "cql"): y}))
    assert raw.unit == "return"
    assert scored.unit == "min-max score"
    found = power.smallest_effect(raw, "bc", "cql")
    assert found == pytest.approx(2.801585 * (2 / 2) ** 0.5, rel=1e-5)  # seeds vary by 2
    low, high = scored.ranges["coinrun"]
    assert power.smallest_effect(scored, "bc", "cql") == pytest.approx(found / (high - low))
    assert power.smallest_effect(raw, "bc", "cql", n_seeds=8) == pytest.approx(found / 2, rel=1e-5)
    one = scores(table_rows({("mine", "bc"): x[:1], ("mine", "cql"): y}))
    assert power.smallest_effect(one, "bc", "cql") is None


def test_effects_of_games_and_of_their_mean():
    x, y = [[4.0, 4.0], [6.0, 6.0]], [[5.0, 5.0], [5.0, 5.0]]
    games = {"coinrun": 1.0, "maze": 2.0}
    rows = {
        (g, m): np.multiply(by, r) for g, by in games.items() for m, r in (("bc", x), ("cql", y))
    }
    frame = power.smallest_effects(stats.bootstrap(scores(table_rows(rows)), n=50))
    assert set(frame["unit"]) == {"(x - cql) / cql"}
    assert set(frame["n_games"]) == {2}
    at = frame[(frame["n_seeds"] == 2) & (frame["n_levels"] == 50)].set_index("game")
    each = 2.801585 / 5  # twice the noise on twice the return
    assert at["value"].to_dict() == pytest.approx(
        {"coinrun": each, "maze": each, "mean": each / 2**0.5}, rel=1e-5
    )
    nothing = {key: np.subtract(runs, 5.0) for key, runs in rows.items() if key[0] == "coinrun"}
    frame = power.smallest_effects(stats.bootstrap(scores(table_rows(nothing)), n=50))
    assert set(frame["unit"]) == {"min-max score"}
    assert (frame["value"] == frame["score"]).all()
    one = {key: runs[:1] for key, runs in rows.items()}
    with pytest.raises(UserError, match="two seeds"):
        power.smallest_effects(stats.bootstrap(scores(table_rows(one)), n=50))
