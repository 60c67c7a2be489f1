"""Recordings: round trip, replay, cut, join, and every way a file can be damaged."""

from dataclasses import replace

import numpy as np
import pytest

from gsf.behaviour.policy import load_policy
from gsf.core.errors import UserError
from gsf.data.inspect import ListConfig, list_data
from gsf.data.recording import BLOCK, Recording, concatenate
from gsf.data.replay import Recorder, Replay, play_blocks
from gsf.data.tiers import SHIPPED, list_shipped, tier_of
from gsf.suites import make_env
from gsf.suites.procgen import GAMES
from recordings import record


@pytest.fixture(scope="module")
def recording():
    return record("starpilot")


def mismatches(recording, threads=None):
    """Pixel mismatches after a replay of every take; raises where the logic differs."""
    total = 0
    for take in recording.takes:
        replay = Replay(recording, take, threads)
        for _ in replay:
            pass
        total += replay.pixel_mismatches
        if take.returns:
            assert replay.returns == take.returns
    return total


def same(first, second):
    return first.to_bytes() == second.to_bytes()


def test_a_saved_recording_is_read_back(recording, tmp_path):
    recording.save(tmp_path / "a.gsfrec")
    again = Recording.load(tmp_path / "a.gsfrec")
    assert same(recording, again)
    assert np.array_equal(again.takes[0].actions, recording.takes[0].actions)
    assert (again.game, again.difficulty, len(again)) == ("starpilot", "easy", 1100 * 3)
    assert again.takes[0].policy == {"algorithm": "random"}
    assert again.takes[0].returns["episodes"] > 0


def test_size_is_a_byte_a_transition_and_less_when_compressed(recording):
    take = recording.takes[0]
    raw = take.actions.nbytes + take.logic.nbytes + take.pixels.nbytes
    assert raw <= 1.05 * len(recording)
    large = record(n_steps=4 * BLOCK)
    assert len(large.to_bytes()) < 0.8 * len(large)


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_replay_is_verified_whatever_the_threads(recording, threads):
    assert mismatches(recording, threads) == 0


def test_another_action_is_found_by_the_logic_and_another_render_by_the_pixels(recording):
    take = recording.takes[0]
    actions = take.actions.copy()
    actions[: BLOCK // 2, 1] = 4  # standing still instead of playing
    with pytest.raises(UserError, match=r"steps 0..1023 of slot 1 "):
        mismatches(replace(recording, takes=(replace(take, actions=actions),)))
    pixels = take.pixels.copy()
    pixels[1, 2] ^= np.uint64(1)
    assert mismatches(replace(recording, takes=(replace(take, pixels=pixels),))) == 1
    logic = take.logic.copy()
    logic[1, 2] ^= np.uint64(1)
    with pytest.raises(UserError, match=r"steps 1024..1099 of slot 2 "):
        mismatches(replace(recording, takes=(replace(take, logic=logic),)))


def test_a_cut_keeps_whole_slots_over_the_whole_time_and_replays(recording):
    part = recording.cut(1500)
    assert part.takes[0].actions.shape == (1100, 2)
    assert np.array_equal(part.takes[0].actions, recording.takes[0].actions[:, :2])
    assert mismatches(part) == 0
    assert recording.cut(2201).takes[0].n_envs == 3
    assert recording.cut(len(recording)) is recording
    for wrong in (0, -3, len(recording) + 1):
        with pytest.raises(UserError, match="cannot take"):
            recording.cut(wrong)


def test_joined_takes_replay_one_after_the_other(recording):
    other = record("starpilot", n_steps=50, seed=9, levels=range(500, 503))
    both = concatenate([recording, other])
    assert len(both) == 3 * 1150
    assert both.levels == [*range(20), 500, 501, 502]
    assert mismatches(Recording.from_bytes(both.to_bytes())) == 0
    with pytest.raises(
        UserError, match=r"one game and difficulty.*maze \(easy\), starpilot \(easy\)"
    ):
        concatenate([recording, record("maze", n_steps=4)])


def test_a_recorder_can_be_saved_between_blocks(recording):
    env = make_env("starpilot", range(20), 3, 4, copy=False)
    actions = recording.takes[0].actions
    recorder = Recorder(3)
    for block in play_blocks(env, lambda t, obs: actions[t], BLOCK):
        at_boundary = recorder.add(block)
    assert at_boundary
    saved, env_state = recorder.state_dict(), env.state_dict()
    later, env = Recorder(3), make_env("starpilot", range(20), 3, 4, copy=False)
    later.load_state_dict(saved)
    env.load_state_dict(env_state)
    for block in play_blocks(env, lambda t, obs: actions[t], len(actions), start=BLOCK):
        later.add(block)
    take = later.finish(env, policy={"algorithm": "random"}, epsilon={"rule": "random"})
    assert same(replace(recording, takes=(take,)), recording)


def test_any_flipped_byte_is_found(recording):
    data = bytearray(record(n_steps=30, n_envs=2).to_bytes())
    for at in range(len(data)):
        data[at] ^= 0x10
        with pytest.raises(UserError):
            Recording.from_bytes(bytes(data))
        data[at] ^= 0x10
    Recording.from_bytes(bytes(data))


def test_damage_is_named(recording):
    data = recording.to_bytes()
    sums = recording.takes[0].logic.nbytes

    def flipped(at):
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    for at, name in [
        (len(data) - 2 * sums - 1, r"take 0: the actions of steps 1024\.\.1099 are damaged"),
        (len(data) - sums - 1, "checksums of the logic are damaged"),
        (len(data) - 1, "checksums of the pixels are damaged"),
        (40, "header fails its checksum"),
        (3, "not a gsf recording"),
        (14, "recording format 0; this gsf reads 1"),
    ]:
        with pytest.raises(UserError, match=name):
            Recording.from_bytes(flipped(at))
    with pytest.raises(UserError, match="truncated"):
        Recording.from_bytes(data[:-5])
    with pytest.raises(UserError, match="truncated"):
        Recording.from_bytes(data[:18])
    with pytest.raises(UserError, match="too long"):
        Recording.from_bytes(data + b"x")


def test_a_header_that_fits_its_checksum_may_still_not_be_true(recording):
    take = recording.takes[0]
    for wrong, said in (
        ({"n_levels": 2**31}, "n_levels"),
        ({"first_level": -1}, "first_level"),
        ({"seed": "x"}, "seed"),
        ({"returns": {"mean": "high"}}, "'mean' is 'high'"),
    ):
        lying = replace(recording, takes=(replace(take, **wrong),))
        with pytest.raises(UserError, match=said):
            Recording.from_bytes(lying.to_bytes())


def test_a_missing_recording_says_what_is_shipped(tmp_path):
    with pytest.raises(UserError, match=r"no recording at .*; shipped ones are:"):
        Recording.load(tmp_path / "none.gsfrec")


def test_every_shipped_recording_is_of_the_player_its_name_says():
    for path in list_shipped():
        game, tier, held_out = tier_of(path.stem)
        recording = Recording.load(path.stem)
        assert recording.game == game
        if tier == "best":
            assert recording.takes[0].policy["algorithm"] == "best"
            assert recording.levels == [*range(16)]
            continue
        assert recording.levels == [*(range(500_000, 500_050) if held_out else range(200))]
        if tier == "planned":
            assert {take.policy["algorithm"] for take in recording.takes} == {"plan"}
            assert len(recording) >= (10_000 if held_out else 100_000)
        else:
            (take,) = recording.takes
            assert (take.policy["algorithm"], take.policy["game"]) == ("ppo", game)
            policy = SHIPPED / f"{path.stem.removesuffix('-validation')}.policy.pt"
            if policy.is_file() or tier != "weak":  # of a weak player the play is enough
                assert take.policy["digest"] == load_policy(policy).provenance["digest"]
            most = 100_000 if tier == "weak" else 500_000
            assert len(recording) >= (most // 10 if held_out else most)
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 60e6


def test_play_on_a_list_of_levels_cannot_be_recorded():
    env = make_env("coinrun", [5, 6], 2, 0)
    recorder = Recorder(2)
    for block in play_blocks(env, lambda t, obs: np.zeros(2), 3):
        recorder.add(block)
    with pytest.raises(UserError, match="only play on a range"):
        recorder.finish(env)


def test_the_list_says_how_far_each_recording_is_from_random_to_published(capsys, monkeypatch):
    monkeypatch.setattr("gsf.data.inspect.LEAST_WAY", 0.6)
    list_data(ListConfig())
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("Below 60% of the way, so near to random play")
    assert "coinrun-early" in lines[-1]
    assert "coinrun-fifteen" not in lines[-1]
    names, *rows = (line.split() for line in lines[: len(list_shipped()) + 1])
    found = {row[0]: dict(zip(names, row, strict=True)) for row in rows}
    assert found["coinrun-fifteen"]["way"] == "77%"  # (8.23 - 3.93) / (9.5 - 3.93)
    assert found["coinrun-fifteen"]["player"] == "2.0M"
    assert found["coinrun-validation"]["way"] == "-"  # what is published is of seen levels
    assert set(GAMES) <= set(found)
