"""What lies where in a state of Procgen: the generator of chance, and nothing else of it."""

import numpy as np

from gsf.suites import make_env
from gsf.suites._state import after_text, places, with_chance

GAMES = ("bossfight", "plunder")  # in which chance soon shows


def test_other_chances_change_what_comes_and_not_what_is():
    rng = np.random.default_rng(0)
    for game in GAMES:
        env = make_env(game, range(200), 4, 0, plain=True)
        for _ in range(12):
            env.step(rng.integers(15, size=4))
        state = env.save(0)
        states = [state, state, env.with_chance(state, 1), env.with_chance(state, 2)]
        for slot, latent in enumerate(states):
            env.restore(slot, latent)
        now = env.observe()[0]
        assert (now == now[0]).all()
        frames = [env.step(np.full(4, action))[0] for action in rng.integers(15, size=20)]
        play = np.array(frames).transpose(1, 0, 2, 3, 4)
        assert (play[0] == play[1]).all()
        assert (play[0] != play[2]).any()
        assert (play[2] != play[3]).any()
        env.close()


def test_the_levels_to_come_stay():
    env = make_env("coinrun", range(200), 2, 0)
    env.restore(1, env.with_chance(env.save(0), 5))
    rng, met = np.random.default_rng(1), [[], []]
    while len(met[0]) < 4:
        _, _, terminated, truncated, info = env.step(np.full(2, rng.integers(15)))
        ended = terminated | truncated
        assert ended[0] == ended[1]  # coinrun's play knows no chance
        for slot in np.flatnonzero(ended):
            met[slot].append(int(info["level"][slot]))
    assert met[0] == met[1]
    env.close()


def test_all_else_stays_as_it_is():
    env = make_env("plunder", range(200), 1, 0)
    state, *_ = env.save(0)
    env.close()
    changed, at = with_chance(state, 3), places(state).chance
    assert changed[:at] == state[:at]
    assert changed[after_text(changed, at) :] == state[after_text(state, at) :]
    assert with_chance(state, 3) == changed
