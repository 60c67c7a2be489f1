import pandas as pd
import pytest

from gsf.bench.cost import BenchCostConfig, bench_cost, pass_flops
from gsf.core.errors import UserError
from gsf.nets.encoders import Encoder


def test_a_forward_pass_has_the_operations_of_its_layers():
    convolutions = 15 * 15 * 32 * (8 * 8 * 3) + 6 * 6 * 64 * (4 * 4 * 32) + 4 * 4 * 64 * (9 * 64)
    layers = 1024 * 256 + 256 * 256 + 256 * 256
    found = pass_flops(Encoder((64, 64, 3), "nature"), (64, 64, 3))
    assert found["forward"] == 2 * (convolutions + layers)
    # backward: once more for the inputs of all layers but the first, once for all weights
    first = 15 * 15 * 32 * (8 * 8 * 3)
    assert found["both"] == 3 * found["forward"] - 2 * first


def test_hours_are_operations_and_frames_by_their_speeds():
    config = BenchCostConfig(tflops=100, utilisation=0.1, frames_per_second=1000)
    assert config.hours(3.6e16, 0) == pytest.approx(1)
    assert config.hours(0, 3.6e6) == pytest.approx(1)
    assert config.hours(3.6e16, 3.6e6) == pytest.approx(2)


def test_the_table_adds_up_and_more_gpus_take_less_time(tmp_path):
    config = BenchCostConfig("smoke", 2, ("bc", "cql", "gsf-reward"), 3, out=tmp_path / "cost.csv")
    hours = bench_cost(config)
    table = pd.read_csv(tmp_path / "cost.csv").set_index("stage")
    assert list(table.index) == [
        "collect",
        "materialise",
        "train bc",
        "train cql",
        "train gsf-reward",
        "evaluate",
        "all",
    ]
    assert hours["train bc"] < hours["train cql"] < hours["train gsf-reward"]
    twice = bench_cost(BenchCostConfig("smoke", 2, ("bc",), 6))
    assert twice["train bc"] == pytest.approx(2 * hours["train bc"])
    assert twice["collect"] == pytest.approx(hours["collect"])


def test_no_gpus_are_refused():
    with pytest.raises(UserError, match="--gpus must be between 1"):
        BenchCostConfig(gpus=(1, 0))
