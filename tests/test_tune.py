import pandas as pd
import pytest

from gsf.sweep import RunConfig, all_methods
from gsf.tune import choose, trials


def rows(method: str, trial: int, greedy: list[float], softmax: list[float]) -> pd.DataFrame:
    played = {"greedy": greedy, "softmax": softmax}
    return pd.DataFrame(
        [
            {"game": "coinrun", "method": method, "trial": trial, "setting": f"s{trial}"}
            | {"mode": mode, "level": level, "return": value}
            for mode, values in played.items()
            for level, value in enumerate(values)
        ]
    )


def test_every_method_has_as_many_trials_and_all_are_settings():
    for method in all_methods():
        assert len(set(trials(method))) == 4
        for trial in trials(method):
            RunConfig(set=trial)  # refuses what no stage knows


def test_the_first_trial_is_the_default():
    default = RunConfig().stage("train", None, dataset=".", out=".", method="cql").resolved()
    for method in ("bc", "cql", "curl"):
        tuned = RunConfig(set=trials(method)[0]).stage("train", None, dataset=".", out=".")
        tuned = tuned.resolved()
        assert (tuned.lr, tuned.cql_alpha, tuned.aux_weight) == (
            default.lr,
            default.cql_alpha,
            default.aux_weight,
        )


def test_the_best_mean_over_both_modes_is_chosen_for_each_method():
    table = choose(
        pd.concat(
            [
                rows("bc", 0, [10, 0], [0, 0]),  # 5 and 0: 2.5
                rows("bc", 1, [5, 0], [5, 5]),  # 2.5 and 5: 3.75
                rows("cql", 0, [1, 1], [1, 1]),
                rows("cql", 1, [1, 1], [1, 1]),  # of equals the first
            ]
        )
    )
    assert table["mean"].tolist() == pytest.approx([2.5, 3.75, 1, 1])
    assert table["greedy"].tolist() == pytest.approx([5, 2.5, 1, 1])
    assert table.loc[table["chosen"], ["method", "trial"]].to_numpy().tolist() == [
        ["bc", 1],
        ["cql", 0],
    ]
