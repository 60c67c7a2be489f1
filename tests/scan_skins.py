"""What each game of Procgen may be drawn with: `python tests/scan_skins.py [GAME ...]`.

Every background is tried in a forked child, as a wrong number aborts the process, and so is a world
of plain shapes: 80 random steps from there must bring the same rewards, ends and levels. Prints
what suites/_skins.py has to say, and how much of the picture changes. A minute for all games.
"""

import contextlib
import faulthandler
import os
import struct
import sys
from typing import Any, NamedTuple

import numpy as np

from gsf.suites import _skins, make_env
from gsf.suites._skins import Skin
from gsf.suites.procgen import GAMES

N_STEPS = 80
MOST = 200  # backgrounds


class Future(NamedTuple):
    """What a state looks like, and what its next steps bring."""

    picture: bytes
    facts: bytes


def future(env: Any, state: Any, actions: Any) -> Future:
    env.restore(0, state)
    picture, facts = env.observe()[0].tobytes(), []
    for action in actions:
        _, reward, terminated, truncated, info = env.step(np.array([action]))
        facts += [*reward, *terminated, *truncated, *info["level"]]
    return Future(picture, np.array(facts, np.float64).tobytes())


def future_in_a_child(env: Any, state: Any, actions: Any) -> Future | None:
    """None where the process has not lived to tell."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        faulthandler.disable()  # pytest's writes to a file of its own
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        found = future(env, state, actions)
        with os.fdopen(writer, "wb") as file:
            file.write(b"".join(found))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    os.waitpid(child, 0)
    n = 64 * 64 * 3
    return Future(data[:n], data[n:]) if data else None


def after(env: Any, n_steps: int, seed: int = 0) -> Any:
    """A state some random steps from the start."""
    env.reset()
    for action in np.random.default_rng(seed).integers(15, size=n_steps):
        env.step(np.array([action]))
    return env.save(0)


def wear(state: Any, skin: Skin) -> Any:
    return _skins.wear(state[0], skin), *state[1:]


def changed(one: Future, other: Future) -> float:
    pixels = (np.frombuffer(x.picture, np.uint8).reshape(-1, 3) for x in (one, other))
    a, b = pixels
    return float((a != b).any(1).mean())


def scan(game: str) -> tuple[int, float, float]:
    """Backgrounds, and the greatest share of pixels that one changes, and that plain shapes do."""
    actions = np.random.default_rng(1).integers(15, size=N_STEPS)
    with contextlib.closing(make_env(game, [3], 1, 0, threads=0)) as env:
        state = after(env, 12)
        was = future(env, state, actions)
        assert struct.unpack_from("<i", state[0])[0] == 0  # the version of the format
        shares = [0.0]
        for n in range(MOST):
            found = future_in_a_child(env, wear(state, Skin(n, False)), actions)
            if found is None:
                break
            assert found.facts == was.facts, f"{game}: background {n} changes what follows"
            shares.append(changed(was, found))
        plain = future_in_a_child(env, wear(state, Skin(0, True)), actions)
        none = future_in_a_child(env, wear(state, Skin(None, False)), actions)
        for found in (plain, none):
            assert found is not None
            assert found.facts == was.facts, f"{game}: what is drawn changes what follows"
    assert plain is not None
    return n, max(shares), changed(was, plain)


if __name__ == "__main__":
    for game in sys.argv[1:] or GAMES:
        n, background, plain = scan(game)
        print(f'    "{game}": {n},  # pixels: {background:.2f}, as plain shapes {plain:.2f}')
