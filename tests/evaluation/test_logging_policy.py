"""The probability of logged actions, by hand: two slots of three steps, three ids, two of them one
action."""

from types import SimpleNamespace

import numpy as np
import pytest

from gsf.core.errors import UserError
from gsf.evaluation import logging_policy
from gsf.evaluation.logging_policy import logged_probabilities

EPSILON = np.array([0.3, 0.2, 0.1] * 2)  # decays from 0.3 to 0 in three steps, in either slot


class Recorded(SimpleNamespace):
    def __len__(self):
        return len(self.action)


def recorded(**changed):
    schedule = {"schedule": "decay", "first": 0.3, "last": 0.1}
    facts = {
        "behaviour_prob": None,
        "path": "data",
        "obs": np.arange(6),
        "frame": np.arange(6),
        "action": np.array([0, 1, 0, 1, 1, 0], np.int8),
        "n_actions": 2,
        "manifest": {
            "provenance": [{"digest": "d", "epsilon": schedule}],
            "options": {"levels": None},
            "regions": [[0, 3], [3, 3]],
        },
    }
    return Recorded(**facts | changed)


@pytest.fixture(autouse=True)
def player(monkeypatch):
    """At every frame it takes the second id with 0.1 more, else the first."""
    facts = SimpleNamespace(actions=range(3), action_classes=np.array([0, 1, 1]))
    monkeypatch.setattr(
        logging_policy,
        "load_policy",
        lambda *_: SimpleNamespace(
            facts=facts,
            provenance={"digest": "d"},
            drawn={},
            action_ids=np.arange(3),
            act_probs=lambda obs: np.stack([1 - obs / 10, obs / 10, 0 * obs], 1),
        ),
    )


def test_mu_is_the_players_choice_or_chance():
    mu = logged_probabilities(recorded(), "player", "cpu")
    chosen = [1.0, 0.1, 0.8, 0.3, 0.4, 0.5]
    chance = np.array([1, 2, 1, 2, 2, 1]) / 3  # two of three ids are action 1
    assert mu == pytest.approx((1 - EPSILON) * chosen + EPSILON * chance)


def test_what_the_data_says_comes_first_and_without_a_player_nobody_knows():
    known = recorded(behaviour_prob=np.full(6, 0.5, np.float32))
    assert logged_probabilities(known, "player", "cpu").tolist() == [0.5] * 6
    assert logged_probabilities(recorded(), None, "cpu") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"provenance": [{"digest": "another"}]}, "not a recording of player alone"),
        ({"options": {"levels": [1]}}, "not known step by step"),
    ],
)
def test_a_recording_of_anything_else_is_refused(change, message):
    data = recorded()
    data.manifest |= change
    with pytest.raises(UserError, match=message):
        logged_probabilities(data, "player", "cpu")
