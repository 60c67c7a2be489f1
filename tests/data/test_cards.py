"""Cards say what is known of a recording, and that the rest is not."""

from dataclasses import replace

import pytest

from gsf.data.cards import card_of, markdown
from gsf.data.inspect import InfoConfig, ListConfig, info, list_data
from gsf.data.recording import Recording
from gsf.data.tiers import list_shipped
from recordings import record


@pytest.fixture(scope="module")
def recording():
    return record("starpilot", n_steps=20, n_envs=2, levels=range(3))


def told(recording, **facts):
    return replace(recording, takes=(replace(recording.takes[0], **facts),))


def test_the_card_of_a_recording_by_hand(recording):
    played = told(
        recording,
        policy={"algorithm": "ppo", "frames": 1_500_000, "entropy": 0.876},
        epsilon={"first": 0.1, "last": 0.0},
        returns={"episodes": 4, "mean_return": 15.21, "levels_covered": 2},
    )
    assert card_of("mine", played) == {
        "game": "starpilot (easy)",
        "tier": "none",
        "player": "ppo, 1.5M frames",
        "entropy": "0.88 nats",
        "epsilon": "0.1 to 0",
        "return": "15.21",
        "way": "50% from random to published play",  # (15.21 - 0.42) / (30.0 - 0.42)
        "levels": "2 of 3 (0..2)",
        "transitions": "40",
        "digest": played.digest,
        "licence": "MIT, as gsf and Procgen",
    }
    assert "| return | 15.21 |" in markdown("mine", card_of("mine", played))


def test_planned_play_says_that_it_knows_the_future(recording):
    policy = {"algorithm": "plan", "width": 64, "depth": 40, "commit": 8, "smooth": 0.1}
    card = card_of("mine", told(recording, policy=policy, epsilon={"first": 0.0, "last": 0.0}))
    assert card["player"] == "a planner that knows the future, width 64, depth 40, commit 8"
    assert card["epsilon"] == "0"


def test_what_is_not_known_is_said(recording):
    strange = told(recording, policy={"entropy": "much"}, epsilon={"first": "x"}, returns={})
    card = card_of("mine", strange)
    assert [card[x] for x in ("player", "entropy", "epsilon", "return", "way")] == ["unknown"] * 5
    returns = {"episodes": 4, "mean_return": 15.21, "levels_covered": 2}
    other = card_of("mine", told(recording, first_level=500_000, returns=returns))
    assert (other["return"], other["way"]) == ("15.21", "unknown")  # published is of seen levels


def test_every_shipped_recording_has_a_card(capsys):
    list_data(ListConfig(cards=True))
    cards = capsys.readouterr().out
    assert all(f"## {path.stem}\n" in cards for path in list_shipped())
    for path in list_shipped()[::10]:
        assert f"| digest | {Recording.load(path).digest} |" in cards
    info(InfoConfig("coinrun"))
    assert "tier         policy\n" in capsys.readouterr().out
