"""A suite that keeps every promise, and ones that break one each: the sentence names what."""

from dataclasses import replace

import numpy as np
import pytest

from corridors import LENGTH, MOST_STEPS, Corridors, corridors
from gsf import cli
from gsf.learn.promises import BrokenError, suites
from gsf.learn.promises.suites import Subject, of_suite
from gsf.suites import Game, turns
from gsf.suites.procgen import procgen

PARTS = ("_walls", "_place", "_goal", "_t")


class Whole(Corridors):
    """With all that recording and planning ask for."""

    def __init__(self, game, levels, n_envs, seed, *, dark=False, **options):
        super().__init__(game, levels, n_envs, seed, **options)
        self.levels, self.seed, self.dark = levels, seed, dark
        self._level, self._begun = np.zeros((2, n_envs), np.int64)
        self._all = n_envs

    def _begin(self, slots):
        for slot in slots:
            self._level[slot] = level = next(self._turns[slot])
            self._turns[slot] = _before(level, self._turns[slot])
            self._begun[slot] += 1
        super()._begin(slots)

    def observe(self):
        return self._obs() // (2 if self.dark else 1), self._level.copy()

    def reset(self, **options):
        super().reset(**options)
        obs, level = self.observe()
        return obs, {"level": level}

    def step(self, actions):
        _, *what, info = super().step(actions)
        obs, level = self.observe()
        return obs, *what, info | {"level": level}

    def state_dict(self):
        rows = {name: getattr(self, name).tolist() for name in PARTS}
        return {"rows": rows, "level": self._level.tolist(), "begun": self._begun.tolist()}

    def load_state_dict(self, state):
        for name in PARTS:
            getattr(self, name)[:] = state["rows"][name]
        self._level[:], self._begun[:] = state["level"], state["begun"]
        self._turns = turns(self.levels, self.num_envs, self.seed)
        for slot, n in enumerate(state["begun"]):
            for _ in range(n):
                next(self._turns[slot])

    def save(self, slot):
        return [getattr(self, name)[slot].copy() for name in (*PARTS, "_level")]

    def restore(self, slot, state):
        for name, value in zip((*PARTS, "_level"), state, strict=True):
            getattr(self, name)[slot] = value

    def keep(self, slots):
        for name in (*PARTS, "_level", "_begun"):
            setattr(self, name, getattr(self, name)[slots].copy())
        self._turns, self.num_envs = [self._turns[slot] for slot in slots], len(slots)
        return self.observe()[0]


def _before(level, rest):
    yield level
    yield from rest


SUITE = replace(corridors, make_env=Whole, replays_with="this file", plain={"dark": True})


def broken(suite):
    """What is said of a suite, promise by promise."""
    said = {}
    subject = Subject(suite, "corridor")
    for promise in of_suite(subject):
        try:
            promise(subject)
        except BrokenError as error:
            said[promise.__name__] = str(error)
    return said


def test_one_that_offers_everything_keeps_every_promise():
    assert broken(SUITE) == {}
    assert len(of_suite(Subject(SUITE, "corridor"))) == 12
    assert len(of_suite(Subject(corridors, "corridor"))) == 7


def changed(name, change):
    """A suite whose method gives something else."""

    def method(self, *args, **options):
        return change(self, getattr(Whole, name)(self, *args, **options))

    return replace(SUITE, make_env=type("Changed", (Whole,), {name: method}))


FAULTS = {
    "shows_and_gives_what_it_says": [
        (changed("step", lambda env, x: (x[0] / 255, *x[1:])), "images are of type float64, t=1"),
        (
            changed("reset", lambda env, x: (x[0][:, :8], x[1])),
            r"images have shape \[3, 8, 12, 3\]",
        ),
        (changed("step", lambda env, x: (*x[:2], x[2].astype(int), *x[3:])), "terminated are of"),
        (changed("step", lambda env, x: (x[0], x[1] * np.nan, *x[2:])), "a reward is .*nan"),
        (changed("step", lambda env, x: (*x[:4], None)), "info is NoneType"),
        (changed("step", lambda env, x: (*x[:4], x[4] | {"completed": [1]})), "are list, not an"),
    ],
    "ends_its_episodes": [
        (changed("step", lambda env, x: (*x[:3], x[2] | x[3], x[4])), "terminated and truncated"),
        (changed("step", lambda env, x: (*x[:2], x[2] & False, x[3] & False, x[4])), "set a limit"),
    ],
    "shows_the_next_level_at_an_end": [
        (
            changed(
                "step", lambda env, x: (x[0] // (1 + (env._t == 0)[:, None, None, None]), *x[1:])
            ),
            "level 1 after another and alone: images differ, t=0",
        )
    ],
    "plays_a_level_alike": [
        (changed("step", lambda env, x: (x[0], x[1] / env.num_envs, *x[2:])), "rewards differ, t="),
        (changed("reset", lambda env, x: (x[0] // env.num_envs, x[1])), "images differ, t=0"),
    ],
    "goes_on_with_the_slots_it_keeps": [
        (changed("keep", lambda env, x: x[::-1]), "images differ"),
        (changed("keep", lambda env, x: (env._t.fill(0), x)[1]), "ends differ|images differ"),
    ],
    "says_which_level_it_shows": [
        (changed("observe", lambda env, x: (x[0], x[1] + 1)), "which it was not given|is another"),
        (changed("reset", lambda env, x: (x[0] // 2, x[1])), "observe shows something else"),
        (changed("__init__", lambda env, x: setattr(env, "seed", 9)), "`seed` and `levels`"),
    ],
    "goes_on_from_its_state": [
        (changed("state_dict", lambda env, x: x | {"begun": [1] * env.num_envs}), "differ"),
        (changed("load_state_dict", lambda env, x: env._t.fill(0)), "differ"),
    ],
    "restores_a_slot": [(changed("save", lambda env, x: [*x[:3], 0, x[4]]), "another slot|twice")],
    "plays_the_same_drawn_plainly": [
        (
            changed("step", lambda env, x: (x[0], x[1] * (1 + env.dark), *x[2:])),
            "drawn plainly: rewards differ",
        )
    ],
    "describes_its_games": [
        (replace(SUITE, difficulties=()), "difficulties is empty"),
        (
            replace(SUITE, games={"corridor": Game((LENGTH, LENGTH), ("a", "b", "c"), noop=1)}),
            "is not",
        ),
        (
            replace(
                SUITE,
                games={
                    "corridor": Game((LENGTH, LENGTH, 3), ("a", "b", "c"), same_actions=((0, 3),))
                },
            ),
            "are not classes",
        ),
    ],
}


@pytest.mark.parametrize(
    ("promise", "suite", "sentence"),
    [(promise, *fault) for promise, faults in FAULTS.items() for fault in faults],
)
def test_what_is_wrong_is_said(monkeypatch, promise, suite, sentence):
    monkeypatch.setattr(suites, "MOST_STEPS", 4 * MOST_STEPS)
    with pytest.raises(BrokenError, match=sentence):
        getattr(suites, promise)(Subject(suite, "corridor"))


class Noisy(Whole):
    made = 0

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        Noisy.made += 1
        self._noise = Noisy.made

    def observe(self):
        obs, level = super().observe()
        return obs + np.uint8(self._noise % 7), level


def test_one_that_does_not_repeat_itself_is_found_out():
    said = broken(replace(SUITE, make_env=Noisy))
    assert "slot 0 of two envs of one seed: images differ, t=0" in said.values()
    assert "plays_a_level_alike" in said


class Lending(Whole):
    def observe(self):
        obs, level = super().observe()
        if len(self.__dict__.setdefault("_lent", obs)) != len(obs):
            self._lent = obs
        self._lent[:] = obs
        return self._lent, level


def test_one_that_lends_its_buffers_unasked_is_found_out():
    said = broken(replace(SUITE, make_env=Lending))
    assert said["lends_no_images_unasked"] == "a step overwrote the images before it"


@pytest.mark.procgen
def test_procgen_keeps_every_promise():
    subject = Subject(procgen, "coinrun")
    for promise in of_suite(subject):
        promise(subject)


def test_a_suite_is_checked_game_by_game(tmp_path, capsys):
    (tmp_path / "own.py").write_text("from corridors import *\n")
    assert cli.main(["check", f"{tmp_path}/own.py:corridors"]) == 0
    assert "corridor:\nkept    Each game has" in capsys.readouterr().out
    assert cli.main(["check", f"{tmp_path}/own.py:corridors/corridor"]) == 0
    assert cli.main(["check", f"{tmp_path}/own.py:corridors/corridr"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "corridors has no game 'corridr'; did you mean corridor?" in said
