"""What the names of shipped recordings say, and that `gsf data list` shows it in 80 columns."""

import pytest

from gsf.data import tiers
from gsf.data.inspect import ListConfig, list_data
from gsf.data.tiers import Tier, list_shipped, recorded_policies, tier_of
from gsf.suites.procgen import GAMES
from gsf.sweep.options import RunConfig
from gsf.sweep.sources import find_sources
from recordings import record

IN_ORDER = [
    *("bossfight-planned", "bossfight-planned-validation"),
    *("coinrun", "coinrun-validation", "coinrun-weak", "coinrun-weak-validation"),
    *("coinrun-planned", "coinrun-fifteen"),
]


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    monkeypatch.setattr(tiers, "SHIPPED", tmp_path)
    for name in IN_ORDER:
        record(n_steps=20, game=tier_of(name).game).save(tmp_path / f"{name}.gsfrec")


def test_a_name_says_game_tier_and_levels():
    assert tier_of("coinrun") == Tier("coinrun", "policy", False)
    assert tier_of("coinrun-validation") == Tier("coinrun", "policy", True)
    assert tier_of("coinrun-planned") == Tier("coinrun", "planned", False)
    assert tier_of("coinrun-weak-validation") == Tier("coinrun", "weak", True)


def test_a_policys_play_comes_first_and_is_what_a_game_means(shipped):
    assert [path.stem for path in list_shipped()] == IN_ORDER
    assert recorded_policies() == ["coinrun"]
    (source,) = find_sources(RunConfig()).values()
    assert source.recording == "coinrun"


def test_every_game_is_recorded_by_a_policy():
    assert recorded_policies() == sorted(GAMES)


def test_the_list_is_as_wide_as_a_terminal(shipped, capsys):
    list_data(ListConfig())
    lines = capsys.readouterr().out.splitlines()
    table = lines[: len(IN_ORDER) + 1]
    assert [line.split()[0] for line in table[1:]] == IN_ORDER
    assert [line.split()[1] for line in table[1:]][2:6] == ["policy", "policy", "weak", "weak"]
    assert max(map(len, table)) <= 80
