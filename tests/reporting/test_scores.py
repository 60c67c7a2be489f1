import pandas as pd
import pytest

from gsf.core.errors import UserError
from gsf.reporting.scores import scores
from gsf.reporting.stats import bootstrap, gap
from synthetic import evaluation_rows, matrix, table_rows


def test_scores_say_what_they_leave_out():
    full = {("coinrun", "cql"): [[1.0, 2.0], [3.0, 4.0]], ("coinrun", "bc"): [[5.0, 6.0]] * 2}
    rows = table_rows(full)
    assert scores(rows).notes == ()
    missing = scores(rows[(rows["method"] != "bc") | (rows["seed"] != 1)])
    assert missing.notes == ("no unseen rows with greedy actions: coinrun/bc/seed1.",)
    assert missing.returns["bc"]["coinrun"].tolist() == [[5.0, 6.0]]
    behind = rows.assign(step=rows["step"].where((rows["method"] != "bc") | (rows["seed"] != 1), 5))
    assert scores(behind).notes == ("left out, behind the others: coinrun/bc/seed1.",)
    assert scores(behind).seeds["bc"]["coinrun"] == (0,)
    half = rows[~((rows["method"] == "bc") & (rows["seed"] == 1) & (rows["level"] == 0))]
    assert scores(half).notes == ("left out with 1 of 2 unseen levels: coinrun/bc/seed1.",)


def test_all_splits_and_modes_are_at_the_same_step():
    early = evaluation_rows(games=["coinrun"], methods=["cql"], n_levels=3, steps=[2000])
    late = evaluation_rows(games=["coinrun"], methods=["cql"], n_levels=3, steps=[5000])
    cut_short = pd.concat([early, late[late["split"] == "seen"]])
    for split, mode in (("seen", "greedy"), ("seen", "sampled"), ("unseen", "greedy")):
        assert scores(cut_short, split, mode).steps == {"coinrun": 2000}
    assert scores(pd.concat([early, late])).steps == {"coinrun": 5000}
    only_late = pd.concat([early[early["split"] == "seen"], late[late["split"] == "unseen"]])
    seen, test = (bootstrap(scores(only_late, split), n=10) for split in ("seen", "unseen"))
    assert (seen.scores.steps, test.scores.steps) == ({"coinrun": 2000}, {"coinrun": 5000})
    assert not len(gap(seen, test))  # nothing in common: no gap


def test_references_have_no_vote_on_levels():
    rows = table_rows({("coinrun", "cql"): [[1.0, 2.0]], ("coinrun", "random"): [[0.0, 1.0, 2.0]]})
    found = scores(rows)
    assert found.returns["cql"]["coinrun"].tolist() == [[1.0, 2.0]]
    assert found.returns["random"]["coinrun"].tolist() == [[0.0, 1.0]]


def test_levels_are_paired_whatever_the_order_of_rows():
    rows = table_rows({("coinrun", "cql"): [[1.0, 2.0, 3.0]], ("coinrun", "bc"): [[4.0, 5.0, 6.0]]})
    shuffled = scores(rows.sample(frac=1, random_state=0))
    assert shuffled.returns["cql"]["coinrun"].tolist() == [[1.0, 2.0, 3.0]]
    assert shuffled.returns["bc"]["coinrun"].tolist() == [[4.0, 5.0, 6.0]]


def test_episodes_are_not_runs():
    rows = table_rows({("coinrun", "cql"): [[1.0, 2.0]]})
    with pytest.raises(UserError, match="more would be counted as runs"):
        scores(pd.concat([rows, rows]))
    found = scores(table_rows({("coinrun", "cql"): [[5.0, 10.0], [10.0, 10.0]]}))
    assert matrix(found, "cql").tolist() == [[0.5], [1.0]]  # [seeds, games], coinrun scores 5-10


def test_aggregates_are_over_the_games_that_all_methods_have():
    one = [[6.0], [7.0]]
    rows = table_rows({("coinrun", "cql"): one, ("maze", "cql"): one, ("coinrun", "pse"): one})
    found = scores(rows)
    assert found.games == ("coinrun",)
    assert "aggregates leave out maze: no run of pse." in found.notes
    apart = scores(
        table_rows({("coinrun", "cql"): one, ("maze", "cql"): one, ("miner", "pse"): one})
    )
    assert apart.games == ("coinrun", "maze")
    assert apart.methods == ["cql"]
    assert "aggregates leave out pse: no run of coinrun, maze." in apart.notes
    ragged = scores(table_rows({("coinrun", "cql"): one, ("maze", "cql"): one[:1]}))
    assert ragged.n_seeds("cql") == 1


def test_references_need_no_seeds_and_no_last_step():
    rows = pd.concat(
        [
            table_rows({("coinrun", "cql"): [[6.0], [7.0]]}),
            table_rows({("coinrun", "random"): [[5.0]]}, step=0, mode="sampled"),
        ]
    )
    found = scores(rows)
    assert found.methods == ["random", "cql"]
    assert found.notes == ("played with sampled actions only: random.",)


def test_imported_data_stays_raw():
    found = scores(table_rows({("my-robot", "cql"): [[100.0, 300.0]]}))
    assert found.unit == "return"
    assert matrix(found, "cql").tolist() == [[200.0]]


def test_no_rows_of_a_split_is_an_error():
    with pytest.raises(UserError, match="no validation rows with greedy actions"):
        scores(table_rows({("coinrun", "cql"): [[1.0]]}), "validation")
