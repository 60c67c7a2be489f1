"""gsf collect on real Procgen: killed and resumed to the same bits, with the right epsilon."""

import dataclasses
import json
import multiprocessing
import random
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from gsf.behaviour.collect import CollectConfig, collect
from gsf.behaviour.policy import load_policy, save_policy
from gsf.behaviour.ppo import PPO, ActorCritic
from gsf.core.errors import UserError
from gsf.core.logs import read_metrics
from gsf.core.sealed import load_checkpoint
from gsf.core.stage import read_manifest
from gsf.data.recording import BLOCK, Recording
from gsf.data.replay import Recorder, Replay
from gsf.suites import facts_of, make_env
from signals import stopped

WALKS = Path(__file__).parents[1] / "walks.py"
TINY = {
    "game": "fruitbot",
    "frames": 1536,
    "transitions": 4 * 2100,
    "n_envs": 4,
    "n_steps": 32,
    "minibatches": 2,
    "epochs": 1,
    "encoder": "nature",
    "view": "game",
    "n_levels": 8,
    "checkpoint_seconds": 0.0,
    "device": "cpu",
    "tensorboard": False,
}
# Forks from a process that has imported torch already: a start costs little.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["gsf.behaviour.collect", "torch._dynamo"])


def run(config):
    torch.set_num_threads(1)
    collect(config)


def start(config):
    process = PROCESSES.Process(target=run, args=(config,))
    process.start()
    return process


def kill_when(process, ready):
    """SIGKILL, at some moment after `ready()`."""
    while not ready():
        assert process.is_alive()
        time.sleep(0.002)
    time.sleep(random.uniform(0, 0.03))
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, "it was over before it could be killed"


@pytest.mark.procgen
def test_killed_and_started_again_it_comes_to_the_same_bits(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    held = {"view": "plain", "hold": 2, "frames": 3072}
    config = CollectConfig(**TINY | held, out=killed)

    def n_rows():
        return len(read_metrics(killed / "metrics.jsonl"))

    kill_when(start(config), lambda: n_rows() >= random.randint(1, 3))
    at_kill = n_rows()
    kill_when(start(config), lambda: n_rows() >= at_kill + 1)
    assert not (killed / "policy.pt").exists()
    kill_when(start(config), (killed / "recording.pt").exists)
    assert not (killed / "DONE").exists()
    last = start(config)
    collect(dataclasses.replace(config, out=whole))
    last.join()
    assert last.exitcode == 0

    one, other = (load_checkpoint(path / "checkpoint.pt") for path in (whole, killed))
    for name, weight in one["net"].items():
        assert torch.equal(weight, other["net"][name]), name
    for one_state, other_state in zip(
        one["optimizer"]["state"].values(), other["optimizer"]["state"].values(), strict=True
    ):
        assert all(torch.equal(one_state[k], other_state[k]) for k in one_state)
    assert one["rng"] == other["rng"]
    for name in ("policy.pt", "fruitbot.gsfrec"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), name
    manifests = [read_manifest(path, "policy") for path in (whole, killed)]
    assert manifests[0]["digest"] == manifests[1]["digest"]
    curves = [read_metrics(path / "metrics.jsonl") for path in (whole, killed)]
    for a, b in zip(*curves, strict=True):
        timeless = set(a) - {"ppo/seconds", "ppo/frames_per_second"}
        assert {k: a[k] for k in timeless} == {k: b[k] for k in timeless}
    assert [row["step"] for row in curves[0]] == list(range(256, 3073, 256))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("trained")
    config = CollectConfig(
        **TINY | {"frames": 200, "transitions": 10, "tensorboard": True}, out=out
    )
    collect(config)
    return config


def test_what_a_finished_directory_holds(trained, capsys):
    out = trained.out
    manifest = read_manifest(out, "policy")
    assert manifest["config"]["lr"] == 5e-4
    assert list((out / "tensorboard").iterdir())
    names = {"entropy", "policy_loss", "value_loss", "kl", "clip_fraction"}
    names |= {"frames_per_second", "seconds"}
    rows = read_metrics(out / "metrics.jsonl")
    assert {f"ppo/{name}" for name in names} | {"step"} <= set(rows[-1])
    assert 1.3 < rows[-1]["ppo/entropy"] <= np.log(4) + 1e-6  # fruitbot has four actions
    recording = Recording.load(out / "fruitbot.gsfrec")
    assert len(recording) == 12  # three steps of each env
    provenance = recording.takes[0].policy
    assert provenance["algorithm"] == "ppo"
    assert provenance["frames"] == 256  # whole updates
    assert provenance["digest"] == load_policy(out).provenance["digest"]
    assert str(out) not in json.dumps(provenance)

    before = {path: path.stat().st_mtime_ns for path in out.iterdir() if path.name != ".lock"}
    capsys.readouterr()
    assert collect(trained) == out / "fruitbot.gsfrec"
    assert "is there already" in capsys.readouterr().err
    assert before == {p: p.stat().st_mtime_ns for p in before}


def test_training_may_be_cut_short_while_it_lasts(trained, tmp_path, monkeypatch):
    iterate = PPO.iterate

    def interrupted(ppo):
        if ppo.frames:
            raise KeyboardInterrupt
        return iterate(ppo)

    longer = dataclasses.replace(trained, frames=10_000, out=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(PPO, "iterate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            collect(longer)
    collect(dataclasses.replace(longer, frames=200))
    assert (tmp_path / "policy.pt").read_bytes() == (trained.out / "policy.pt").read_bytes()


def test_asked_to_stop_it_loses_no_update_of_the_policy(trained, tmp_path):
    config = dataclasses.replace(trained, out=tmp_path)
    said = stopped(collect, config, PPO, "iterate", at=1)
    assert said == f"frame 128 of 200 is saved in {tmp_path}"
    collect(config)
    for name in ("policy.pt", "fruitbot.gsfrec"):
        assert (tmp_path / name).read_bytes() == (trained.out / name).read_bytes()


def test_asked_to_stop_it_loses_no_block_of_a_recording(tmp_path):
    options = TINY | {"player": "random", "n_envs": 1, "transitions": BLOCK + 1}
    config = CollectConfig(**options, out=tmp_path / "parts")
    said = stopped(collect, config, Recorder, "add", at=1)
    assert said == f"1,024 of 1,025 recorded frames are saved in {config.out}"
    whole = collect(dataclasses.replace(config, out=tmp_path / "whole"))
    assert collect(config).read_bytes() == whole.read_bytes()


def test_the_policy_is_kept_that_first_gets_a_part_of_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr("gsf.behaviour.ppo.N_RECENT", 6)
    options = TINY | {"transitions": 400}
    config = CollectConfig(**options, keep_weak=True, out=tmp_path)
    monkeypatch.setattr("gsf.behaviour.collect.WEAK", 1.0)
    stopped(collect, config, PPO, "iterate", at=3)
    assert not (tmp_path / "weak.pt").exists()  # so far it has not come
    monkeypatch.setattr("gsf.behaviour.collect.WEAK", -1.0)
    collect(config)
    weak, last = load_policy(tmp_path / "weak.pt"), load_policy(tmp_path)
    returns = {
        row["step"]: row.get("ppo/return") for row in read_metrics(tmp_path / "metrics.jsonl")
    }
    assert 3 * 128 < weak.provenance["frames"] < last.provenance["frames"] == TINY["frames"]
    assert weak.provenance["return"] == returns[weak.provenance["frames"]]
    path = collect(CollectConfig(**options, policy=tmp_path / "weak.pt", out=tmp_path / "weak"))
    assert Recording.load(path).takes[0].policy["digest"] == weak.provenance["digest"]


def test_other_options_in_the_same_directory_are_refused(trained):
    for option, value in (("lr", 1e-3), ("seed", 1), ("frames", 100)):
        with pytest.raises(UserError, match=f"holds a policy with --{option} .*, not {value}"):
            collect(dataclasses.replace(trained, **{option: value}))
    collect(dataclasses.replace(trained, checkpoint_seconds=5.0))  # decides nothing


def test_a_directory_with_something_else_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match="is damaged"):
        collect(CollectConfig(**TINY, out=tmp_path))


def test_a_trained_policy_can_be_recorded_on_other_levels(trained, tmp_path):
    options = TINY | {"transitions": 400, "start_level": 500_000, "policy": trained.out}
    path = collect(CollectConfig(**options, out=tmp_path / "validation"))
    recording = Recording.load(path)
    assert recording.levels == list(range(500_000, 500_008))
    manifest = read_manifest(tmp_path / "validation", "recording")
    assert manifest["inputs"]["policy"] == recording.takes[0].policy["digest"]
    assert not (tmp_path / "validation" / "policy.pt").exists()
    with pytest.raises(UserError, match=r"was trained on fruitbot \(easy\), not on maze"):
        collect(CollectConfig(**options | {"game": "maze"}, out=tmp_path / "maze"))


def test_random_play_is_uniform_and_replays(tmp_path):
    path = collect(CollectConfig(**TINY | {"player": "random", "transitions": 6000}, out=tmp_path))
    take = Recording.load(path).takes[0]
    assert take.policy["algorithm"] == "random"
    assert take.epsilon == {"schedule": "constant", "first": 1.0, "last": 1.0}
    actions, counts = np.unique(take.actions, return_counts=True)
    assert actions.tolist() == [1, 4, 7, 9]  # left, nothing, right, fire: fruitbot's four
    assert np.abs(counts - 1500).max() < 5 * 40
    replay = Replay(Recording.load(path), take)
    rewards = sum(float(block.reward.sum()) for block in replay)
    assert rewards != 0
    assert replay.pixel_mismatches == 0


@pytest.mark.parametrize(("epsilon", "last"), [("decay", 0.01), ("literal", 0.1)])
def test_exploration_follows_the_schedule(tmp_path, epsilon, last):
    """A policy that always does 3 shows how often another action was drawn."""
    net = ActorCritic("nature", (64, 64, 3), 15)
    with torch.no_grad():
        net.policy.weight.zero_()
        net.policy.bias.zero_()
        net.policy.bias[3] = 100.0
    made = {"game": "fruitbot", "difficulty": "easy", "encoder": "nature"}
    save_policy(tmp_path / "threes.pt", net, made)
    options = TINY | {"n_envs": 16, "n_steps": 8, "transitions": 12_800, "epsilon": epsilon}
    out = tmp_path / epsilon
    take = Recording.load(
        collect(CollectConfig(**options, policy=tmp_path / "threes.pt", out=out))
    ).takes[0]
    other = (take.actions != 3).reshape(5, -1).mean(1)  # fifths of 2560 draws
    expected = np.array([0.09, 0.07, 0.05, 0.03, 0.01]) if epsilon == "decay" else np.full(5, 0.1)
    expected = expected * 14 / 15
    assert np.abs(other - expected).max() < 5 * np.sqrt(0.1 / 2560)
    assert other[-1] == pytest.approx(last, abs=0.02)
    assert take.epsilon["first"] == 0.1
    # drawn per env: in one step some explore and some do not
    assert ((take.actions[:160] != 3).sum(1) == 16).sum() == 0


def test_a_policy_acts_without_a_dataset(trained):
    policy = load_policy(trained.out)
    obs = make_env("fruitbot", range(8), 6, seed=0).reset()[0]
    probs = policy.act_probs(obs)
    assert probs.shape == (6, 15)
    assert probs.sum(1) == pytest.approx(np.ones(6), abs=1e-5)
    assert np.array_equal(probs, load_policy(trained.out / "policy.pt").act_probs(obs))
    logits = policy.net(torch.from_numpy(obs))[0]
    chosen = logits.softmax(1).detach().numpy()
    assert probs[:, [1, 4, 7, 9]] == pytest.approx(chosen, abs=1e-6)


def test_a_policy_looks_its_game_up_once(monkeypatch):
    asked = []
    monkeypatch.setattr("gsf.behaviour.policy.facts_of", lambda x: asked.append(x) or facts_of(x))
    policy = load_policy("coinrun")
    before = len(asked)
    for _ in range(3):
        policy.act_probs(np.zeros((1, 64, 64, 3), np.uint8))
    assert len(asked) <= before + 1


def test_a_trained_policy_is_trained_further_to_what_it_would_have_been(trained, tmp_path):
    out, whole = tmp_path / "further", tmp_path / "whole"
    shutil.copytree(trained.out, out)
    further = dataclasses.replace(trained, frames=500, out=out)
    collect(further)
    collect(dataclasses.replace(further, out=whole))
    for name in ("policy.pt", "fruitbot.gsfrec"):
        assert (whole / name).read_bytes() == (out / name).read_bytes(), name
    assert load_policy(out).provenance["frames"] == 512


def test_a_policy_of_another_directory_is_trained_further(trained, tmp_path, monkeypatch):
    first = load_policy(trained.out)
    begun = []
    iterate = PPO.iterate

    def noting(ppo):
        begun.append((ppo.frames, {k: x.clone() for k, x in ppo.net.state_dict().items()}))
        return iterate(ppo)

    monkeypatch.setattr(PPO, "iterate", noting)
    further = dataclasses.replace(
        trained, start_from=trained.out, frames=500, seed=1, out=tmp_path / "further"
    )
    collect(further)
    (at, weights), *_ = begun
    assert at == 256  # where the first stopped
    assert all(torch.equal(x, weights[k]) for k, x in first.net.state_dict().items())
    made = load_policy(further.out).provenance
    assert (made["frames"], made["started_from"]) == (512, first.provenance["digest"])
    assert made["digest"] != first.provenance["digest"]
    for wrong, sentence in (
        ({"frames": 256}, "has learnt from 256 frames already; ask for more --frames"),
        ({"encoder": "impala_small"}, "was trained with --encoder nature, not impala_small"),
        ({"actions": "all"}, "was trained with --actions distinct, not all"),
        ({"game": "maze"}, "was trained on fruitbot"),
    ):
        with pytest.raises(UserError, match=sentence):
            collect(dataclasses.replace(further, **wrong, out=tmp_path / "refused"))
    assert not (tmp_path / "refused").exists()


def test_bad_policies_are_named(trained, tmp_path):
    with pytest.raises(UserError, match="no policy at"):
        load_policy(tmp_path)
    with pytest.raises(UserError, match="lacks 'format'"):
        load_policy(trained.out / "checkpoint.pt")
    state = load_checkpoint(trained.out / "policy.pt")
    state["net"]["policy.bias"][0] += 1.0
    torch.save(state, tmp_path / "changed.pt")
    with pytest.raises(UserError, match="is damaged: it was cut short, or has no checksum"):
        load_policy(tmp_path / "changed.pt")


def test_impossible_requests_are_refused(tmp_path):
    with pytest.raises(UserError, match="unknown game 'pong'"):
        CollectConfig(game="pong")
    with pytest.raises(UserError, match="--player random needs no --policy"):
        CollectConfig(game="maze", player="random", policy=tmp_path)
    with pytest.raises(UserError, match="exclude each other"):
        CollectConfig(game="maze", start_from=tmp_path, policy=tmp_path)
    with pytest.raises(UserError, match="exclude each other"):
        CollectConfig(game="maze", start_from=tmp_path, policy=tmp_path)
    with pytest.raises(UserError, match="nobody has published how well"):
        CollectConfig(env=f"{WALKS}:make", keep_weak=True)
    with pytest.raises(UserError, match="--transitions must be between 1"):
        CollectConfig(game="maze", transitions=0)
