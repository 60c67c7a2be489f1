"""Real Procgen: the lists, and the levels that repeat a training level."""

import numpy as np
import pytest

from gsf.core.errors import UserError
from gsf.evaluation import splits
from gsf.evaluation.splits import fixed_actions, split_levels
from gsf.suites import make_env

# Found by comparing: maze 1,000,000 plays like level 70, 1,000,015 like 51, 1,000,019 like 59.
REPEATED = {1_000_000: 70, 1_000_015: 51, 1_000_019: 59}


def stream(level):
    """All that is seen under the fixed actions, in an env that has no other level."""
    env = make_env("maze", range(level, level + 1), 1, seed=0)
    seen = [env.reset()[0]]
    for action in fixed_actions("maze"):
        obs, reward, terminated, truncated, _ = env.step(np.array([action]))
        seen += [reward, terminated | truncated, obs]
    return [part.tobytes() for part in seen]


def test_levels_that_play_like_a_training_level_are_replaced_by_the_next_seeds():
    expected = [n for n in range(1_000_000, 1_000_023) if n not in REPEATED]
    assert split_levels("maze", "unseen", 20) == expected
    for test_level, training_level in REPEATED.items():
        assert stream(test_level) == stream(training_level)
    training = [stream(n) for n in range(0, 200, 8)]
    assert not any(stream(n) in training for n in expected[:5])


def test_own_training_levels_are_avoided_too():
    trained = [*range(5), 500_001]
    assert split_levels("maze", "validation", 3, trained) == [500_000, 500_002, 500_003]
    assert split_levels("maze", "validation", 3) == [500_000, 500_001, 500_002]


def test_agents_of_few_levels_meet_the_same_unseen_levels_as_those_of_all(monkeypatch):
    """Levels 0..199 of the benchmark are avoided even by who has not learnt from them."""
    splits._unlike.cache_clear()
    play = splits.Play("", "")
    monkeypatch.setattr(
        splits, "plays", lambda game, levels, _: [play._replace(whole=n % 300) for n in levels]
    )
    expected = [n for n in range(1_000_000, 1_000_300) if n % 300 not in range(200)][:5]
    assert split_levels("maze", "unseen", 5, [3]) == split_levels("maze", "unseen", 5) == expected
    splits._unlike.cache_clear()


def test_seen_levels_are_the_first_of_the_training_data():
    assert split_levels("maze", "seen", 3, [7, 5, 9, 1]) == [7, 5, 9]
    assert split_levels("maze", "seen", 9, [7, 5]) == [7, 5]
    assert split_levels("maze", "unseen", 0) == []


def test_levels_that_only_begin_alike_are_told_apart():
    first = make_env("coinrun", [29, 197], 2, seed=0).reset()[0]
    assert np.array_equal(first[0], first[1])
    one, other = splits.plays("coinrun", (29, 197), "easy")
    assert one != other


def test_digests_do_not_depend_on_who_plays_beside():
    levels = tuple(range(8))
    together = splits.plays("dodgeball", levels, "easy")
    alone = [splits.plays("dodgeball", (n,), "easy")[0] for n in levels]
    assert list(together) == alone
    assert len(set(together)) == len(levels)
    assert splits.plays("dodgeball", levels, "hard") != together


@pytest.mark.parametrize(
    ("split", "n", "message"),
    [("train", 3, "unknown split 'train'"), ("unseen", -1, "cannot have -1 levels")],
)
def test_bad_requests(split, n, message):
    with pytest.raises(UserError, match=message):
        split_levels("maze", split, n)
