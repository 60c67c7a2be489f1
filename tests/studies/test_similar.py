import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gsf.behaviour.policy import policy_of, save_policy
from gsf.behaviour.ppo import ActorCritic
from gsf.core.errors import UserError
from gsf.core.stage import read_manifest
from gsf.data.materialise import MaterialiseConfig, materialise
from gsf.data.recording import Recording
from gsf.data.replay import Recorder, play_blocks
from gsf.data.tiers import SHIPPED, find_policy
from gsf.gvf.fit import FitConfig, fit
from gsf.studies import similar
from gsf.studies.replays import Plays
from gsf.studies.similar import Pair, SimilarConfig, far_in_action, segments, state_cosine
from gsf.suites import make_env

N_STEPS, N_ENVS = 320, 4
FACTS = {"encoder": "impala_small", "game": "fruitbot", "difficulty": "easy"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """random.gsfrec: random play of fruitbot; policy.pt: random weights, far from uniform."""
    home = tmp_path_factory.mktemp("similar")
    rng = np.random.default_rng(0)
    env = make_env("fruitbot", range(12), N_ENVS, seed=5, threads=0)
    recorder = Recorder(N_ENVS)
    for block in play_blocks(env, lambda t, obs: rng.integers(15, size=N_ENVS), N_STEPS):
        recorder.add(block)
    Recording("fruitbot", "easy", (recorder.finish(env),)).save(home / "random.gsfrec")
    env.close()
    torch.manual_seed(1)
    net = ActorCritic("impala_small", (64, 64, 3), 15)
    with torch.no_grad():
        net.policy.weight.mul_(300)
    save_policy(home / "policy.pt", net, FACTS)
    return home


@pytest.fixture(scope="module")
def config(home: Path) -> SimilarConfig:
    small = {"transitions": N_STEPS * N_ENVS, "segments": 300, "candidates": 20, "gamma": 0.9}
    names = str(home / "random.gsfrec"), home / "policy.pt", home / "found"
    return SimilarConfig(*names, **small)


@pytest.fixture(scope="module")
def facts(config: SimilarConfig):
    similar.similar(config)
    return json.loads((config.out / "similar.json").read_text())


def replayed(recording: Recording, slot: int, first: int, length: int = 5):
    """Levels, states and rewards of a slot from step `first` on, by plain stepping."""
    take = recording.takes[0]
    env = make_env("fruitbot", take.levels, take.n_envs, take.seed, threads=0)
    env.reset()
    states, levels, rewards, ended = [], [], [], []
    for step, action in enumerate(take.actions):
        if first <= step < first + length:
            states.append(env.latent_state()[slot])
        levels.append(int(env.observe()[1][slot]))
        _, reward, terminated, truncated, _ = env.step(action)
        rewards.append(float(reward[slot]))
        ended.append(bool(terminated[slot] | truncated[slot]))
    env.close()
    return states, levels[first : first + length], rewards[first:], ended[first:]


def test_the_distances_are_those_of_the_segments(config: SimilarConfig, facts):
    one, two = facts["segments"]
    assert one["level"] != two["level"]
    p, q = np.array(one["probs"]), np.array(two["probs"])
    assert p.shape == (5, 15)
    assert facts["total_variation"] == pytest.approx(0.5 * np.abs(p - q).sum(1).mean(), abs=1e-4)
    v, w = np.array(one["value"]), np.array(two["value"])
    error = ((v - w) ** 2).sum() / (0.5 * (v**2 + w**2).sum())
    assert facts["value_error"] == pytest.approx(error, abs=1e-4)
    assert error <= config.max_value_error
    assert facts["total_variation"] > 0.1
    recording = Recording.load(config.recording)
    states = []
    for segment in (one, two):
        found, levels, rewards, ended = replayed(recording, segment["slot"], segment["step"])
        assert levels == [segment["level"]] * 5
        actions = recording.takes[0].actions[segment["step"] :, segment["slot"]]
        assert segment["action"] == actions[:5].tolist()
        end = ended.index(True) if True in ended else len(ended) - 1
        value = sum(0.9**k * rewards[k] for k in range(end + 1))
        assert segment["value"][0] == pytest.approx(value, abs=1e-4)
        states.append(found)
    cosine = [state_cosine(a, b) for a, b in zip(*states, strict=True)]
    assert facts["state_cosine"] == pytest.approx(np.mean(cosine), abs=1e-6)
    assert 0.5 < facts["state_cosine"] < 1


def test_figure_and_manifest_are_written_once(config: SimilarConfig, facts, capsys):
    with Image.open(config.out / "similar.png") as image:
        assert image.width > 1000
    assert "<svg" in (config.out / "similar.svg").read_text()[:600]
    manifest = read_manifest(config.out, "similar")
    assert manifest["game"] == "fruitbot"
    assert set(manifest["inputs"]) == {"recording", "policy"}
    before = (config.out / "similar.json").stat().st_mtime_ns
    similar.similar(config)
    assert "there already" in capsys.readouterr().err
    assert (config.out / "similar.json").stat().st_mtime_ns == before
    with pytest.raises(UserError, match="--segments 300, not 200"):
        similar.similar(replace(config, segments=200))


def test_values_of_a_fit_find_the_same_as_the_logged_return(config: SimilarConfig, facts, home):
    dataset = materialise(MaterialiseConfig(config.recording, home / "dataset", threads=1))
    gvf = fit(FitConfig(dataset, home / "gvf", gamma=0.9, diagnose=False, allow_small_levels=True))
    out = similar.similar(replace(config, gvf=gvf, out=home / "by-fit"))
    found = json.loads((out / "similar.json").read_text())
    assert found["segments"] == facts["segments"]
    assert found["values"] == "gvf"
    assert set(read_manifest(out, "similar")["inputs"]) == {"recording", "policy", "gvf"}

    cut = Recording.load(config.recording).cut(2 * N_STEPS)
    cut.save(home / "other.gsfrec")
    with pytest.raises(UserError, match="made of another recording"):
        similar.similar(
            replace(config, recording=str(home / "other.gsfrec"), gvf=gvf, out=home / "x")
        )
    many = fit(
        FitConfig(
            dataset, home / "many", cumulant="action", diagnose=False, allow_small_levels=True
        )
    )
    with pytest.raises(UserError, match="4 components"):
        similar.similar(replace(config, gvf=many, out=home / "x"))


def test_what_cannot_be_compared_is_refused(config: SimilarConfig, home: Path):
    torch.manual_seed(0)
    maze = home / "maze.pt"
    save_policy(maze, ActorCritic("impala_small", (64, 64, 3), 15), FACTS | {"game": "maze"})
    with pytest.raises(UserError, match="plays maze, the recording is of fruitbot"):
        similar.similar(replace(config, policy=maze, out=home / "x"))
    with pytest.raises(UserError, match="at least two levels"):
        replace(config, levels=(3,))
    with pytest.raises(UserError, match="fewer than two levels"):
        similar.similar(replace(config, levels=(777, 778), out=home / "x"))
    assert not (home / "x").exists()


def made_up(level, episode, value, probs) -> Plays:
    n = len(level)
    zeros = np.zeros(n, np.int64)
    columns = [np.asarray(x) for x in (level, episode)]
    return Plays(
        zeros,
        zeros,
        np.arange(n),
        *columns,
        zeros,
        np.asarray(probs, np.float32),
        np.float32(value),
    )


def test_segments_stay_inside_an_episode_and_have_values_worth_comparing(config: SimilarConfig):
    level = [0] * 4 + [1] * 4 + [2] * 4
    value = [4, 4, 4, np.nan, 5, 5, 5, 5, 0, 0, 0.1, 0]
    plays = made_up(level, level, value, np.full((12, 15), 1 / 15))
    short = replace(config, length=3)
    assert segments(plays, short).tolist() == [0, 4, 5]
    with pytest.raises(UserError, match="fewer than two levels"):
        segments(plays, replace(short, levels=(0, 2)))


def test_the_pair_with_far_actions_among_close_values(config: SimilarConfig):
    # levels 0, 1, 2: equal values in 0 and 1, far ones in 2; actions differ between 0 and 1
    probs = np.zeros((6, 15))
    probs[:2, 3], probs[2:4, 4], probs[4:, 5] = 1, 1, 1
    plays = made_up([0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2], [5, 5, 5, 5, 50, 50], probs)
    short = replace(config, length=2)
    pairs = far_in_action(plays, np.array([0, 2, 4]), short)
    assert [pair.rows for pair in pairs] == [(0, 2)]
    assert pairs[0].variation.tolist() == [1, 1]
    assert pairs[0].value_error == 0
    with pytest.raises(UserError, match="no two segments"):
        far_in_action(plays, np.array([0, 4]), short)
    with pytest.raises(UserError, match="no two segments"):
        far_in_action(plays, np.array([0, 0]), short)  # of one level


def test_score_and_cosine_by_hand():
    pair = Pair((0, 5), 0.1, np.array([0.4, 0.8]), np.array([0.9, 0.7]))
    assert pair.score == pytest.approx(0.6 - 0.1 - 0.2)
    assert state_cosine(b"\x03\x04", b"\x03\x04\x00") == pytest.approx(1)
    assert state_cosine(b"\x03\x04", b"\x00\x00\x05") == pytest.approx(0)
    assert state_cosine(b"\x03\x04", b"\x04\x03") == pytest.approx(24 / 25)


def test_the_policy_that_was_recorded_is_found(
    home: Path, config: SimilarConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("coinrun", "coinrun-validation"):
        assert policy_of(name) == find_policy("coinrun")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "coinrun").mkdir()  # a directory of that name, such as --out of a collect
    assert policy_of("coinrun") == SHIPPED / "coinrun.policy.pt"
    assert policy_of(str(home / "random.gsfrec")) is None  # the one beside it did not play it
    with pytest.raises(UserError, match=r"is not at hand; name one with --policy"):
        similar.similar(replace(config, policy=None, out=home / "y"))
