"""`gsf bench` measures what it says, at the smallest size; no test asserts a speed."""

import json

from gsf.bench.data import BenchDataConfig, bench_data
from gsf.bench.train import BenchTrainConfig, bench_train, take_turns


def test_bench_data_reports_speeds_ratios_and_memory(tmp_path):
    config = BenchDataConfig(
        "fruitbot", transitions=2048, workdir=tmp_path, out=tmp_path / "n.json"
    )
    numbers = bench_data(config)
    assert json.loads((tmp_path / "n.json").read_text()) == numbers
    assert all(value > 0 for value in numbers.values())
    slowest = min(numbers[f"{what}, frames/s"] for what in ("step", "hash", "write"))
    ratio = numbers["materialise, frames/s"] / slowest
    assert numbers["materialise / slowest of step, hash, write"] == ratio
    assert numbers["materialise, peak resident MB"] < 600
    assert [path.name for path in tmp_path.iterdir()] == ["n.json"]


def test_bench_train_compares_methods_with_cql(tmp_path):
    config = BenchTrainConfig(
        encoder="impala_small",
        batch=8,
        rounds=1,
        methods=("gsf-reward",),
        memory=False,
        transitions=2048,
    )
    numbers = bench_train(config)
    assert numbers["cql, time / cql"] == 1
    assert numbers["gsf-reward, time / cql"] > 0
    assert numbers["cql step / matrix multiply"] > 0


def test_turns_are_taken_by_all():
    calls = []
    take_turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2)
    assert calls == ["a", "b"] * 3
