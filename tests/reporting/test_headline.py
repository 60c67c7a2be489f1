import numpy as np

from gsf.reporting import headline, stats
from gsf.reporting.scores import scores
from synthetic import table_rows


def of_runs(**returns: list[list[float]]) -> stats.Replicates:
    rows = table_rows({("maze", name.replace("_", "-")): runs for name, runs in returns.items()})
    return stats.bootstrap(scores(rows), n=200)


def test_the_headline_claims_a_lead_only_where_there_is_one():
    levels = np.linspace(0, 2, 8)
    clear = of_runs(cql=[[5, 6, 7]] * 4, bc=[[5, 6, 7]] * 4, gsf_reward=[[8, 9, 10]] * 4)
    # min-max: maze goes from 5 to 10
    assert headline.headline(clear) == (
        "gsf-reward has the highest IQM min-max score on unseen levels (greedy actions): "
        "0.80 [0.60, 1.00], ahead of every other method beyond the 95 % intervals."
    )
    noisy = of_runs(
        cql=[list(6 + levels + x) for x in (0, 1, 2, 3)],
        gsf_reward=[list(6.1 + levels + x) for x in (3, 2, 1, 0)],
    )
    said = headline.headline(noisy)
    assert "gsf-reward has the highest" in said
    assert "Its lead over cql (" in said
    assert said.endswith("cannot be told from chance.")
    few = of_runs(cql=[[5, 6]] * 2, gsf_reward=[[8, 9]] * 2)
    assert headline.headline(few).endswith("2 seeds per method cannot rank them.")
    assert "95 %" not in headline.headline(few)
    assert headline.headline(of_runs(random=[[5, 6]])) == (
        "No trained method has results on the same games yet."
    )
