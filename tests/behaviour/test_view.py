"""Players that see their game drawn plainly, and hold actions while they learn."""

import dataclasses
import types

import numpy as np
import pytest

from behaviour.test_collect import TINY
from gsf.behaviour.collect import CollectConfig, collect
from gsf.behaviour.hold import held
from gsf.behaviour.policy import BehaviourPolicy, load_policy
from gsf.behaviour.ppo import PPO
from gsf.core.errors import UserError
from gsf.data.recording import Recording
from gsf.data.replay import Replay
from gsf.evaluation.logging_policy import recorded_probabilities
from gsf.evaluation.players import BehaviourActor, find_players, under_looks
from gsf.evaluation.rollout import rollout
from gsf.suites import make_env

PLAIN = {"view": "plain", "hold": 2}


class Counting:
    """Slot i earns 1 for action 1 and ends after i + 2 steps, again and again."""

    num_envs, seed, levels = 3, 0, range(3)

    def __init__(self):
        self.t = np.zeros(3, int)
        self.acted = []

    def step(self, actions):
        self.acted.append(actions.tolist())
        self.t += 1
        ended = self.t == [2, 3, 4]
        self.t[ended] = 0
        reward = (np.asarray(actions) == 1).astype(np.float32)
        return self.t.copy(), reward, ended & [True, True, False], ended, {"level": self.t}

    def state_dict(self):
        return {"t": self.t.tolist()}

    def load_state_dict(self, state):
        self.t[:] = state["t"]


def test_an_action_that_is_held_earns_all_its_steps_and_waits_at_an_end():
    env = held(Counting(), 3, noop=1)  # waiting earns, so that it can be seen
    obs, reward, terminated, truncated, _ = env.step(np.array([2, 1, 1]))
    assert env._env.acted == [[2, 1, 1], [2, 1, 1], [1, 1, 1]]  # slot 0 ended at its second step
    assert reward.tolist() == [0, 3, 3]
    assert terminated.tolist() == [True, True, False]
    assert truncated.tolist() == [True, True, False]
    assert obs.tolist() == [1, 0, 3]
    state = env.state_dict()
    for again in (env, held(Counting(), 3, noop=1)):
        again.load_state_dict(state)
        _, reward, terminated, *_ = again.step(np.array([2, 2, 2]))
        assert reward.tolist() == [1 + 0, 0, 0]  # slot 0: what it earned while it waited
        assert terminated.tolist() == [True, True, False]
        assert again.step(np.array([2, 2, 2]))[1].tolist() == [2, 0, 2]
    assert held(env, 1, noop=1) is env


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """A tiny policy that sees plain pictures, and what it saw while it was recorded."""
    out = tmp_path_factory.mktemp("plain")
    config = CollectConfig(**TINY | PLAIN | {"frames": 200, "transitions": 40}, out=out)
    looked, sample = [], BehaviourPolicy.sample
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            BehaviourPolicy, "sample", lambda p, o, r: looked.append(o.copy()) or sample(p, o, r)
        )
        collect(config)
    return config, np.stack(looked)


def test_frames_are_those_of_the_game(seen):
    config, _ = seen
    assert (config.steps_per_update, config.frames_per_update) == (128, 256)
    provenance = load_policy(config.out).provenance
    assert (provenance["frames"], provenance["view"], provenance["hold"]) == (256, "plain", 2)
    ppo = PPO(config, make_env("fruitbot", range(8), 4, 0), np.random.default_rng(0), np.arange(4))
    assert ppo._gamma == pytest.approx(0.999**2)


def test_it_sees_the_same_play_drawn_plainly_and_recorded_is_the_game(seen):
    config, looked = seen
    recording = Recording.load(config.out / "fruitbot.gsfrec")
    own, plain = (
        Replay(recording, recording.takes[0], drawn=drawn) for drawn in ({}, {"plain": True})
    )
    for replay, same in ((own, False), (plain, True)):
        blocks = [block.obs.swapaxes(0, 1).copy() for block in replay]
        assert np.array_equal(np.concatenate(blocks), looked) == same
        assert replay.pixel_mismatches == 0


def test_it_is_evaluated_as_it_sees(seen):
    levels, drawn = [3, 1_000_000, 4], []

    def policy(obs, temperature):
        drawn.append(obs.copy())
        return np.eye(15)[np.full(len(obs), 4)]

    steps = {}
    for name, options in (("game", {}), ("plain", {"plain": True})):
        actor = types.SimpleNamespace(policy=policy, drawn=options)
        played = rollout(actor, "fruitbot", levels, 0.0, seed=0, n_envs=2, max_frames=5)
        steps[name] = [step.obs for step in played]
    env = make_env("fruitbot", levels[:2], 2, 0, plain=True)
    assert np.array_equal(steps["plain"][0], env.reset()[0])
    assert len(steps["plain"]) == len(steps["game"])
    assert not np.array_equal(steps["plain"][-1], steps["game"][-1])  # of the list's second turn
    assert BehaviourActor(load_policy(seen[0].out)).drawn == {"plain": True}
    assert BehaviourActor(load_policy("coinrun")).drawn == {}


def test_what_cannot_be_is_refused(seen, tmp_path):
    config, _ = seen
    with pytest.raises(UserError, match="grids draws grid5_looks in one way only; leave --view"):
        CollectConfig(game="grid5_looks", view="plain")
    assert CollectConfig(game="grid5_looks").schedule[-2:] == ("game", 1)
    assert CollectConfig(game="maze", view="game").schedule[-2:] == ("game", 1)
    assert CollectConfig(game="maze", view="plain").schedule[-2:] == ("plain", 2)
    further = dataclasses.replace(config, start_from=config.out, frames=900, view="game")
    with pytest.raises(UserError, match="trained with --view plain, not game"):
        collect(dataclasses.replace(further, out=tmp_path))
    with pytest.raises(UserError, match="sees its game drawn plainly, so no look differs"):
        under_looks(find_players(str(config.out))[0], "filters")
    dataset = types.SimpleNamespace(path="dataset")
    with pytest.raises(UserError, match="saw its game drawn plainly, so the images of dataset"):
        recorded_probabilities(dataset, str(config.out), "cpu")
