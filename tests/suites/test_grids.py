"""Grids: values computed by hand, play that repeats itself, and every door of gsf."""

import json

import numpy as np
import pytest

from gsf.behaviour.collect import CollectConfig, collect
from gsf.core.errors import UserError
from gsf.data.dataset import Dataset
from gsf.data.materialise import MaterialiseConfig, materialise
from gsf.data.recording import Recording
from gsf.evaluation.evaluate import EvaluateConfig, evaluate
from gsf.evaluation.splits import split_levels
from gsf.learn.check import CheckConfig, check
from gsf.suites import grids, make_env
from gsf.sweep.options import RunConfig
from gsf.sweep.sources import find_sources

UP, RIGHT, DOWN, LEFT = range(4)
# S . #      Cells are numbered row by row: S is 0, the wall 2, the goal 8.
# . . .
# # . G
WALLS = np.array([[0, 0, 1], [0, 0, 0], [1, 0, 0]], bool)


def hand_made(scale: float = 1.0) -> grids.World:
    return grids.World(grids._steps(WALLS), 0, 8, scale, np.empty(0))


def best_player(tmp_path, game="grid5_looks", **options):
    given = {"player": "best", "skill": 0.7, "n_envs": 4, "n_levels": 3, "transitions": 2000}
    return collect(CollectConfig(game=game, out=tmp_path / "collect", **(given | options)))


def test_walls_and_edges_hold():
    step = hand_made().step
    assert step[0].tolist() == [0, 1, 3, 0]
    assert step[1].tolist() == [1, 1, 4, 0]  # the wall is on its right
    assert step[7].tolist() == [4, 8, 7, 7]
    assert grids.distances(step, 8)[[0, 1, 3, 4, 5, 7, 8]].tolist() == [4, 3, 3, 2, 1, 1, 0]


def test_values_are_those_computed_by_hand():
    values = hand_made(scale=100).values(0.9)
    assert values[[0, 1, 3, 4, 5, 7]] == pytest.approx([72.9, 81, 81, 90, 100, 100])
    q = hand_made().action_values(0.9)
    assert q[4].tolist() == pytest.approx([0.729, 0.9, 0.9, 0.729])
    assert q[5].tolist() == pytest.approx([0.9, 0.9, 1, 0.81])  # up is the wall: it stays


def test_levels_differ_in_what_their_name_says():
    looks, layouts, both = (
        [grids.world(f"grid5_{x}", i) for i in (4, 5)] for x in ("looks", "layouts", "both")
    )
    assert (looks[0].step == looks[1].step).all()
    assert looks[0].goal == looks[1].goal
    assert (looks[0].pictures != looks[1].pictures).any()
    assert (layouts[0].step != layouts[1].step).any()
    assert (both[1].step == layouts[1].step).all()
    assert (both[1].pictures != layouts[1].pictures).any()
    assert [grids.world("grid5_scaled", i).scale for i in (4, 5)] == [1, 100]
    assert (grids.world("grid5_scaled", 5).pictures == looks[1].pictures).all()


def test_a_picture_shows_walls_goal_and_agent():
    walls, goal, agent = WALLS, 8, 4
    picture = grids._draw(walls, goal, look=3)[agent].astype(int)
    cell = picture.reshape(3, 4, 3, 4, 3).swapaxes(1, 2)  # [row, column, y, x, 3]
    ground, wall, ring, cross = grids._colours(np.random.default_rng([grids.LOOK, 3])).astype(int)
    for at, shape, ink in (((0, 2), 0, wall), ((2, 2), 1, ring), ((1, 1), 2, cross)):
        wanted = np.where(grids.SHAPES[shape][..., None], ink, ground)
        assert np.abs(cell[at] - wanted).max() <= grids.GREYS
    assert np.abs(cell[0, 0] - ground).max() <= grids.GREYS


@pytest.mark.parametrize("game", grids.GAMES)
def test_the_best_play_reaches_every_goal_in_time(game):
    env = make_env(game, range(6), 6, seed=0)
    assert env.reset()[0].shape == (6, *grids.GAMES[game].obs_shape)
    shortest = min(
        grids.distances(w.step, w.goal)[w.start] for w in (grids.world(game, i) for i in range(6))
    )
    assert shortest >= 2 * (grids.side(game) - 1)
    ended = won = 0
    for _ in range(2 * env.step_limit):
        _, reward, terminated, truncated, info = env.step(env.best_actions())
        assert (reward > 0).tolist() == terminated.tolist() == info["completed"].tolist()
        ended, won = ended + (terminated | truncated).sum(), won + terminated.sum()
    assert ended == won >= 6


def test_standing_still_is_cut_short():
    env = make_env("grid5_looks", [7], 1, seed=0)
    walls = env.reset()[1]["level"].tolist()
    into = int(np.flatnonzero(env._step[0, env._cell[0]] == env._cell[0])[0])
    for t in range(20):
        _, reward, terminated, truncated, _ = env.step([into])
        assert (reward[0], terminated[0], truncated[0]) == (0, False, t == 19)
    assert walls == [7]


def play(env, actions):
    return [np.concatenate([np.ravel(x) for x in env.step(a)[:4]]) for a in actions]


def test_it_goes_on_from_any_state_in_any_slot():
    actions = np.random.default_rng(1).integers(4, size=(60, 3))
    env, other = (make_env("grid5_both", range(9), 3, seed=5) for _ in range(2))
    play(env, actions[:30])
    other.load_state_dict(json.loads(json.dumps(env.state_dict())))
    state, after = env.save(1), play(env, actions[30:])
    assert np.array_equal(after, play(other, actions[30:]))
    alone = make_env("grid5_both", range(9), 1, seed=5)
    alone.restore(0, state)
    env.restore(2, state)
    moved = np.repeat(actions[30:, 1:2], 3, 1)
    for a in moved:
        assert np.array_equal(alone.step(a[:1])[0][0], env.step(a)[0][2])


def test_slots_that_are_kept_play_on_as_before():
    actions = np.random.default_rng(1).integers(4, size=(60, 4))
    whole, kept = (make_env("grid5_both", list(range(9)), 4, seed=0) for _ in range(2))
    play(whole, actions[:9])
    play(kept, actions[:9])
    assert np.array_equal(kept.keep(np.array([1, 3])), whole.observe()[0][[1, 3]])
    for a in actions[9:]:
        one, other = whole.step(a), kept.step(a[[1, 3]])
        assert all(np.array_equal(x[[1, 3]], y) for x, y in zip(one[:4], other[:4], strict=True))
        assert one[4]["level"][[1, 3]].tolist() == other[4]["level"].tolist()


@pytest.mark.parametrize("game", ["grid5_both", "grid7_scaled"])
def test_it_is_as_gsf_expects_a_suite(game):
    check(CheckConfig(f"grids/{game}"))


def test_unseen_looks_are_none_of_those_seen():
    assert split_levels("grid5_looks", "unseen", 3) == [1_000_000, 1_000_001, 1_000_002]


def test_the_best_player_is_recorded_as_well_as_it_is_asked_to_play(tmp_path):
    recording = Recording.load(best_player(tmp_path))
    take = recording.takes[0]
    assert take.policy["skill"] == 0.7
    assert take.epsilon["schedule"] == "constant"
    assert (take.epsilon["first"], take.epsilon["last"]) == pytest.approx((0.3, 0.3))
    assert 0.5 < take.returns["mean_return"] < 1  # of 20 steps it may lose a few
    flawless = collect(
        CollectConfig(
            game="grid5_looks",
            player="best",
            skill=1,
            n_envs=2,
            transitions=64,
            out=tmp_path / "best",
        )
    )
    assert Recording.load(flawless).takes[0].returns["mean_return"] == 1
    with pytest.raises(UserError, match="procgen does not know the best play of coinrun"):
        CollectConfig(game="coinrun", player="best")


def test_a_dataset_replays_and_has_true_values(tmp_path):
    path = best_player(tmp_path, "grid5_scaled")
    data = Dataset.open(
        materialise(MaterialiseConfig(str(path), out=tmp_path / "data", transitions=1500))
    )
    level = np.array(data.levels)[data.level]
    values = grids.true_values(
        data.name, level, data.t, data.action, np.array(data.terminated), gamma=0.5
    )
    won = np.flatnonzero(data.terminated)
    assert values[won].tolist() == [100.0 if level[i] % 2 else 1.0 for i in won]
    way = grids.distances(grids.world(data.name, 0).step, grids.world(data.name, 0).goal)
    start = way[grids.world(data.name, 0).start]
    first = np.flatnonzero(data.t == 0)
    assert values[first] == pytest.approx(0.5 ** (start - 1) * (1 + 99 * (level[first] % 2)))
    gone_wrong = np.array(data.terminated)
    gone_wrong[won[0]] = False
    with pytest.raises(UserError, match=rf"row {won[0]} is no play of grid5_scaled"):
        grids.true_values(data.name, level, data.t, data.action, gone_wrong, gamma=0.5)


def test_it_is_evaluated(tmp_path):
    rows = evaluate(
        EvaluateConfig(
            "random",
            tmp_path / "rows.csv",
            game="grid5_looks",
            n_seen=3,
            n_unseen=3,
            n_validation=0,
        )
    )
    assert len(rows) == 12
    assert (rows["length"] <= 20).all()


def test_only_who_names_a_grid_gets_one():
    assert not set(find_sources(RunConfig(methods=("bc",)))) & set(grids.GAMES)
