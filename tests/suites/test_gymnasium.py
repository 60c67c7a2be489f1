"""Gymnasium environments of a user's own: played, filmed and refused by one sentence each."""

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tiny
import walks
from gsf.cli import main
from gsf.core import registry
from gsf.core.errors import UserError
from gsf.evaluation.episodes import evaluate_agent
from gsf.evaluation.evaluate import EvaluateConfig, evaluate
from gsf.evaluation.video import PlayConfig, play
from gsf.suites import find_game, gymnasium, known_facts
from gsf.suites.gymnasium import departure, name_again, name_env
from players import train_run

FILE = Path(__file__).parents[1] / "walks.py"


pytestmark = pytest.mark.usefixtures("forget")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    home = tmp_path_factory.mktemp("walks")
    return train_run(tiny.write_dataset(home / "dataset"), home / "run")


class Walker:
    """Goes where it is lit."""

    def policy(self, obs, temperature):
        return np.eye(3)[np.where(obs[:, 0, walks.LENGTH - 1].min(-1) == 255, 2, 0)]


def test_its_levels_are_played_whatever_the_number_of_envs():
    game = name_env(f"{FILE}:make", "walk")
    assert known_facts("walk").obs_shape == (12, 12, 3)
    rows = evaluate_agent(Walker(), game, range(20), n_envs=20)
    assert rows.equals(evaluate_agent(Walker(), game, range(20), n_envs=3))
    assert (rows["return"] == 1).all()
    assert rows["completed"].all()  # by "success" of its infos
    assert rows["length"].nunique() > 1


def test_a_slot_whose_levels_are_over_takes_no_steps(monkeypatch):
    steps = []
    step = walks.Walk.step
    monkeypatch.setattr(walks.Walk, "step", lambda self, a: steps.append(a) or step(self, a))
    monkeypatch.setitem(gymnasium.games, "walk", gymnasium.Game((12, 12, 3), ("0", "1", "2"), -1))
    found = registry.Found("walks", "walk", walks.make)
    monkeypatch.setitem(gymnasium._made_by, "walk", found)
    rows = evaluate_agent(Walker(), "walk", range(20), n_envs=20)
    assert len(steps) == rows["length"].sum()


def test_a_run_is_evaluated_and_filmed_in_it(run, tmp_path, capsys):
    run = shutil.copytree(run, tmp_path / "run")
    command = f"evaluate {run} --env {FILE}:make --device cpu --levels 1000..1009 101"
    assert main(command.split()) == 0
    rows = pd.read_csv(run / "returns.csv")
    assert set(rows["level"]) == {101, *range(1000, 1010)}
    assert set(rows.loc[rows["split"] == "seen", "level"]) == {101}  # of the training data
    assert set(rows["mode"]) == {"greedy", "sampled", "sampled-1"}
    assert rows["game"].eq("corridor").all()
    options = f"--env {FILE}:make --device cpu --level 1003 --fps 1 --scale 2 --mode greedy"
    assert main(f"play {run} --out {tmp_path}/a.gif {options}".split()) == 0
    greedy = rows[(rows["level"] == 1003) & (rows["mode"] == "greedy")].iloc[0]
    shown = capsys.readouterr().out
    assert f"cql, greedy: return {greedy['return']:g}, " in shown
    assert f"after {greedy['length']} steps" in shown


def test_random_play_is_named_like_the_file_or_the_data(run, tmp_path):
    out = tmp_path / "random.csv"
    options = {"env": f"{FILE}:make", "levels": ("1000..1003",), "modes": ("sampled",)}
    assert set(evaluate(EvaluateConfig("random", out, **options))["game"]) == {"walks"}
    data = run.parent / "dataset"
    rows = evaluate(EvaluateConfig("random", out, dataset=data, **options))
    assert set(rows["game"]) == {"corridor"}
    assert len(rows) == 4


def test_unseen_levels_are_found_without_asking(run, tmp_path):
    options = {"n_seen": 2, "n_validation": 0, "n_unseen": 2, "modes": ("greedy",)}
    out = tmp_path / "rows.csv"
    rows = evaluate(EvaluateConfig(str(run), out, env=f"{FILE}:make", device="cpu", **options))
    assert rows["level"].tolist() == [100, 101, 1_000_000, 1_000_001]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("continuous", r"continuous\(7\) has actions Box float32 \(2,\); gsf needs a Discrete"),
        ("with_floats", r"float64 \[12, 12, 3\]; gsf needs one uint8 image"),
        ("small", r"cannot be played by .*run: its images are \[8, 8, 3\], not \[12, 12, 3\]"),
        ("five_actions", "cannot be played by .*: it has 5 actions, not 3"),
        ("raises", r"raises\(7\) raised FileNotFoundError: no map"),
        ("breaks", r"step 3 of .*breaks\(7\) raised ZeroDivisionError"),
        ("nothing", r"nothing\(7\) gave NoneType, not a Gymnasium environment"),
        ("grey", r"its images are \[12, 12, 1\], not"),
        ("gone", "has no 'gone'; it must define the environment by that name"),
        ("LENGTH", "'LENGTH' of .* is not an environment"),
    ],
)
def test_what_cannot_be_played_is_said_in_one_sentence(run, tmp_path, capsys, name, message):
    options = f"--out {tmp_path}/rows.csv --levels 7 --device cpu"
    assert main(f"evaluate {run} --env {FILE}:{name} {options}".split()) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(message, said), said
    assert said.count("error:") == 1
    assert not (tmp_path / "rows.csv").exists()


def test_levels_that_differ_in_shape_are_refused(run, tmp_path):
    options = {"env": f"{FILE}:grows", "levels": ("7", "2000"), "device": "cpu"}
    with pytest.raises(UserError, match=r"\(2000\) has images \[8, 8, 3\] .* must agree"):
        evaluate(EvaluateConfig(str(run), tmp_path / "rows.csv", **options))


@pytest.mark.parametrize("words", ["a", "3..", "5..3", "-1", "1...4"])
def test_levels_are_numbers(words):
    with pytest.raises(UserError, match="a level is a number"):
        EvaluateConfig("run", levels=(words,))


def test_rows_of_another_environment_are_not_mixed_in(run, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(FILE.read_text())
    options = {"out": tmp_path / "rows.csv", "levels": ("7",), "device": "cpu"}
    evaluate(EvaluateConfig(str(run), env=f"{mine}:make", **options))
    mine.write_text(FILE.read_text().replace("MOST_STEPS = 12, 30", "MOST_STEPS = 12, 9"))
    with pytest.raises(UserError, match="rows of another cql"):
        evaluate(EvaluateConfig(str(run), env=f"{mine}:make", **options))


def test_what_repeats_itself_is_told_from_what_does_not():
    assert departure(name_env(f"{FILE}:make", "walk"), range(5)) is None
    noisy = departure(name_env(f"{FILE}:noisy", "noisy"), range(5))
    assert noisy == "its images differ after 0 steps"


def test_a_state_goes_on_where_it_was():
    game = name_env(f"{FILE}:make", "walk")
    rng = np.random.default_rng(0)
    actions = rng.integers(3, size=(80, 3))
    env = gymnasium.GymVectorEnv(game, range(9), 3, seed=4)
    for action in actions[:40]:
        env.step(action)
    other = gymnasium.GymVectorEnv(game, range(9), 3, seed=4)
    other.load_state_dict(env.state_dict())
    for action in actions[40:]:
        for x, y in zip(env.step(action)[:4], other.step(action)[:4], strict=True):
            np.testing.assert_array_equal(x, y)


def test_the_state_of_one_slot_goes_on_in_any_other():
    game = name_env(f"{FILE}:make", "walk")
    env, fan = (gymnasium.GymVectorEnv(game, range(9), n, seed=n) for n in (2, 3))
    for _ in range(2):
        env.step(np.array([1, 2]))
    for slot in range(3):
        fan.restore(slot, env.save(1))
    for action in (1, 2, 2):
        one, three = env.step(np.array([0, action])), fan.step(np.full(3, action))
        for x, y in zip(one[:4], three[:4], strict=True):
            np.testing.assert_array_equal(np.repeat(x[1:], 3, 0), y)


def test_what_data_names_runs_only_if_the_user_has_named_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("from pathlib import Path\nPath('ran').touch()\nmake = None\n")
    code = registry.digest_file(Path("evil.py"))
    with pytest.raises(UserError, match="is code of a file; if you trust it"):
        name_again("evil.py:make", code, "game", 0)
    assert not Path("ran").exists()
    registry.allow([FILE])
    name_again("anywhere/walks.py:make", registry.digest_file(FILE), "walk", 0)
    assert find_game("walk")[0].name == "gymnasium"


def test_an_environment_that_the_user_names_comes_before_a_suites_game():
    name_env(f"{FILE}:make", "coinrun")
    assert find_game("coinrun")[0].name == "gymnasium"
    assert find_game("procgen/coinrun")[0].name == "procgen"
    gymnasium.games.clear()
    assert find_game("coinrun")[0].name == "procgen"


def test_a_game_may_be_called_like_a_minari_id(tmp_path):
    name_env(f"{FILE}:make", "minigrid/walk-v0")
    assert find_game("minigrid/walk-v0")[1] == "minigrid/walk-v0"
    config = PlayConfig(
        "random", 3, tmp_path / "a.gif", game="minigrid/walk-v0", fps=1, scale=1, max_steps=2
    )
    assert play(config).is_file()
