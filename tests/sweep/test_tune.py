import pandas as pd
import pytest

from given import given
from gsf.learn import bases, methods
from gsf.learn.learner import AgentConfig
from gsf.sweep.run import RunConfig
from gsf.sweep.tune import choose, trials


def rows(method: str, trial: int, greedy: list[float], softmax: list[float]) -> pd.DataFrame:
    played = {"greedy": greedy, "sampled": softmax}
    return pd.DataFrame(
        [
            {"game": "coinrun", "method": method, "trial": trial, "setting": f"s{trial}"}
            | {"mode": mode, "level": level, "step": step, "return": value, "temperature": 0.7}
            for mode, values in played.items()
            for level, better in enumerate(values)
            for step, value in ((600, 100.0), (2_000, better))  # a shorter tuning was there before
        ]
    )


@pytest.mark.parametrize("update", ["joint", "alternating"])
@pytest.mark.parametrize("base", bases.names())
def test_every_method_has_four_different_trials_and_the_first_is_the_default(base, update):
    for method in [*methods.all_methods(), "gsf-reward+curl"]:
        on = None if method in bases.names() else base
        config = AgentConfig(method=method, on=on, update=update)
        chosen = [_decisive(config, trial) for trial in trials(config)]
        assert len(set(chosen)) == 4
        assert chosen[0] == _decisive(config, ())


def _decisive(config: AgentConfig, trial: tuple[str, ...]) -> tuple[object, ...]:
    """What the trial comes to, without options that have no part in it."""
    on = f"train.on={config.on or config.method}"
    run = RunConfig(methods=(config.method,), options=given(on, *trial))
    [method] = run.find_methods()
    resolved = run.stage("train", method, dataset=".", out=".").resolved()
    joint, aux = config.update == "joint", method.method.losses
    return (
        resolved.lr,
        resolved.parts[method.method.base.name],
        *(resolved.parts[loss.name].weight for loss in aux if joint),
        resolved.aux_lr if aux and not joint else None,
    )


def test_the_best_sampled_return_is_chosen_for_each_method():
    table = choose(
        pd.concat(
            [
                rows("bc", 0, [10, 10], [5, 0]),  # greedy has no say
                rows("bc", 1, [5, 0], [5, 5]),
                rows("cql", 0, [1, 1], [1, 1]),
                rows("cql", 1, [1, 1], [1, 1]),  # of equals the first
            ]
        ),
        step=2_000,
    )
    assert table["sampled"].tolist() == pytest.approx([2.5, 5, 1, 1])
    assert table["greedy"].tolist() == pytest.approx([10, 2.5, 1, 1])
    assert set(table["temperature"]) == {0.7}
    assert table.loc[table["chosen"], ["method", "trial"]].to_numpy().tolist() == [
        ["bc", 1],
        ["cql", 0],
    ]
