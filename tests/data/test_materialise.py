"""Recording -> dataset on real Procgen: right rows, exact cuts, nothing half-written."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from gsf.core.errors import UserError
from gsf.data.dataset import Dataset
from gsf.data.materialise import MaterialiseConfig, materialise
from gsf.data.recording import Recording, concatenate
from gsf.suites import make_env
from gsf.suites.procgen import GAMES
from recordings import record


@pytest.fixture(scope="module")
def recording():
    return record("fruitbot", n_steps=400, n_envs=4, levels=range(6))


@pytest.fixture(scope="module")
def file(recording, tmp_path_factory):
    path = tmp_path_factory.mktemp("recordings") / "fruitbot.gsfrec"
    recording.save(path)
    return path


def test_rows_are_what_the_env_showed(recording, file, tmp_path):
    ds = Dataset.open(materialise(MaterialiseConfig(str(file), tmp_path / "ds")))
    take = recording.takes[0]
    assert len(ds) == take.actions.size == 1600
    assert list(ds.levels) == list(range(6))
    classes = GAMES["fruitbot"].action_classes
    assert ds.n_actions == len(ds.manifest["actions"]) == 4
    assert ds.manifest["pixels_match"] is True
    assert ds.manifest["mean_return"] == pytest.approx(take.returns["mean_return"])
    env = make_env("fruitbot", range(6), 4, take.seed)
    obs, info = env.reset()
    episode = {slot: set() for slot in range(4)}
    started = np.zeros(4, int)
    for t, action in enumerate(take.actions):
        rows = np.arange(4) * 400 + t
        level = info["level"]
        batch = ds.gather(rows)
        assert np.array_equal(batch.obs.numpy(), obs)
        obs, reward, terminated, truncated, info = env.step(action)
        assert batch.action.tolist() == classes[action].tolist()
        assert batch.reward.tolist() == reward.tolist()
        assert batch.level.tolist() == level.tolist()
        assert batch.terminated.tolist() == terminated.tolist()
        assert batch.truncated.tolist() == truncated.tolist()
        assert ds.t[rows].tolist() == (t - started).tolist()
        ended = terminated | truncated
        assert batch.has_next.tolist() == (~ended & (t < 399)).tolist()
        going_on = batch.has_next.numpy()
        assert np.array_equal(batch.next_obs.numpy()[going_on], obs[going_on])
        started[ended] = t + 1
        for slot in range(4):
            episode[slot].add(int(ds.episode[rows[slot]]))
    numbers = [n for slot in range(4) for n in sorted(episode[slot])]
    assert numbers == list(range(len(numbers)))


def test_a_cut_is_exact_and_covers_the_whole_time(file, tmp_path):
    whole = Dataset.open(materialise(MaterialiseConfig(str(file), tmp_path / "whole")))
    config = MaterialiseConfig(str(file), tmp_path / "part", transitions=1000)
    part = Dataset.open(materialise(config))
    assert len(part) == 1000  # slots 0 and 1 whole, half of slot 2
    for name in ("action", "reward", "level", "t", "episode", "terminated"):
        assert np.array_equal(getattr(part, name), getattr(whole, name)[:1000])
    assert np.array_equal(part.obs, whole.obs[:1000])
    assert not part.has_next[999]


def test_distinct_actions_of_a_shipped_recording_are_all_of_them_mapped_down(tmp_path):
    made = {
        which: Dataset.open(
            materialise(
                MaterialiseConfig(
                    "coinrun-early", tmp_path / which, transitions=3000, actions=which
                )
            )
        )
        for which in ("distinct", "all")
    }
    mapped, every = made["distinct"], made["all"]
    assert (mapped.n_actions, every.n_actions) == (6, 15)
    assert every.manifest["actions"] == list(range(15))
    for name in ("obs", "reward", "level", "t", "episode", "terminated", "has_next"):
        assert np.array_equal(getattr(mapped, name), getattr(every, name))
    played = np.array(mapped.manifest["actions"])[mapped.action]
    classes = GAMES["coinrun"].action_classes
    assert np.array_equal(classes[played], classes[every.action])
    assert len(set(every.action)) == 15
    assert mapped.digest != every.digest


def episodes_of(ds):
    """What an episode is to a learner, whatever its place in the dataset."""
    for start, stop in ds.episodes():
        frames = ds.obs[ds.frame[start] : ds.frame[stop - 1] + 1]
        level = ds.levels[ds.level[start]]
        columns = (ds.action, ds.reward, ds.terminated, ds.truncated, ds.has_next)
        yield level, frames.tobytes(), *(column[start:stop].tobytes() for column in columns)


def test_the_first_levels_are_whole_and_alone(file, tmp_path):
    whole = Dataset.open(materialise(MaterialiseConfig(str(file), tmp_path / "whole")))
    config = MaterialiseConfig(str(file), tmp_path / "two", levels=2)
    two = Dataset.open(materialise(config))
    assert list(two.levels) == [0, 1]
    wanted = [episode for episode in episodes_of(whole) if episode[0] < 2]
    assert list(episodes_of(two)) == wanted
    assert 5 < len(wanted) < two.manifest["n"] < 1600
    part = Dataset.open(
        materialise(replace(config, out=tmp_path / "part", transitions=len(two) // 2))
    )
    assert len(part) == len(two) // 2
    assert np.array_equal(part.obs, two.obs[: len(part)])
    assert list(episodes_of(part))[:-1] == wanted[: len(part.episodes()) - 1]
    for wrong, message in [
        ({"levels": 7}, "cannot take 7 levels of a recording that has 6"),
        ({"transitions": len(two) + 1}, "cannot take"),
    ]:
        with pytest.raises(UserError, match=message):
            materialise(replace(config, out=tmp_path / "no", **wrong))


def test_more_than_was_recorded_cannot_be_had(file, tmp_path):
    with pytest.raises(
        UserError, match="cannot take 1601 transitions of a recording that has 1600"
    ):
        materialise(MaterialiseConfig(str(file), tmp_path / "ds", transitions=1601))
    assert not (tmp_path / "ds").exists()


def test_takes_become_one_dataset(file, tmp_path):
    other = record("fruitbot", n_steps=30, n_envs=2, seed=8, levels=range(900, 903))
    joined = tmp_path / "joined.gsfrec"
    concatenate([Recording.load(file), other]).save(joined)
    ds = Dataset.open(materialise(MaterialiseConfig(str(joined), tmp_path / "ds")))
    assert len(ds) == 1660
    assert list(ds.levels) == [*range(6), 900, 901, 902]
    assert set(np.unique(ds.level[1600:])) <= {6, 7, 8}
    assert ds.episode[1600] == ds.episode[1599] + 1


def test_the_same_command_again_is_a_no_op_and_another_one_is_refused(file, tmp_path):
    config = MaterialiseConfig(str(file), tmp_path / "ds", transitions=100)
    before = (materialise(config) / "manifest.json").stat().st_mtime_ns
    materialise(config)
    assert (tmp_path / "ds" / "manifest.json").stat().st_mtime_ns == before
    with pytest.raises(UserError, match="holds a dataset with --transitions 100, not 200"):
        materialise(replace(config, transitions=200))


def test_the_same_data_made_elsewhere_is_the_same(file, tmp_path):
    one, other, part = (
        Dataset.open(materialise(MaterialiseConfig(str(file), tmp_path / name, **options))).digest
        for name, options in (("a", {}), ("b", {"threads": 1}), ("c", {"transitions": 800}))
    )
    assert one == other != part


def test_other_pixels_are_marked_and_other_logic_leaves_nothing(recording, tmp_path, capsys):
    take = recording.takes[0]
    other = replace(recording, takes=(replace(take, pixels=take.pixels ^ np.uint64(1)),))
    other.save(tmp_path / "other.gsfrec")
    ds = materialise(MaterialiseConfig(str(tmp_path / "other.gsfrec"), tmp_path / "ds"))
    assert json.loads((ds / "manifest.json").read_text())["pixels_match"] is False
    assert "pixels differ in 4 of 4 checksums" in capsys.readouterr().err.replace("\n", " ")
    broken = replace(recording, takes=(replace(take, logic=take.logic ^ np.uint64(1)),))
    broken.save(tmp_path / "broken.gsfrec")
    with pytest.raises(UserError, match="departs from the recording"):
        materialise(MaterialiseConfig(str(tmp_path / "broken.gsfrec"), tmp_path / "none"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken.gsfrec", "ds", "other.gsfrec"]


def test_killed_it_leaves_nothing_that_looks_like_a_dataset(tmp_path):
    record("coinrun", n_steps=1000, n_envs=16).save(tmp_path / "a.gsfrec")
    command = [sys.executable, "-m", "gsf", "materialise", "a.gsfrec", "--out", "ds"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    while not list(tmp_path.glob(".ds.*.partial/obs.npy")):
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "ds").exists()
    materialise(MaterialiseConfig(str(tmp_path / "a.gsfrec"), tmp_path / "ds"))
    assert len(Dataset.open(tmp_path / "ds")) == 16_000
    assert not list(tmp_path.glob(".ds.*"))  # what the killed one left is gone
