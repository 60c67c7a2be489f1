"""Real Procgen: exact levels, right flags on every step, states that can be restored."""

import subprocess
import sys

import numpy as np
import pytest

from gsf.core.errors import UserError
from gsf.suites import known_facts, make_env, procgen
from gsf.suites.procgen import GAMES


def play(env, actions):
    """The stream of everything a user sees."""
    obs, info = env.reset()
    seen = [(obs, info["level"])]
    for action in actions:
        obs, reward, terminated, truncated, info = env.step(action)
        seen.append((obs, info["level"], reward, terminated, truncated, info["prev_level"]))
    return seen


def same(first, second):
    return all(
        np.array_equal(a, b)
        for x, y in zip(first, second, strict=True)
        for a, b in zip(x, y, strict=True)
    )


def random_actions(n_steps, n_envs, seed=0):
    return np.random.default_rng(seed).integers(0, 15, (n_steps, n_envs))


@pytest.mark.parametrize("game", GAMES)
def test_listed_levels_play_like_one_level_envs(game):
    levels = [3, 900_000, 17, 4, 5]  # slot 0 plays 3, 17, 5; slot 1 plays 900000, 4
    n_steps = 150
    actions = random_actions(n_steps, 2)
    env = make_env(game, levels, n_envs=2, seed=0)
    obs, info = env.reset()
    assert info["level"].tolist() == [3, 900_000]
    turns = [[3, 17, 5], [900_000, 4]]
    alone = [make_env(game, range(n, n + 1), 1, seed=8) for n in (3, 900_000)]
    for slot in range(2):
        assert np.array_equal(alone[slot].reset()[0][0], obs[slot])
    begun = [1, 1]
    for t in range(n_steps):
        obs, reward, terminated, truncated, info = env.step(actions[t])
        for slot in range(2):
            level = turns[slot][(begun[slot] - 1) % len(turns[slot])]
            assert info["prev_level"][slot] == level
            expected = alone[slot].step(actions[t, slot : slot + 1])
            assert reward[slot] == expected[1][0]
            assert (terminated[slot], truncated[slot]) == (expected[2][0], expected[3][0])
            if terminated[slot] or truncated[slot]:
                level = turns[slot][begun[slot] % len(turns[slot])]
                begun[slot] += 1
                alone[slot] = make_env(game, range(level, level + 1), 1, seed=9)
                expected = alone[slot].reset()
            assert info["level"][slot] == level
            assert np.array_equal(expected[0][0], obs[slot])


def test_same_seed_same_stream_whatever_the_threads():
    actions = random_actions(200, 4)
    streams = [
        play(make_env("coinrun", range(200), 4, seed=5, threads=threads), actions)
        for threads in (0, 1, 2)
    ]
    assert same(streams[0], streams[1])
    assert same(streams[0], streams[2])
    other = play(make_env("coinrun", range(200), 4, seed=6), actions)
    assert not same(streams[0], other)


def test_reset_starts_the_same_stream_again():
    env = make_env("jumper", range(10), 3, seed=1)
    actions = random_actions(60, 3)
    assert same(play(env, actions), play(env, actions))


def test_levels_stay_in_the_range():
    env = make_env("fruitbot", range(40, 45), 8, seed=0)
    levels = {int(n) for seen in play(env, random_actions(300, 8)) for n in seen[1]}
    assert levels <= set(range(40, 45))
    assert len(levels) == 5


def test_doing_nothing_in_a_maze_is_truncated_at_its_limit():
    env = make_env("maze", [1, 2], n_envs=2, seed=0)
    env.reset()
    for t in range(1, 501):
        _, _, terminated, truncated, info = env.step(np.array([4, 4]))
        assert not terminated.any()
        assert truncated.tolist() == [t == 500] * 2
    assert info["prev_level"].tolist() == [1, 2]
    assert not info["completed"].any()


def test_dying_is_terminated_and_reaching_the_goal_is_completed():
    env = make_env("coinrun", range(200), 64, seed=0)
    env.reset()
    completed = lost = 0
    for action in random_actions(600, 64, seed=2):
        _, reward, terminated, truncated, info = env.step(np.where(action < 8, 7, 8))
        assert np.array_equal(info["completed"], reward > 0)  # coinrun pays only for the coin
        assert not (info["completed"] & ~terminated).any()
        assert not (terminated & truncated).any()
        completed += info["completed"].sum()
        lost += (terminated & ~info["completed"]).sum()
    assert completed > 0
    assert lost > 0


def test_a_restored_state_goes_on_bit_for_bit():
    actions = random_actions(120, 4)
    env = make_env("heist", range(200), 4, seed=3)
    env.reset()
    for action in actions[:40]:
        env.step(action)
    saved = env.state_dict()
    rest = [env.step(action)[:4] for action in actions[40:]]
    other = make_env("heist", range(200), 4, seed=77)
    other.load_state_dict(saved)
    assert same(rest, [other.step(action)[:4] for action in actions[40:]])
    assert saved["states"] != env.latent_state()


def test_the_state_of_one_slot_goes_on_in_any_other():
    walk = make_env("starpilot", range(200), 2, seed=3)
    fan = make_env("starpilot", range(200), 4, seed=77)
    for action in random_actions(30, 2):
        walk.step(action)
    state = walk.save(1)
    for slot in (0, 3):
        fan.restore(slot, state)
    for action in random_actions(60, 1, seed=5):
        one = [x[1] for x in walk.step(np.repeat(action, 2))[:4]]
        for slot, of_fan in enumerate(zip(*fan.step(np.repeat(action, 4))[:4], strict=True)):
            assert same([one], [of_fan]) == (slot in (0, 3))


@pytest.mark.parametrize("game", GAMES)
def test_drawn_plainly_a_game_plays_exactly_the_same(game):
    drawn, plain = (make_env(game, range(200), 8, seed=1, plain=x) for x in (False, True))
    differs = False
    for action in random_actions(150, 8):
        *one, info = drawn.step(action)
        *other, other_info = plain.step(action)
        differs |= not np.array_equal(one[0], other[0])
        assert same([[*one[1:], *info.values()]], [[*other[1:], *other_info.values()]])
    assert differs


@pytest.mark.parametrize("levels", [[7, 8, 9, 10, 11, 12], range(7, 13)])
def test_slots_that_are_kept_go_on_as_if_the_others_were_there(levels):
    slots = np.array([2, 0])
    whole, part = (make_env("bigfish", levels, 3, seed=0) for _ in range(2))
    actions = random_actions(440, 3)
    for action in actions[:40]:
        obs = whole.step(action)[0]
        part.step(action)
    assert np.array_equal(part.keep(slots), obs[slots])
    assert part.num_envs == 2
    assert part.action_space.contains(actions[0][slots])
    assert part.observation_space.contains(part.keep(np.array([0, 1])))
    n_ended = 0
    for action in actions[40:]:
        *expected, info = whole.step(action)
        *found, kept = part.step(action[slots])
        assert same([[x[slots] for x in (*expected, *info.values())]], [[*found, *kept.values()]])
        n_ended += (found[2] | found[3]).sum()
    assert n_ended > 2  # slots went on to the next level assigned to them


def test_lent_buffers_are_not_copies():
    env = make_env("coinrun", range(5), 2, seed=0, copy=False)
    first = env.reset()[0]
    assert env.step(np.array([7, 7]))[0] is first


def test_what_was_refused_can_be_closed():
    """As Gymnasium does when such an env is forgotten."""
    procgen.ProcgenVectorEnv.__new__(procgen.ProcgenVectorEnv).close_extras()


@pytest.mark.procgen
def test_gym_does_not_print_its_banner():
    code = "import gsf; gsf.make_env('coinrun', range(1), 1, 0).reset()"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == done.stderr == ""


@pytest.mark.parametrize("game", GAMES)
def test_actions_of_a_class_lead_to_one_future_and_others_to_another(game):
    """From each of some states every action is played, then the same 12 random ones after it."""
    facts, rng = GAMES[game], np.random.default_rng(0)
    n = len(facts.actions)
    walk = make_env(game, range(20), 8, seed=1)
    walk.reset()
    fan = make_env(game, range(20), n, seed=0)
    futures = {action: [] for action in range(n)}
    for steps in (1, 9, 25, 40):
        for _ in range(steps):
            walk.step(rng.integers(0, n, 8))
        at = walk.state_dict()
        for slot in range(8):
            one = {name: [values[slot]] * n for name, values in at.items()}
            fan.load_state_dict(one)
            after = np.repeat(rng.integers(0, n, (12, 1)), n, axis=1)
            for actions in (np.arange(n), *after):
                obs, reward, terminated, truncated, _ = fan.step(actions)
                ended = terminated + 2 * truncated
                for action in range(n):
                    seen = obs[action].tobytes(), reward[action], ended[action]
                    futures[action].append(hash(seen))
    by_future = {}
    for action, future in futures.items():
        by_future.setdefault(tuple(future), []).append(action)
    by_class = [np.flatnonzero(facts.action_classes == k).tolist() for k in range(n)]
    assert sorted(by_future.values()) == sorted(filter(None, by_class))
    assert facts.distinct_actions.tolist() == sorted(
        {*range(n)} - {a for same in facts.same_actions for a in same[1:]}
    )
    assert (facts.action_classes[facts.distinct_actions] == np.arange(len(by_future))).all()


def test_the_number_of_distinct_actions_is_what_was_measured():
    counts = {game: len(facts.distinct_actions) for game, facts in GAMES.items()}
    expected = {4: "fruitbot plunder", 5: "leaper maze miner", 6: "climber coinrun jumper"}
    expected |= {9: "bigfish chaser heist", 10: "bossfight caveflyer dodgeball ninja"}
    expected |= {11: "starpilot"}
    assert counts == {game: n for n, games in expected.items() for game in games.split()}


def test_where_procgen_has_no_wheels_its_games_are_known_but_not_played(monkeypatch):
    monkeypatch.setitem(sys.modules, "procgen", None)
    procgen._procgen.cache_clear()
    try:
        assert known_facts("coinrun").published == (9.5, 8.7)
        with pytest.raises(UserError, match=r"Procgen is not installed here .*Linux on x86-64"):
            make_env("coinrun", range(2), 1, seed=0)
    finally:
        procgen._procgen.cache_clear()
