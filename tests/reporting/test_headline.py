import numpy as np
import pandas as pd

from gsf.reporting import headline, stats
from gsf.reporting.scores import scores
from synthetic import table_rows


def of_runs(**returns: list[list[float]]) -> stats.Replicates:
    rows = table_rows({("maze", name.replace("_", "-")): runs for name, runs in returns.items()})
    return stats.bootstrap(scores(rows), n=200)


def test_the_headline_claims_a_lead_only_where_there_is_one():
    levels = np.linspace(0, 2, 8)
    clear = of_runs(cql=[[5, 6, 7]] * 4, bc=[[5, 6, 7]] * 4, gsf_reward=[[8, 9, 10]] * 4)
    assert headline.headline(clear.raw()) == (
        "gsf-reward has the highest mean return on unseen levels of maze: "
        "9.00 [8.00, 10.00], ahead of every other method beyond the 95 % intervals."
    )
    noisy = of_runs(
        cql=[list(6 + levels + x) for x in (0, 1, 2, 3)],
        gsf_reward=[list(6.1 + levels + x) for x in (3, 2, 1, 0)],
    )
    said = headline.headline(noisy)
    assert "gsf-reward has the highest" in said
    assert "The lead over cql (" in said
    assert said.endswith("cannot be told from chance.")
    few = of_runs(cql=[[5, 6]] * 2, gsf_reward=[[8, 9]] * 2)
    assert headline.headline(few).endswith("2 seeds per method cannot rank them.")
    assert "95 %" not in headline.headline(few)
    assert headline.headline(of_runs(random=[[5, 6]])) == (
        "No trained method has results on the same games yet."
    )


def test_a_tie_is_called_a_tie():
    all_equal = of_runs(cql=[[5, 7]] * 3, bc=[[7, 5]] * 3, gsf_reward=[[6, 6]] * 3).raw()
    assert headline.headline(all_equal).startswith(
        "All 3 methods are tied at a mean return of 6.00 ["
    )
    two = of_runs(cql=[[8, 9]] * 3, bc=[[5, 5]] * 3, gsf_reward=[[9, 8]] * 3).raw()
    said = headline.headline(two)
    assert said.startswith("cql and gsf-reward lead, tied at a mean return of 8.50 [")
    assert said.endswith("ahead of the others beyond the 95 % intervals.")


def test_play_that_is_no_better_than_random_play_is_called_that():
    rng = np.random.default_rng(0)
    noise = list(5 + rng.normal(size=40))
    runs = {"random": [noise], "bc": [list(reversed(noise))] * 3, "cql": [[2.0] * 40] * 3}
    poor = of_runs(**runs).raw()
    assert "No method can be told from random play (" in headline.headline(poor)
    lines = headline.support(poor, None, "cql")
    assert "Below random play: cql in maze. Cannot be told" in lines[0]
    assert "Cannot be told from random play: bc in maze." in lines[0]
    good = of_runs(**runs, gsf_reward=[[9.0] * 40] * 3).raw()
    said = headline.headline(good)
    assert said.startswith("gsf-reward has the highest mean return on unseen levels of maze: 9.00")
    assert said.endswith("bc and cql cannot be told from random play.")


def test_the_temperatures_of_sampled_actions_are_said():
    keys = {"mode": "sampled", "temperature": 0.5}
    rows = table_rows({("maze", "cql"): [[1, 2]] * 3}, **keys)
    other = table_rows({("maze", "bc"): [[1, 2]] * 3}, **keys | {"temperature": 0.7})
    both = stats.bootstrap(scores(pd.concat([rows, other]), mode="sampled"), n=50)
    said = headline.support(both, None, "cql")[0]
    assert "one episode each, actions sampled at temperature 0.5-0.7;" in said
    assert said.endswith("Temperatures: bc 0.7 and cql 0.5.")
    alone = stats.bootstrap(scores(rows, mode="sampled"), n=50)
    assert "actions sampled at temperature 0.5;" in headline.support(alone, None, "cql")[0]
