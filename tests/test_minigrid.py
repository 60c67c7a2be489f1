"""examples/minigrid_env.py: played by gsf like any environment, and its planner finds the goal."""

from pathlib import Path

import pytest

from gsf.evaluation.evaluate import EvaluateConfig, evaluate
from gsf.suites import gymnasium
from gsf.suites.gymnasium import departure, factories, name_env

EXAMPLE = f"{Path(__file__).parents[1] / 'examples' / 'minigrid_env.py'}:make"


pytestmark = pytest.mark.usefixtures("forget")


def test_it_repeats_itself_and_is_played(tmp_path):
    game = name_env(EXAMPLE)
    assert gymnasium.games[game].obs_shape == (54, 54, 3)
    assert departure(game, range(3), n_steps=40, n_envs=2) is None
    options = {"levels": ("1000..1001",), "modes": ("sampled",), "max_frames": 30}
    rows = evaluate(EvaluateConfig("random", tmp_path / "rows.csv", env=EXAMPLE, **options))
    assert rows["level"].tolist() == [1000, 1001]


def test_the_planner_takes_a_short_way_to_the_goal():
    make = factories.find(EXAMPLE).value
    plan = make.__globals__["plan"]
    for level in range(3):
        env = make(level)
        env.reset(seed=level)
        for _ in range(40):
            _, reward, terminated, _, info = env.step(plan(env))
            if terminated:
                break
        assert terminated
        assert info["success"]
        assert reward > 0.9
