"""A player that plans: futures by hand, better play than chance, and the same after every kill."""

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from gsf.behaviour import plan
from gsf.behaviour.collect import CollectConfig, collect
from gsf.behaviour.plan import Futures, PlannedPlay, held_at_random, places
from gsf.behaviour.policy import save_policy
from gsf.behaviour.ppo import ActorCritic
from gsf.behaviour.record import from_tensors, to_tensors
from gsf.core.errors import UserError
from gsf.data.inspect import JoinConfig, join
from gsf.data.recording import Recording
from gsf.data.replay import Replay
from signals import stopped

WALKS = Path(__file__).parents[1] / "walks.py"
SMALL = {"player": "plan", "n_levels": 8, "n_envs": 4, "width": 16, "depth": 32, "commit": 8}


def actions(*rows):
    return np.array(rows, np.uint8)


def test_what_came_of_futures_by_hand():
    futures = Futures(actions([1, 1, 1], [1, 2, 1], [3, 3, 3], [0, 0, 0]))
    # The first earns 2 at its second step; the second dies at the second step; the third wins 1
    # at once; the fourth goes on without a reward.
    no = np.zeros(4, bool)
    futures.see(0, np.array([0, 0, 1.0, 0]), np.array([0, 0, 1, 0], bool), no)
    futures.see(1, np.array([2.0, 0, 5, 0]), np.array([0, 1, 0, 0], bool), no)
    futures.see(2, np.array([0, 7.0, 5, 0]), no, no)
    assert futures.earned.tolist() == [2 * plan.GAMMA, 0, 1, 0]
    assert futures.length.tolist() == [3, 2, 1, 3]
    assert futures.alive.tolist() == [True, False, False, True]
    assert futures.won.tolist() == [False, False, True, False]
    assert futures.changes.tolist() == [0, 1, 0, 0]
    expected = [2 * plan.GAMMA + 10, -10 * 0.5 / 3, 1 + 10, 10]
    np.testing.assert_allclose(futures.value(worth=10, smooth=0.5), expected)


def test_one_future_begins_like_another_and_then_goes_its_own_way():
    futures = Futures(actions([1, 1, 1, 1], [2, 2, 2, 2]))
    futures.see(0, np.array([0, 3.0]), np.zeros(2, bool), np.zeros(2, bool))
    futures.copy(1, 0, 2)
    assert futures.actions[0].tolist() == [2, 2, 1, 1]
    assert futures.earned.tolist() == [3, 3]


def test_who_does_not_know_the_future_goes_by_the_mean():
    """The first future earns 5 with one chance of two, and loses 9 with the other."""
    futures = Futures(actions([1, 1], [1, 1], [2, 2], [2, 2]), chances=2)
    no = np.zeros(4, bool)
    futures.see(0, np.array([5.0, -9, 1, 1]), no, no)
    assert futures.mean(futures.value(worth=0, smooth=0)).tolist() == [-2, 1]
    assert [*futures.tries(1)] == [2, 3]


def test_each_future_is_tried_with_the_same_chances_and_those_ahead_are_copied_with_theirs():
    config = CollectConfig(**SMALL | {"game": "plunder", "transitions": 16, "chances": 4})
    play = PlannedPlay(config)
    planner, env = play._planner, play._simulator
    state = play.env.save(0)
    drawn = planner._begin(state, 4)
    assert drawn.shape == (16, 32)
    assert (drawn[0] == drawn[:4]).all()
    assert (drawn[0] != drawn[4]).any()
    states = [env.save(slot)[0] for slot in range(16)]
    assert states[:4] * 4 == states
    assert len({*states, state[0]}) == 5
    futures = Futures(drawn, chances=4)
    futures.earned[8:12] = 1.0  # the third of four futures is ahead
    env.step(np.array([0] * 8 + [9] * 4 + [0] * 4))
    ahead = [env.save(slot)[0] for slot in range(8, 12)]
    planner._regroup(futures, np.array([0, 1, 3, 2]), 1)
    assert [env.save(slot)[0] for slot in range(4)] == ahead
    assert futures.earned[:4].tolist() == [1.0] * 4
    play.close()


def test_a_game_whose_chance_cannot_be_changed_is_refused(forget):
    config = CollectConfig(**SMALL | {"env": f"{WALKS}:make", "transitions": 16, "chances": 2})
    with pytest.raises(UserError, match="random numbers to come cannot be changed"):
        PlannedPlay(config)


def test_random_actions_are_held():
    drawn = held_at_random(200, 64, actions(3, 5, 9), np.random.default_rng(0))
    assert drawn.shape == (200, 64)
    assert set(np.unique(drawn)) == {3, 5, 9}
    share = (drawn[:, 1:] != drawn[:, :-1]).mean()
    mean_hold = (1 + plan.LONGEST_HOLD) / 2
    assert share == pytest.approx(2 / 3 / mean_hold, rel=0.1)  # a third are drawn again


def test_a_place_is_what_is_left_of_an_image_seen_from_afar():
    obs = np.zeros((3, 64, 64, 3), np.uint8)
    obs[1, 5, 5] = 90  # a speck
    obs[2, 8:24, 8:24] = 200  # a thing
    one, speck, thing = places(obs)
    assert one == speck != thing
    assert len(one) == plan.BLOCKS**2 * 3
    assert len(places(np.zeros((1, 5, 70, 1), np.uint8))[0]) == 5 * 8  # of any size


def test_it_wins_where_chance_does_not(tmp_path, forget):
    options = SMALL | {"env": f"{WALKS}:make", "transitions": 80, "width": 8, "depth": 12}
    by_plan = collect(CollectConfig(**options, out=tmp_path))
    taken = Recording.load(by_plan).takes[0]
    assert taken.returns["mean_return"] == 1
    assert taken.returns["episodes"] >= 8
    assert taken.epsilon == {"schedule": "constant", "first": 0.0, "last": 0.0}
    assert taken.policy["algorithm"] == "plan"
    assert taken.policy["width"] == 8


def test_what_was_planned_is_what_is_recorded_and_replays(tmp_path):
    config = CollectConfig(**SMALL, game="coinrun", transitions=160, out=tmp_path)
    recording = Recording.load(collect(config))
    assert recording.takes[0].actions.shape == (40, 4)
    replay = Replay(recording, recording.takes[0])
    for _ in replay:
        pass
    assert replay.pixel_mismatches == 0
    assert not (tmp_path / plan.PLAN).exists()
    assert collect(config) == tmp_path / "coinrun.gsfrec"  # is there already


def test_a_policy_plays_half_of_the_futures(tmp_path, monkeypatch):
    """Where the other half stands still, whoever goes to new places is a policy that runs."""
    net = ActorCritic("nature", (64, 64, 3), 15)
    with torch.no_grad():
        net.policy.weight.zero_()
        net.policy.bias.copy_(100.0 * torch.eye(15)[7])
    made = {"game": "coinrun", "difficulty": "easy", "encoder": "nature"}
    policy = save_policy(tmp_path / "runs.pt", net, made)
    still = np.uint8(4)
    monkeypatch.setattr(plan, "held_at_random", lambda n, depth, *_: np.full((n, depth), still))
    config = CollectConfig(**SMALL, game="coinrun", transitions=64, policy=tmp_path / "runs.pt")
    recording = Recording.load(collect(dataclasses.replace(config, out=tmp_path / "plan")))
    (take,) = recording.takes
    assert (take.actions == 7).mean() > 0.5
    assert set(np.unique(take.actions)) <= {4, 7}
    assert take.policy["algorithm"] == "plan"
    assert take.policy["guided_by"] == policy.provenance["digest"]
    assert (take.epsilon["first"], take.epsilon["schedule"]) == (0.0, "constant")
    replay = Replay(recording, take)
    assert sum(block.action.size for block in replay) == 64
    assert replay.pixel_mismatches == 0


def test_two_processes_plan_one_recording(tmp_path):
    """Other seeds of the same levels, joined."""
    parts = [
        str(
            collect(
                CollectConfig(
                    **SMALL, game="coinrun", transitions=32, seed=s, out=tmp_path / f"{s}"
                )
            )
        )
        for s in (0, 1)
    ]
    join(JoinConfig(tuple(parts), tmp_path / "both.gsfrec"))
    both = Recording.load(tmp_path / "both.gsfrec")
    assert len(both) == 64
    assert both.levels == [*range(8)]
    assert (both.takes[0].actions != both.takes[1].actions).any()


def test_it_goes_on_to_the_same_actions_wherever_it_was_stopped():
    config = CollectConfig(**SMALL, game="jumper", transitions=4 * 30)
    whole, parts = PlannedPlay(config), PlannedPlay(config)
    for t in range(30):
        whole.step()
        parts.step()
        if t in (0, 3, 17):
            state = from_tensors(to_tensors(parts.state_dict()))
            parts.close()
            parts = PlannedPlay(config)
            parts.load_state_dict(state)
    np.testing.assert_array_equal(whole.actions, parts.actions)
    assert whole.returns.ended == parts.returns.ended
    for play in (whole, parts):
        play.close()


def test_interrupted_it_says_what_is_kept_and_goes_on(tmp_path):
    options = SMALL | {"game": "jumper", "transitions": 4 * 20}
    whole = collect(CollectConfig(**options, out=tmp_path / "b"))
    config = CollectConfig(**options, out=tmp_path / "a")
    said = stopped(collect, config, PlannedPlay, "step", at=7)
    assert said.startswith("28 of 80 planned frames are saved")
    assert collect(config).read_bytes() == whole.read_bytes()


def test_without_a_reward_in_sight_it_goes_where_it_has_not_been():
    """Of futures that earn nothing, the one at the least visited place comes last, that is best."""
    config = CollectConfig(**SMALL, game="maze", transitions=16)
    play = PlannedPlay(config)
    obs = np.zeros((3, 64, 64, 3), np.uint8)
    obs[1], obs[2] = 100, 200
    seen = Counter({places(obs)[0]: 5, places(obs)[2]: 9})
    futures = Futures(actions([1, 1], [1, 1], [1, 1]))
    assert play._planner._order(futures, obs, seen, worth=1.0).tolist() == [2, 0, 1]
    futures.earned[2] = 0.5
    assert play._planner._order(futures, obs, seen, worth=1.0).tolist() == [0, 1, 2]
    play.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"game": "maze", "start_from": Path("x")}, "not for --player plan"),
        ({"env": f"{WALKS}:make", "plain": True}, "leave --plain out"),
        ({"game": "maze", "width": 1}, "--width must be between 2"),
        ({"game": "maze", "chances": 9}, "less than two futures of --chances 9"),
    ],
)
def test_what_it_cannot_do(options, said, forget):
    with pytest.raises(UserError, match=said):
        CollectConfig(**(SMALL | options))


def test_what_does_not_repeat_itself_cannot_be_planned_in(tmp_path, forget):
    config = CollectConfig(**SMALL, env=f"{WALKS}:noisy", transitions=80, out=tmp_path)
    with pytest.raises(UserError, match="cannot be planned in: it does not repeat itself"):
        collect(config)
