import pandas as pd
import pytest

from gsf.core.errors import UserError
from gsf.reporting.contrasts import gap, ratios
from gsf.reporting.headline import warning
from gsf.reporting.scores import scores
from gsf.reporting.stats import bootstrap
from synthetic import evaluation_rows, matrix, table_rows


def test_scores_say_what_they_leave_out():
    full = {("coinrun", "cql"): [[1.0, 2.0], [3.0, 4.0]], ("coinrun", "bc"): [[5.0, 6.0]] * 2}
    rows = table_rows(full)
    assert scores(rows).notes == ()
    without = rows[(rows["method"] != "bc") | (rows["seed"] != 1)]
    assert scores(without).notes == ()  # a run without any rows is the report's to name
    elsewhere = rows.assign(split="seen")
    missing = scores(pd.concat([without, elsewhere]))
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
            table_rows({("coinrun", "behaviour"): [[5.0]]}, step=0, mode="sampled"),
        ]
    )
    found = scores(rows)
    assert found.methods == ["behaviour", "cql"]
    assert found.notes == ("shown with sampled actions instead: behaviour.",)


def test_imported_data_stays_raw():
    found = scores(table_rows({("my-robot", "cql"): [[100.0, 300.0]]}))
    assert found.unit == "return"
    assert matrix(found, "cql").tolist() == [[200.0]]


def test_no_rows_of_a_split_is_an_error():
    with pytest.raises(UserError, match="no validation rows with greedy actions"):
        scores(table_rows({("coinrun", "cql"): [[1.0]]}), "validation")


def with_players(coinrun, maze, n_levels=100, **agents):
    """Rows of agents, and of players with these returns: a tenth of the way in maze is 5.655."""
    agents = agents or {"cql": ["coinrun", "maze"]}
    trained = {(game, method): [[5.0]] for method, games in agents.items() for game in games}
    players = {("coinrun", "behaviour"): coinrun, ("maze", "behaviour"): maze}
    played = {key: [[value] * n_levels] for key, value in players.items()}
    return pd.concat(
        [table_rows(trained, mode="sampled"), table_rows(played, mode="sampled", split="seen")]
    )


def test_games_with_a_player_near_random_play_are_not_in_aggregates():
    found = scores(with_players(9.0, 5.65), mode="sampled")
    assert found.games == ("coinrun",)
    assert found.notes == ()  # nothing is missing
    assert found.caveats == (
        "In no mean over games: maze (10%), whose recorded player is less than 10% of the way from "
        "random to published play.",
    )
    assert warning(bootstrap(found, n=10)).endswith(found.caveats[0])
    assert found.returns["cql"].keys() == {"coinrun", "maze"}  # each game's own table has it
    assert set(ratios(bootstrap(found, n=10))["game"]) == {"coinrun"}
    assert scores(with_players(9.0, 5.66), mode="sampled").games == ("coinrun", "maze")
    few_levels = with_players(9.0, 5.65, n_levels=50)
    twice = pd.concat([few_levels, few_levels[few_levels["split"] == "seen"].assign(seed=1)])
    assert scores(twice, mode="sampled").games == ("coinrun", "maze")
    nothing_else = scores(with_players(3.0, 4.0), mode="sampled")
    assert nothing_else.games == ("coinrun", "maze")
    assert nothing_else.caveats[0].startswith("Every recorded player is less than 10%")


def test_a_method_with_a_weak_game_alone_does_not_choose_the_games():
    agents = {"cql": ["coinrun", "maze"], "bc": ["maze"]}
    found = scores(with_players(9.0, 4.0, **agents), mode="sampled")
    assert found.games == ("coinrun",)
    assert "aggregates leave out bc: no run of coinrun." in found.notes


def test_a_weak_game_stays_if_agents_were_trained_on_no_other():
    rows = with_players(9.0, 4.0, cql=["maze"])
    more = table_rows({("coinrun", "random"): [[3.0]], ("maze", "random"): [[4.0]]}, mode="sampled")
    found = scores(pd.concat([rows, more]), mode="sampled")
    assert found.games == ("maze",)
    assert found.caveats[0].startswith("Every recorded player is less than 10%")


def test_a_player_is_judged_by_its_last_step():
    rows = with_players(9.0, 9.0)
    early = rows[(rows["method"] == "behaviour") & (rows["game"] == "maze")]
    early = early.assign(step=1, **{"return": -50.0})
    assert scores(pd.concat([rows, early]), mode="sampled").games == ("coinrun", "maze")


def test_entropy_is_that_of_the_levels_that_count():
    two = {("coinrun", "cql"): [[1.0, 2.0]] * 2, ("coinrun", "bc"): [[1.0, 2.0, 3.0]]}
    rows = table_rows(two).assign(entropy=[1.0, 3.0, 1.0, 3.0, 2.0, 2.0, 99.0])
    assert scores(rows).entropy["bc"]["coinrun"].tolist() == [2.0]


def test_a_reference_of_two_other_modes_stands_in_once():
    """At a fixed temperature runs alone were played; their references greedy and sampled."""
    runs = table_rows({("maze", "cql"): [[1.0, 2.0]]}, mode="sampled-1")
    played = [
        table_rows({("maze", name): [[x, x]]}, mode=mode)
        for name in ("random", "behaviour")
        for mode, x in (("greedy", 3.0), ("sampled", 4.0))
    ]
    found = scores(pd.concat([runs, *played]), mode="sampled-1")
    assert found.returns["behaviour"]["maze"].tolist() == [[4.0, 4.0]]
    # Random play has no best action: it is the same in all modes, and nothing has to be said.
    assert found.returns["random"]["maze"].tolist() == [[4.0, 4.0]]
    assert found.notes == ("shown with sampled actions instead: behaviour.",)
