"""A suite in a file of the user's own: named, played, trained for; what has none is said."""

import gc
import itertools
from pathlib import Path

import numpy as np
import pytest

import tiny
from corridors import LENGTH, MOST_STEPS, corridors
from gsf import suites
from gsf.behaviour.collect import CollectConfig
from gsf.core import registry
from gsf.core.errors import UserError
from gsf.evaluation.episodes import evaluate_agent
from gsf.evaluation.evaluate import EvaluateConfig, evaluate
from gsf.evaluation.splits import split_levels
from gsf.evaluation.video import PlayConfig, play
from gsf.suites import Game, Suite, facts_of, find_game, known_facts, make_env, name_game, turns
from gsf.suites.grids import GridEnv
from gsf.suites.gymnasium import GymVectorEnv
from gsf.suites.procgen import ProcgenVectorEnv
from players import train_run

FILE = Path(__file__).parents[1] / "corridors.py"
GAME = f"{FILE}:corridors/corridor"


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setattr(registry, "_named", {})


def add(monkeypatch, *others):
    monkeypatch.setattr(suites.REGISTRY, "of_files", lambda: list(others))


class Walker:
    """Goes where it is lit; drawn actions are all `stay` but every second."""

    def policy(self, obs, temperature):
        lit_right = obs[:, 0, LENGTH - 1].min(-1) == 255
        best = np.eye(3)[np.where(lit_right, 2, 0)]
        return np.where(temperature[:, None] > 0, (best + np.eye(3)[1]) / 2, best)


def test_a_game_is_found_by_its_name_or_with_its_suite():
    suite, game = find_game("coinrun")
    assert (suite.name, game) == ("procgen", "coinrun")
    assert find_game("procgen/coinrun") == (suite, "coinrun")
    assert known_facts("corridor") is None
    suite, game = name_game(GAME)
    assert (suite.name, game, suite.games[game].noop) == ("corridors", "corridor", 1)
    assert facts_of("corridor").actions == ("left", "stay", "right")  # the file has been named


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("coinrum", "unknown game 'coinrum'; did you mean coinrun"),
        ("atari/pong", "unknown suite 'atari'"),
        ("procgen/pong", "unknown game 'pong'"),
        (f"{FILE}:LENGTH/corridor", "is not a suite"),
        (f"{FILE}:gone/corridor", "has no 'gone'"),
    ],
)
def test_what_is_not_there_is_said(name, message):
    with pytest.raises(UserError, match=message):
        name_game(name)


def test_two_suites_may_have_games_of_one_name(monkeypatch):
    twin = Suite("twin", {"coinrun": Game((8, 8, 3), ("go",))}, corridors.make_env)
    add(monkeypatch, twin)
    with pytest.raises(UserError, match="a game of twin and of procgen; say which: twin/"):
        find_game("coinrun")


def test_turns_are_parts_of_a_list_or_draws_from_a_range():
    first, second = turns([5, 6, 7], 2, seed=0)
    assert list(itertools.islice(first, 4)) == [5, 7, 5, 7]
    assert list(itertools.islice(second, 2)) == [6, 6]
    one, other = turns(range(10, 14), 2, seed=0)
    drawn = list(itertools.islice(one, 50))
    assert set(drawn) == {10, 11, 12, 13}
    assert drawn != list(itertools.islice(other, 50))
    assert drawn == list(itertools.islice(turns(range(10, 14), 2, seed=0)[0], 50))


@pytest.mark.parametrize("make_env", [GridEnv, GymVectorEnv, ProcgenVectorEnv])
@pytest.mark.parametrize(
    ("levels", "n_envs", "message"),
    [
        ([], 1, "levels is empty"),
        ([-1], 1, "levels lie in 0..2147483646, got -1..-1"),
        ([2**31 - 1], 1, "levels lie in"),
        ([1, 2], 3, "use at most 2"),
        (range(5), 0, "n_envs must be positive"),
    ],
)
def test_levels_that_no_env_can_play_are_said(make_env, levels, n_envs, message):
    with pytest.raises(UserError, match=message):
        make_env({ProcgenVectorEnv: "coinrun"}.get(make_env, "grid5_looks"), levels, n_envs, 0)
    gc.collect()  # Gymnasium closes what was refused, too


def test_it_is_evaluated_level_by_level_whatever_the_number_of_envs():
    _, game = name_game(GAME)
    rows = evaluate_agent(Walker(), game, range(20), n_envs=20)
    assert (rows["return"] == 1).all()
    assert rows["completed"].all()
    assert rows["length"].between(1, LENGTH).all()
    slow = evaluate_agent(Walker(), game, range(20), 1.0, n_envs=20, seed=3)
    again = evaluate_agent(Walker(), game, range(20), 1.0, n_envs=3, seed=3)
    assert slow.equals(again)
    assert slow["length"].sum() > 1.5 * rows["length"].sum()


def test_an_agent_of_its_data_is_played_once_the_suite_is_named(tmp_path, capsys):
    run = train_run(tiny.write_dataset(tmp_path / "dataset"), tmp_path / "run")
    options = {"n_seen": 2, "n_validation": 0, "n_unseen": 3, "device": "cpu"}
    with pytest.raises(UserError, match="trained on corridor, which no suite has"):
        evaluate(EvaluateConfig(str(run), **options))
    rows = evaluate(EvaluateConfig(str(run), game=GAME, **options))
    assert set(rows["level"]) == {100, 101, 1_000_000, 1_000_001, 1_000_002}
    assert rows["length"].max() <= MOST_STEPS
    play(PlayConfig(str(run), 7, tmp_path / "a.gif", game=GAME, fps=1, device="cpu"))
    assert "corridor level 7\n  cql, sampled at 1: return 1" in capsys.readouterr().out
    random = evaluate(EvaluateConfig("random", tmp_path / "random.csv", game=GAME, **options))
    assert set(random["method"]) == {"random"}


def test_what_does_not_repeat_itself_cannot_be_recorded():
    with pytest.raises(UserError, match="corridor cannot be recorded"):
        CollectConfig(game=GAME)


def test_a_game_of_few_levels_has_no_unseen_ones(monkeypatch):
    def same(game, levels, *arguments, **options):
        return corridors.make_env(game, [1] * len(levels), *arguments, **options)

    suite = Suite("same", {"only": corridors.games["corridor"]}, same)
    add(monkeypatch, suite)
    with pytest.raises(UserError, match="hardly a level of only"):
        split_levels("only", "unseen", 2)


def test_the_page_shows_this_suite():
    page = (FILE.parents[1] / "docs" / "extending.md").read_text()
    assert f"```python\n# corridors.py\n{FILE.read_text()}```" in page


def test_env_options_reach_the_suite():
    with pytest.raises(UserError, match="unknown difficulty 'medium'; Procgen has easy and hard"):
        make_env("coinrun", range(2), 1, 0, difficulty="medium")


def test_a_game_that_a_file_names_runs_no_code(tmp_path, monkeypatch):
    """Rows, recordings and manifests name games; only a user may name a file to run."""
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    spec = "evil.py:Suite/game"
    assert known_facts(spec) is None
    with pytest.raises(UserError, match="unknown game"):
        facts_of(spec)
    with pytest.raises(UserError, match="unknown game"):
        make_env(spec, range(1), 1, seed=0)
    assert not Path("ran").exists()
    with pytest.raises(UserError, match="has no 'Suite'"):
        name_game(spec)
    assert Path("ran").exists()


def test_the_way_from_random_to_published_play():
    game = Game((64, 64, 3), ("-",), random=2.0, published=(10.0, 8.0))
    assert game.way(4.0) == 0.25
    assert Game((64, 64, 3), ("-",)).way(4.0) is None
