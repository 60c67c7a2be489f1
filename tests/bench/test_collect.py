"""`gsf bench collect`: updates are counted by the core's time, and what lacks is said first."""

import sys
from pathlib import Path

import pytest

from gsf.behaviour.options import ON_CPU
from gsf.bench.collect import BenchCollectConfig, bench_collect
from gsf.core.errors import UserError

PEER = """
import sys, time
assert sys.argv[1:] == ["--env-id", "coinrun", "--no-cuda", "--num-steps", "2",
                        "--total-timesteps", "1000000000"]
print("global_step=64, episodic_return=1.0")
while True:
    until = time.process_time() + {seconds}
    while time.process_time() < until:
        pass
    print("SPS: 1")
"""


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "cleanrl").mkdir()
    return tmp_path


def write(checkout: Path, text: str) -> BenchCollectConfig:
    (checkout / "cleanrl" / "ppo_procgen.py").write_text(text)
    facts = {"encoders": ("nature",), "n_steps": 2, "rounds": 2, "default": False}
    return BenchCollectConfig(**facts, against=checkout)


def test_an_update_of_theirs_counts_by_the_cores_time_and_waits_for_ours(checkout):
    numbers = bench_collect(write(checkout, PEER.format(seconds=0.2)))
    theirs = numbers["CleanRL, impala, frames per core-second"]
    assert 64 * 2 / 0.4 < theirs < 64 * 2 / 0.17  # 0.2 seconds, in ticks of a hundredth
    for precision in ("float32", "bf16"):
        ours = numbers[f"ours, nature, {precision}, frames per core-second"]
        assert ours > 0
        assert numbers[f"ours, nature, {precision} / CleanRL"] > 0


def test_our_default_counts_the_frames_of_held_actions(monkeypatch):
    small = ON_CPU | {"n_envs": 2, "n_steps": 4, "minibatches": 2}
    monkeypatch.setattr("gsf.bench.collect.ON_CPU", small)
    counted = []
    monkeypatch.setattr(
        "gsf.bench.collect._timed", lambda ppo, frames: counted.append(frames) or (lambda: 0.5)
    )
    numbers = bench_collect(BenchCollectConfig(encoders=("nature",), n_steps=2, rounds=1))
    assert counted == [64 * 2, 64 * 2, 2 * 4 * 2, 2 * 4 * 2]
    assert numbers["ours, gsf collect without a GPU, bf16, frames per core-second"] == 2


def test_what_cannot_be_run_is_said_before_anything_is_measured(checkout, monkeypatch):
    monkeypatch.setattr("gsf.bench.collect._ppo", lambda *_: pytest.fail("ours was begun"))
    with pytest.raises(UserError, match="no checkout of CleanRL"):
        bench_collect(BenchCollectConfig(against=checkout))
    config = write(checkout, "raise ValueError('not enough values')")
    with pytest.raises(UserError, match=r"cannot be run: ValueError: not enough .*gym 0\.23\.1"):
        bench_collect(config)
    monkeypatch.setattr("gsf.bench.collect.NEEDS", ("torch", "not_here", "nor_this"))
    with pytest.raises(UserError, match=f"needs not_here, nor_this, which {sys.executable} lacks"):
        bench_collect(config)
    with pytest.raises(UserError, match="no Python that runs"):
        bench_collect(BenchCollectConfig(against=checkout, python=Path("nowhere")))
