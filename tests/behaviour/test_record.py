"""Recordings of a user's own environment: replayed, refused, or a dataset where it cannot be."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import gsf.behaviour.record
import gsf.core.loop
import gsf.data.recording
import gsf.data.replay
from given import given
from gsf.behaviour.collect import CollectConfig, collect
from gsf.cli import main
from gsf.core import registry
from gsf.core.errors import UserError
from gsf.core.sealed import load_checkpoint, save_checkpoint
from gsf.data.dataset import Dataset
from gsf.data.recording import Recording
from gsf.evaluation.evaluate import EvaluateConfig, evaluate
from gsf.suites import gymnasium
from gsf.sweep.options import RunConfig
from gsf.sweep.plan import resolve

WALKS = Path(__file__).parents[1] / "walks.py"
SMALL = {"n_envs": 4, "n_levels": 5, "device": "cpu", "tensorboard": False}


pytestmark = pytest.mark.usefixtures("forget")


@pytest.fixture
def recorded(tmp_path):
    options = {"out": tmp_path / "play", "player": "random", "transitions": 800, **SMALL}
    return collect(CollectConfig(env=f"{WALKS}:make", **options))


def test_a_recording_says_what_it_is_play_in(recorded, capsys):
    assert recorded.name == "walks.gsfrec"  # named like the file
    recording = Recording.load(recorded)
    assert recording.env == {
        "spec": f"{WALKS}:make",
        "code": registry.digest_file(WALKS),
        "obs_shape": [12, 12, 3],
        "n_actions": 3,
    }
    assert main(["data", "info", str(recorded)]) == 0
    assert "walks.py:make" in capsys.readouterr().out


def test_it_replays_where_its_file_is_named_and_nowhere_else(recorded, tmp_path):
    command = [sys.executable, "-m", "gsf", "materialise", str(recorded), "--out"]
    refused = subprocess.run([*command, "a"], cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "is code of a file; if you trust it, name the file" in " ".join(refused.stderr.split())
    again = [*command, "data", "--code", str(WALKS)]
    assert subprocess.run(again, cwd=tmp_path, check=False).returncode == 0
    data = Dataset.open(tmp_path / "data")
    assert (len(data), data.n_actions, data.n_levels) == (800, 3, 5)
    assert data.manifest["pixels_match"]


def test_a_sweep_takes_it_with_its_environment(recorded, tmp_path):
    with pytest.raises(UserError, match=r"is play in .*walks.py:make; name it with --env"):
        resolve(RunConfig(recordings=(str(recorded),)))
    config = RunConfig(
        recordings=(str(recorded),),
        env=f"{WALKS}:make",
        options=given("materialise.transitions=800"),
    )
    plan = resolve(config)
    assert plan.sources["walks"].env == f"{WALKS}:make"
    changed = tmp_path / "walks.py"
    changed.write_text(WALKS.read_text() + "\n")
    with pytest.raises(UserError, match="is not as it was when"):
        resolve(RunConfig(recordings=(str(recorded),), env=f"{changed}:make"))


def test_what_does_not_repeat_itself_becomes_a_dataset(tmp_path, capsys):
    config = CollectConfig(
        env=f"{WALKS}:noisy", out=tmp_path, player="random", transitions=200, **SMALL
    )
    path = collect(config)
    said = " ".join(capsys.readouterr().err.split())
    assert "walks.py:noisy does not repeat itself (its images differ after 0 steps)" in said
    assert path == tmp_path / "dataset"
    data = Dataset.open(path)
    assert (len(data), data.n_actions) == (200, 3)
    assert set(np.unique(data.level)) <= set(range(5))
    assert not list(tmp_path.glob("*.gsfrec"))
    assert collect(config) == path
    assert "is there already" in " ".join(capsys.readouterr().err.split())


def test_what_departs_later_is_found_before_the_recording_counts(tmp_path):
    config = CollectConfig(
        env=f"{WALKS}:late", out=tmp_path, player="random", transitions=1600, **SMALL
    )
    with pytest.raises(UserError, match=r"does not repeat itself: .*add --plain"):
        collect(config)
    assert not list(tmp_path.glob("*.gsfrec"))


def test_ppo_learns_in_it_and_goes_on_bit_for_bit(tmp_path):
    ppo = {"encoder": "impala_small", "n_steps": 8, "minibatches": 1, "epochs": 1}
    options = {"env": f"{WALKS}:make", "transitions": 100, **ppo, **SMALL}
    first = CollectConfig(out=tmp_path / "a", frames=32, **options)
    collect(first)
    whole = collect(CollectConfig(out=tmp_path / "b", frames=64, **options))
    gone_on = collect(CollectConfig(out=tmp_path / "a", frames=64, **options))
    assert whole.read_bytes() == gone_on.read_bytes()
    provenance = Recording.load(whole).takes[0].policy
    assert (provenance["frames"], provenance["obs_shape"]) == (64, [12, 12, 3])
    gymnasium.games.clear()
    evaluated = EvaluateConfig(
        str(tmp_path / "b"), tmp_path / "rows.csv", env=f"{WALKS}:make", levels=("1000..1002",)
    )
    rows = evaluate(evaluated)
    assert set(rows["method"]) == {"behaviour"}
    assert set(rows["game"]) == {"walks"}
    manifest = json.loads((tmp_path / "b/manifest.json").read_text())
    assert manifest["inputs"]["env"] == registry.digest_file(WALKS)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("steps", [1, 2, 7, 8])  # 8 are played between two updates
def test_episodes_of_any_length_go_on_to_the_same_bytes(tmp_path, monkeypatch, steps):
    """Some slots, or all, are at an episode's start when the state is saved."""
    for module in (gsf.data.recording, gsf.data.replay):
        monkeypatch.setattr(module, "BLOCK", 16)
    env = tmp_path / "short.py"
    never_won = WALKS.read_text().replace("self.place == self.goal", "False")
    env.write_text(never_won.replace("MOST_STEPS = 12, 30", f"MOST_STEPS = 12, {steps}"))
    ppo = {"encoder": "impala_small", "frames": 96, "n_steps": 8, "minibatches": 1, "epochs": 1}
    options = {"env": f"{env}:make", "transitions": 4 * 48, "checkpoint_seconds": 0.0, **ppo}
    whole = collect(CollectConfig(out=tmp_path / "whole", **options, **SMALL))
    saves = 0

    def killed_after(*arguments):
        nonlocal saves
        save_checkpoint(*arguments)
        saves += 1
        raise Killed

    for module in (gsf.core.loop, gsf.behaviour.record):
        monkeypatch.setattr(module, "save_checkpoint", killed_after)
    config = CollectConfig(out=tmp_path / "killed", **options, **SMALL)
    for _ in range(6):  # three updates, three blocks
        with pytest.raises(Killed):
            collect(config)
    assert collect(config).read_bytes() == whole.read_bytes()
    assert saves == 6
    policies = [load_checkpoint(tmp_path / x / "policy.pt")["net"] for x in ("whole", "killed")]
    assert all(torch.equal(policies[0][name], policies[1][name]) for name in policies[0])


def test_which_game_is_asked_and_plain_needs_an_environment():
    with pytest.raises(UserError, match=r"which game\? Give --game, or your own as --env"):
        CollectConfig()
    with pytest.raises(UserError, match="--plain is for --env"):
        CollectConfig(game="coinrun", plain=True)
