"""Looks: other pictures, the same play; filters of any game, skins of Procgen's."""

import numpy as np
import pytest

from gsf.core.errors import UserError
from gsf.data.dataset import Dataset
from gsf.data.materialise import MaterialiseConfig, materialise
from gsf.evaluation.evaluate import EvaluateConfig, evaluate
from gsf.evaluation.splits import split_levels
from gsf.learn.check import CheckConfig, check
from gsf.suites import find_game, looks, make_env
from gsf.suites import make_env as procgen
from gsf.suites._skins import N_BACKGROUNDS, Skin, Skins, skins_of, wear
from gsf.suites._state import number, places
from gsf.suites.looks import Draw, Dressed, Filters, draw_filter
from gsf.suites.procgen import GAMES
from recordings import record_grid
from scan_skins import after, future, future_in_a_child

GREY = np.full((1, 4, 4, 3), 100, np.uint8)


def test_a_filter_is_gain_times_colours_plus_shift(monkeypatch):
    gain, shift = np.full((4, 4, 1), 1.5, np.float32), np.zeros((4, 4, 3), np.float32)
    shift[0, 0] = -500
    swap = np.float32([[0, 1, 0], [1, 0, 0], [0, 0, 1]])
    monkeypatch.setattr(
        looks, "_filters", lambda *_: looks.Filter(swap[None], gain[None], shift[None])
    )
    image = np.zeros((1, 4, 4, 3), np.uint8)
    image[..., :] = (10, 20, 200)
    painted = Filters().paint(image, np.array([0]))
    assert painted[0, 1, 1].tolist() == [30, 15, 255]
    assert painted[0, 0, 0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_looks_differ_and_each_is_always_the_same(channels):
    obs = np.random.default_rng(0).integers(0, 256, (3, 9, 7, channels), np.uint8)
    same = np.stack([obs[0]] * 3)
    painted = Filters().paint(same, np.array([4, 5, 4]))
    assert painted.shape == same.shape
    assert painted.dtype == np.uint8
    assert np.array_equal(painted[0], painted[2])
    assert np.abs(painted[0].astype(int) - painted[1]).mean() > 5
    assert np.array_equal(Filters().paint(same[:1], np.array([5]))[0], painted[1])
    assert draw_filter((9, 7, channels), 4).gain.min() >= 0.6 * 0.85


def test_every_view_of_an_episode_is_another_look():
    views = [Draw("filters", 5, seed=1, view=v) for v in range(5)]
    for slot, episode in ((0, 0), (0, 1), (3, 7)):
        assert sorted(draw(slot, episode) for draw in views) == [0, 1, 2, 3, 4]
    drawn = [views[0](slot, episode) for slot in range(10) for episode in range(10)]
    assert np.bincount(drawn, minlength=5).min() > 5


def play(env, actions):
    """Images, and all else that is seen of every step."""
    images, facts = [env.reset()[0]], []
    for a in actions:
        obs, *rest, info = env.step(a)
        images.append(obs)
        facts.append([*rest, info["completed"]])
    return np.stack(images), np.array(facts, np.float64)


@pytest.mark.parametrize("kind", ["filters", "skins"])
def test_a_level_is_a_look_and_its_layout_is_the_games_own(kind):
    actions = np.random.default_rng(0).integers(15, size=(60, 2))
    (images, facts), (drawn, same) = (
        play(make_env(game, levels, 2, 0), actions)
        for game, levels in (("coinrun", [7, 2]), (f"coinrun@{kind}-10", [1_000_007, 12]))
    )
    assert np.array_equal(facts, same)
    assert (images != drawn).reshape(len(images) * 2, -1).any(1).all()


def test_it_goes_on_from_any_state():
    actions = np.random.default_rng(0).integers(15, size=(80, 3))
    env, other = (make_env("coinrun@filters", range(6), 3, 1) for _ in range(2))
    play(env, actions[:40])
    other.load_state_dict(env.state_dict())
    state = env.save(2)
    assert np.array_equal(env.observe()[0], other.observe()[0])
    for a in actions[40:]:
        assert np.array_equal(env.step(a)[0], other.step(a)[0])
    env.restore(0, state)
    assert env.look[0] == env._look_of(*state[:2])
    kept = other.keep(np.array([1]))
    assert np.array_equal(kept[0], other.observe()[0][0])


@pytest.mark.parametrize("game", ["grid5_both@filters-3", "coinrun@skins"])
def test_it_is_as_gsf_expects_a_suite(game):
    check(CheckConfig(f"looks/{game}"))


def test_what_is_no_look_is_said():
    for name in ("coinrun@paint", "coinrum@filters", "coinrun@filters-0", "@filters"):
        with pytest.raises(UserError, match="unknown game"):
            find_game(name)
    with pytest.raises(UserError, match="grid5_looks has no skins, which are Procgen's"):
        make_env("grid5_looks@skins", [1], 1, 0)
    assert find_game("grid5_both@filters")[1] == "grid5_both@filters"


@pytest.mark.parametrize("game", GAMES)
def test_a_skin_changes_the_picture_and_nothing_else(game):
    """What follows is the same for 80 random steps; the number after the last is not there."""
    actions = np.random.default_rng(1).integers(15, size=80)
    env = procgen(game, range(200), 1, 5, threads=0)
    state = after(env, 17)
    was = future(env, state, actions)
    n = N_BACKGROUNDS[game]
    found = places(state[0])
    assert 0 <= number(state[0], found.background) < n
    assert number(state[0], found.has_background) == 1
    some = [Skin(n - 1, False), Skin(None, False), Skin(n // 2, True), Skin(None, True)]
    drawn = {was.picture}
    for skin in some:
        worn = future(env, (wear(state[0], skin), *state[1:]), actions)
        assert worn.facts == was.facts
        drawn.add(worn.picture)
    assert len(drawn) >= 3
    assert future_in_a_child(env, (wear(state[0], Skin(n, False)), *state[1:]), actions[:2]) is None
    env.close()


def test_skins_of_training_validation_and_unseen_looks_are_others():
    skins, all_of_them = Skins(find_game("plunder")[0], "plunder"), skins_of("plunder")
    assert len(set(all_of_them)) == len(all_of_them) == 2 * (4 + 1)
    train, validation, unseen = (
        {skins.skin(first + i) for i in range(50)} for first in (0, 500_000, 1_000_000)
    )
    assert (len(train), len(validation), len(unseen)) == (5, 2, 3)
    assert train | validation | unseen == set(all_of_them)
    with pytest.raises(UserError, match=r"plunder has 5 skins .*, 2 .* and 3 .*: here 5, not 6"):
        skins.check(6)
    skins.check(3, first=1_000_000)
    with pytest.raises(UserError, match="here 3, not 4"):
        skins.check(4, first=1_000_000)


def test_a_dataset_in_looks_is_the_same_play_in_other_contexts(tmp_path):
    path = record_grid(tmp_path, "grid5_layouts", transitions=1200)
    plain = Dataset.open(materialise(MaterialiseConfig(str(path), out=tmp_path / "plain")))
    options = {"looks": 5, "views": 2, "transitions": 1100}
    found = Dataset.open(materialise(MaterialiseConfig(str(path), out=tmp_path / "new", **options)))
    assert (found.name, found.levels) == ("grid5_layouts@filters-6", [0, 1, 2, 3, 4])
    assert len(found) == 2200
    half = slice(0, 1100), slice(1100, 2200)
    for name in ("action", "reward", "terminated", "truncated", "has_next", "t"):
        first, second = (getattr(found, name)[x] for x in half)
        assert np.array_equal(first, second)
    for i in (0, 400, 1099):
        a, b = (found.observations([row])[0].numpy() for row in (i, 1100 + i))
        looks_of = found.level[[i, 1100 + i]]
        assert looks_of[0] != looks_of[1]
        for image, look in ((a, looks_of[0]), (b, looks_of[1])):
            was = plain.observations([i]).numpy()
            assert np.array_equal(Filters().paint(was, np.array([look]))[0], image)
    assert (np.diff(found.level)[np.diff(found.episode) == 0] == 0).all()  # a look for an episode
    assert set(np.unique(found.level)) == {0, 1, 2, 3, 4}


def test_agents_are_evaluated_on_looks(tmp_path):
    rows = evaluate(
        EvaluateConfig(
            "random",
            tmp_path / "rows.csv",
            game="grid5_looks@filters-3",
            n_seen=2,
            n_validation=0,
            n_unseen=2,
        )
    )
    assert sorted(set(rows["level"])) == [0, 1, 1_000_000, 1_000_001]
    assert split_levels("coinrun@skins", "unseen", 2) == [1_000_000, 1_000_001]


def test_who_has_seen_no_looks_is_tried_in_them(tmp_path):
    few = {"n_seen": 2, "n_validation": 0, "n_unseen": 2, "out": tmp_path / "rows.csv"}
    rows = evaluate(EvaluateConfig("random", game="grid5_looks", looks="filters", **few))
    assert set(rows["game"]) == {"grid5_looks@filters-16"}
    assert set(rows["level"]) == {1_000_000, 1_000_001}
    assert set(rows["split"]) == {"unseen"}
    with pytest.raises(UserError, match="its levels are looks already"):
        evaluate(EvaluateConfig("random", game="grid5_looks@filters", looks="filters", **few))
    with pytest.raises(UserError, match="grid5_looks has no skins"):
        evaluate(EvaluateConfig("random", game="grid5_looks", looks="skins", **few))


def test_wrong_looks_are_named(tmp_path):
    path = record_grid(tmp_path, "grid5_layouts", transitions=1200)
    with pytest.raises(UserError, match="--views 2 needs as many --looks"):
        MaterialiseConfig(path, out=tmp_path / "new", views=2)
    config = MaterialiseConfig("plunder", out=tmp_path / "new", looks=9, look_kind="skins")
    with pytest.raises(UserError, match=r"plunder has 5 skins .*: here 5, not 9"):
        materialise(config)
    config = MaterialiseConfig("coinrun-validation", out=tmp_path / "new", looks=2)
    with pytest.raises(UserError, match="on levels from 0 on; 500000 is the first"):
        materialise(config)


def test_an_env_that_is_dressed_tells_looks_and_levels():
    env = Dressed(make_env("grid5_both", range(4), 3, 0), Filters(), Draw("filters", 9, 2))
    obs, info = env.reset()
    assert info["level"].max() < 4
    assert info["look"].tolist() == [Draw("filters", 9, 2)(slot, 0) for slot in range(3)]
    assert np.array_equal(obs, env.observe()[0])
