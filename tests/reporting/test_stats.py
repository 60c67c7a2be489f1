import importlib.util
import sys
import time
import types

import numpy as np
import pandas as pd
import pytest
from rliable import metrics

from gsf.core.errors import UserError
from gsf.reporting import contrasts, stats
from gsf.reporting.scores import scores
from synthetic import evaluation_rows, matrix, table_rows

GAMES = ["bigfish", "coinrun", "maze"]
SMALL = {"games": GAMES, "n_levels": 12, "modes": ["greedy"]}


@pytest.fixture(scope="module")
def rows():
    return evaluation_rows(**SMALL, methods=["random", "behaviour", "bc", "cql", "gsf-reward"])


@pytest.fixture(scope="module")
def replicates(rows):
    return stats.bootstrap(scores(rows))


@pytest.fixture(scope="module")
def rliable_library():
    """rliable.library itself. arch < 8, which it needs, cannot be imported whole under pandas 3;
    its bootstrap classes can."""
    arch = types.ModuleType("arch")
    arch.__path__ = list(importlib.util.find_spec("arch").submodule_search_locations)
    sys.modules["arch"] = arch
    import rliable.library

    del sys.modules["arch"]
    return rliable.library


def only(frame, **keys):
    for name, value in keys.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1
    return frame.iloc[0]


def test_aggregates_by_hand():
    eight = [[float(x)] for x in (8, 1, 7, 2, 6, 3, 5, 4)]
    frame = stats.aggregates(stats.bootstrap(scores(table_rows({("mine", "cql"): eight})), n=50))
    assert only(frame, statistic="iqm")["value"] == 4.5  # mean of 3 4 5 6
    two = {
        ("a", "cql"): [[0.0], [2.0]],
        ("b", "cql"): [[3.0], [5.0]],
        ("c", "cql"): [[9.0], [11.0]],
    }
    frame = stats.aggregates(stats.bootstrap(scores(table_rows(two)), n=50))
    assert only(frame, statistic="mean")["value"] == 5.0  # of the games' means 1, 4, 10
    assert only(frame, statistic="median")["value"] == 4.0
    assert only(frame, statistic="iqm")["value"] == 4.75  # mean of 2 3 5 9
    assert set(frame["n_seeds"]) == {2}


def test_min_max_scores_by_hand():
    found = scores(table_rows({("coinrun", "cql"): [[5.0, 10.0]], ("maze", "cql"): [[10.0, 10.0]]}))
    frame = stats.aggregates(stats.bootstrap(found, n=50))
    assert only(frame, statistic="mean")["value"] == 0.75
    assert set(frame["unit"]) == {"min-max score"}


def test_point_estimates_are_rliables(replicates, rliable_library):
    found = replicates.scores
    frame = stats.aggregates(replicates)
    for method in found.methods:
        runs = matrix(found, method)
        assert runs.shape == (1 if method in ("random", "behaviour") else 5, 3)
        for statistic, function in {
            "iqm": metrics.aggregate_iqm,
            "mean": metrics.aggregate_mean,
            "median": metrics.aggregate_median,
        }.items():
            ours = only(frame, method=method, statistic=statistic)["value"]
            assert ours == pytest.approx(function(runs), abs=1e-12)
    thresholds = np.linspace(0, 0.6, 13)
    for method, group in stats.profiles(replicates, thresholds).groupby("method"):
        theirs = rliable_library.score_distributions(matrix(found, method), thresholds)
        assert group["value"].to_numpy() == pytest.approx(theirs, abs=1e-12)
    for _, row in contrasts.improvement(replicates).iterrows():
        pair = matrix(found, row["method"]), matrix(found, "cql")
        theirs = metrics.probability_of_improvement(*pair)
        assert row["value"] == pytest.approx(theirs, abs=1e-12)


def test_every_replicate_is_rliables_number_on_the_replicate_matrix(replicates):
    runs = replicates.redrawn("cql", replicates.scores.games)
    others = replicates.redrawn("bc", replicates.scores.games)
    beats = np.mean([contrasts._beats(x, y) for x, y in zip(runs, others, strict=True)], axis=0)
    for i in (0, 7, 1999):
        ours = np.stack([game[i] for game in runs], axis=1)
        other = np.stack([game[i] for game in others], axis=1)
        iqm = stats.aggregate_draws("iqm", runs)[i]
        assert iqm == pytest.approx(metrics.aggregate_iqm(ours), abs=1e-12)
        median = stats.aggregate_draws("median", runs)[i]
        assert median == pytest.approx(metrics.aggregate_median(ours), abs=1e-12)
        theirs = metrics.probability_of_improvement(ours, other)
        assert beats[i] == pytest.approx(theirs, abs=1e-12)


def test_intervals_are_rliables_where_levels_do_not_vary(rliable_library):
    rng = np.random.default_rng(0)
    runs = rng.uniform(0, 1, (8, 4))  # [seeds, games]
    by_game = {(f"game{g}", "cql"): [[x, x] for x in runs[:, g]] for g in range(4)}
    ours = stats.aggregates(stats.bootstrap(scores(table_rows(by_game)), n=2000))
    row = only(ours, statistic="iqm")
    state = np.random.get_state()  # noqa: NPY002 (rliable draws from the global state)
    np.random.seed(0)  # noqa: NPY002
    _, theirs = rliable_library.get_interval_estimates(
        {"cql": runs}, lambda x: np.array([metrics.aggregate_iqm(x)]), reps=2000
    )
    np.random.set_state(state)  # noqa: NPY002
    assert [row["low"], row["high"]] == pytest.approx(theirs["cql"].ravel(), abs=0.02)


def test_same_rows_same_bytes_and_the_global_state_is_left_alone(rows):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    texts = []
    for seed in (0, 0, 1):
        replicates = stats.bootstrap(scores(rows.sample(frac=1, random_state=len(texts))), seed)
        texts.append(
            stats.aggregates(replicates).to_csv() + contrasts.relative(replicates).to_csv()
        )
    assert texts[0] == texts[1] != texts[2]
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_an_interval_does_not_depend_on_the_other_methods(rows, replicates):
    alone = stats.bootstrap(scores(rows[rows["method"] == "cql"]))
    for game in GAMES:
        assert np.allclose(alone.draws["cql"][game], replicates.draws["cql"][game], atol=1e-12)


def test_without_variance_of_seeds_the_interval_comes_from_levels():
    rng = np.random.default_rng(0)
    levels = rng.normal(0, 1, 100)
    found = scores(table_rows({("mine", "cql"): [levels] * 4}))
    draws = stats.bootstrap(found).draws["cql"]["mine"]
    assert (draws == draws[:, :1]).all()
    assert draws[:, 0].std() == pytest.approx(levels.std() / 10, rel=0.06)


def test_without_variance_of_levels_the_interval_comes_from_seeds():
    seeds = np.array([0.0, 1.0, 2.0, 5.0])
    found = scores(table_rows({("mine", "cql"): [[x] * 30 for x in seeds]}))
    means = stats.bootstrap(found).draws["cql"]["mine"].mean(axis=1)
    assert means.std() == pytest.approx(seeds.std() / 2, rel=0.06)
    row = only(stats.per_game(stats.bootstrap(scores(table_rows({("m", "cql"): [[3.0] * 5] * 2})))))
    assert row["value"] == row["low"] == pytest.approx(row["high"])


def test_differences_are_paired_by_level():
    rng = np.random.default_rng(0)
    levels = rng.normal(0, 10, 40)
    rows = table_rows({("mine", "cql"): [levels] * 3, ("mine", "gsf-reward"): [levels + 1] * 3})
    replicates = stats.bootstrap(scores(rows))
    own = only(stats.per_game(replicates), method="cql")
    assert own["high"] - own["low"] > 4
    frame = contrasts.differences(replicates)
    assert list(frame["game"]) == ["mine", "iqm", "mean", "median"]
    assert frame[["value", "low", "high"]].to_numpy() == pytest.approx(np.ones((4, 3)))


def test_gap_by_hand_pairs_the_runs():
    seeds = np.array([0.0, 10.0, 20.0])
    seen = table_rows({("mine", "cql"): [[x + 3] * 2 for x in seeds]}, split="seen")
    test = table_rows({("mine", "cql"): [[x] * 2 for x in seeds]})
    frame = contrasts.gap(
        *(stats.bootstrap(scores(r, s)) for r, s in ((seen, "seen"), (test, "unseen")))
    )
    row = only(frame, game="mine")
    assert [row["value"], row["low"], row["high"]] == pytest.approx([3, 3, 3])
    assert row["split"] == "seen - unseen"
    fewer = stats.bootstrap(scores(test[test["seed"] < 2]))
    assert len(contrasts.gap(stats.bootstrap(scores(seen, "seen")), fewer)) == 0


def test_relative_by_hand():
    rows = table_rows(
        {
            ("a", "cql"): [[1.0, 3.0]],
            ("a", "bc"): [[2.0, 4.0]],
            ("b", "cql"): [[4.0, 4.0]],
            ("b", "bc"): [[3.0, 3.0]],
            ("c", "cql"): [[-1.0, 2.0]],
            ("c", "bc"): [[5.0, 5.0]],
        }
    )
    frame = contrasts.relative(stats.bootstrap(scores(rows)))
    assert only(frame, game="a")["value"] == 0.5
    assert only(frame, game="b")["value"] == -0.25
    assert only(frame, game="c")[["value", "low", "high"]].isna().all()  # CQL may be 0 there
    assert only(frame, game="mean")["value"] == 0.125
    assert only(frame, game="median")["value"] == 0.125
    assert only(frame, game="iqm")["value"] == 0.125
    assert contrasts.positive_games(stats.bootstrap(scores(rows)), "cql") == ["a", "b"]


def test_gains_at_equal_temperatures_by_hand():
    """b was not played at 0.5 by all, so it is in no mean."""
    by_mode = {
        "sampled-1": {("a", "cql"): 2.0, ("a", "bc"): 3.0, ("b", "cql"): 1.0, ("b", "bc"): 9.0},
        "sampled-0.5": {("a", "cql"): 4.0, ("a", "bc"): 3.0, ("b", "bc"): 9.0},
    }
    parts = [
        table_rows({k: [[x, x]] for k, x in returns.items()}, split="validation", mode=mode)
        for mode, returns in by_mode.items()
    ]
    rows = pd.concat([*parts, table_rows({("a", "random"): [[1.0, 1.0]]}, split="validation")])
    assert contrasts.tried_temperatures(rows) == [1.0, 0.5]
    gains = contrasts.at_equal_temperatures(rows)
    found = {(r["method"], r["temperature"]): r["value"] for r in gains.to_dict("records")}
    assert found == {("bc", 1.0): 1.0, ("bc", 0.5): -1.0}
    assert set(gains["n_games"]) == {1}
    assert set(gains["unit"]) == {"return - cql's"}
    with pytest.raises(UserError, match="no method was played beside cql"):
        contrasts.at_equal_temperatures(rows[rows["method"] == "cql"])


def test_gains_stand_beside_the_baselines_gap():
    unseen = {("a", "cql"): [[2.0, 2.0]], ("a", "bc"): [[3.0, 3.0]], ("b", "cql"): [[4.0]]}
    seen = {("a", "cql"): [[3.0, 5.0]], ("a", "bc"): [[3.0, 3.0]], ("b", "cql"): [[4.0]]}
    both = (table_rows(seen, split="seen"), table_rows(unseen))
    replicates = [
        stats.bootstrap(scores(rows, split=s))
        for rows, s in zip(both, ("seen", "unseen"), strict=True)
    ]
    (row,) = contrasts.gain_by_gap(*replicates).to_dict("records")
    assert (row["game"], row["method"]) == ("a", "bc")
    assert row["value"] == 0.5  # (3 - 2) / 2
    assert row["gap"] == 1.0  # (4 - 2) / 2
    assert row["gap_low"] == 0.5
    assert row["gap_high"] == 1.5


def test_the_baseline_is_redrawn_with_the_rest():
    levels = [1.0, 2.0, 9.0, 4.0]
    doubled = [2 * x for x in levels]
    rows = table_rows({("a", "cql"): [levels], ("a", "bc"): [doubled]})
    row = only(contrasts.relative(stats.bootstrap(scores(rows))), game="a")
    assert [row["value"], row["low"], row["high"]] == pytest.approx([1, 1, 1])


def test_ratios_are_over_the_median_baseline_run():
    rows = table_rows({("a", "cql"): [[1.0], [2.0], [6.0]], ("a", "bc"): [[3.0]]})
    frame = contrasts.ratios(stats.bootstrap(scores(rows)))
    assert list(frame["value"]) == [1.5, 0.5, 1.0, 3.0]
    assert list(frame["method"]) == ["bc", "cql", "cql", "cql"]


def test_profiles_count_runs_above_the_threshold():
    two = scores(table_rows({("mine", "cql"): [[1.0], [2.0]]}))
    frame = stats.profiles(stats.bootstrap(two, n=50), np.array([1.0]))
    assert only(frame, threshold=1.0)["value"] == 0.5


def test_a_tie_is_half_a_win():
    # 1 against 1 and 3, 2 against 1 and 3: half, no, yes, no
    assert contrasts._beats(np.array([[1.0, 2.0]]), np.array([[1.0, 3.0]])).tolist() == [1.5 / 4]


def test_improvement_by_hand():
    rows = table_rows({("a", "cql"): [[1.0], [2.0]], ("a", "bc"): [[2.0], [3.0]]})
    row = only(contrasts.improvement(stats.bootstrap(scores(rows))))
    assert row["value"] == 0.875  # 2>1, 2=2, 3>1, 3>2
    assert 0 <= row["low"] <= row["high"] <= 1


def test_a_baseline_that_is_not_there_is_an_error():
    replicates = stats.bootstrap(scores(table_rows({("a", "bc"): [[1.0]]})))
    for function in (
        contrasts.relative,
        contrasts.differences,
        contrasts.improvement,
        contrasts.ratios,
    ):
        with pytest.raises(UserError, match="no runs of the baseline 'cql'"):
            function(replicates)


def test_results_say_their_split_and_number_of_seeds(rows, replicates):
    frame = stats.aggregates(replicates)
    assert set(frame["split"]) == {"unseen"}
    assert set(frame["mode"]) == {"greedy"}
    assert only(frame, method="random", statistic="iqm")["n_seeds"] == 1
    assert only(frame, method="cql", statistic="iqm")["n_seeds"] == 5
    one_missing = rows[~((rows["game"] == "maze") & (rows["method"] == "cql") & (rows["seed"] > 1))]
    fewer = stats.aggregates(stats.bootstrap(scores(one_missing), n=20))
    assert only(fewer, method="cql", statistic="iqm")["n_seeds"] == 2


def test_curves_end_at_the_headline(rows):
    steps = [100, 500, 1000]
    rows = evaluation_rows(**SMALL, methods=["random", "cql"], steps=steps)
    frame = stats.curves(rows, n=100)
    assert list(frame[frame["method"] == "cql"]["step"]) == steps
    last = only(frame, method="cql", step=1000)
    headline = only(stats.aggregates(stats.bootstrap(scores(rows))), method="cql", statistic="iqm")
    assert last["value"] == headline["value"]
    assert only(frame, method="cql", step=100)["value"] < last["value"]
    assert frame[frame["method"] == "random"]["value"].nunique() == 1


def test_ablations_are_the_variants_of_a_method_that_differ_in_one_option():
    bins = [f"gsf-reward+label.n_bins={k}" for k in (11, 3)]
    both = "gsf-reward+label.n_bins=3+gsf.tau=0.1"
    alone = "bc+train.encoder=shallow"  # bc itself was not run
    rows = evaluation_rows(**SMALL, methods=["cql", "gsf-reward", *bins, both, alone])
    replicates = stats.bootstrap(scores(rows), n=50)
    found = stats.ablations(replicates)
    assert list(found) == ["bc\ntrain.encoder", "gsf-reward\nlabel.n_bins"]
    frame = found["gsf-reward\nlabel.n_bins"]
    assert list(frame["setting"]) == ["default", "3", "11"]
    assert set(frame["method"]) == {"gsf-reward"}
    expected = metrics.aggregate_iqm(matrix(scores(rows), bins[0]))
    assert only(frame, setting="11")["value"] == pytest.approx(expected)
    assert list(found["bc\ntrain.encoder"]["setting"]) == ["shallow"]
    assert stats.ablations(stats.bootstrap(scores(rows[rows["method"] == "cql"]), n=9)) == {}


def test_the_whole_benchmark_takes_seconds():
    # 16 games, 11 methods and the references, 5 seeds, 200 levels: a quarter of a whole report's
    rows = evaluation_rows(splits=["unseen"], modes=["greedy"])
    started = time.process_time()
    replicates = stats.bootstrap(scores(rows))
    for function in (
        stats.aggregates,
        contrasts.relative,
        contrasts.improvement,
        contrasts.differences,
    ):
        assert len(function(replicates))
    assert time.process_time() - started < 10


def test_entropies_belong_to_their_runs():
    rows = table_rows(
        {("coinrun", "cql"): [[1.0, 3.0], [5.0, 7.0]], ("coinrun", "bc"): [[1.0] * 2]}
    )
    rows = rows.assign(entropy=[0.5, 1.5, 2.0, 4.0, 0.2, 0.4])
    runs = stats.by_entropy(scores(rows))
    found = runs[runs["method"] == "cql"].set_index("seed")
    assert found["entropy"].to_dict() == {0: 1.0, 1: 3.0}
    assert found["value"].to_dict() == {0: 2.0, 1: 6.0}
    frame = stats.entropies(scores(rows))
    assert only(frame, method="cql")["value"] == 2.0
    assert only(frame, method="bc")["value"] == pytest.approx(0.3)
    assert only(frame, method="cql")["n_seeds"] == 2
