"""`gsf bench` measures what it says, at the smallest size; no test asserts a speed."""

import json
from dataclasses import replace

import pytest

from gsf.bench.data import BenchDataConfig, bench_data
from gsf.bench.measure import take_turns
from gsf.bench.options import BenchSharedConfig
from gsf.bench.peers import PEERS, find_peer
from gsf.bench.shared import bench_shared
from gsf.bench.train import BenchTrainConfig, bench_train
from gsf.core.errors import UserError


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
    assert 0 < numbers["cql step / limit"] < 1


def test_turns_are_taken_by_all_and_the_first_does_not_count():
    calls, clock = [], iter(range(6))

    def timer(name):
        return lambda: calls.append(name) or next(clock)

    taken = take_turns({"a": timer("a"), "b": timer("b")}, rounds=2, what="bench")
    assert calls == ["a", "b"] * 3
    assert taken == {"a": [2, 4], "b": [3, 5]}


def test_bench_shared_measures_every_stage_quiet_and_busy():
    numbers = bench_shared(BenchSharedConfig(grad_steps=1, rounds=1, batch=8, transitions=2048))
    for stage in ("collect", "materialise", "fit", "train", "evaluate"):
        assert numbers[f"{stage}, quiet, seconds"] > 0
        assert numbers[f"{stage}, busy / quiet speed"] > 0


def test_a_peer_takes_turns_with_ours(tmp_path, monkeypatch):
    """Its code is somebody else's and not here: a checkout that is laid out like it."""
    agents = tmp_path / "procgen" / "offline" / "agents"
    agents.mkdir(parents=True)
    (agents / "ddqn_cql.py").write_text(
        "class CQL:\n"
        "    def __init__(self, space, n_actions, **options): self.shape = space.shape\n"
        "    def train(self): pass\n"
        "    def train_step(self, obs, action, reward, next_obs, done):\n"
        "        assert obs.shape[1:] == next_obs.shape[1:] == (3, 64, 64)\n"
    )
    config = BenchTrainConfig(
        encoder="nature",
        methods_encoder="nature",
        batch=8,
        rounds=1,
        methods=("cql",),
        memory=False,
        transitions=2048,
        against=(tmp_path,),
    )
    numbers = bench_train(config)
    assert numbers["gen_dgrl's cql step, impala, batch 8, transitions/s"] > 0
    assert numbers["ours / gen_dgrl"] > 0
    (agents / "ddqn_cql.py").write_text("import nowhere_to_be_found\n")
    with pytest.raises(UserError, match=r"gen_dgrl .* cannot be run: ModuleNotFoundError"):
        bench_train(config)
    wanting = replace(PEERS["gen_dgrl"], needs=("torch", "not_here", "nor_this"))
    monkeypatch.setitem(PEERS, "gen_dgrl", wanting)
    with pytest.raises(UserError, match=r"gen_dgrl in .* needs not_here, nor_this; install"):
        bench_train(config)
    with pytest.raises(UserError, match="no checkout of gen_dgrl or d3rlpy"):
        find_peer(tmp_path / "procgen")
