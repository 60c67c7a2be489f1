"""What is told of runs is what is shown, at a terminal and in a log."""

import io
import re

import pytest
from rich.console import Console

from gsf.core import logs
from gsf.core.logs import Beat
from gsf.sweep import live
from gsf.sweep.live import Board

BEAT = Beat("train cql", 1_200, 5_000, 125.0, {"cql/loss": 0.1234})


def shown(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> Console:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    monkeypatch.setattr(live, "console", console)
    return console


def test_a_log_has_a_line_for_each_start_and_end(monkeypatch):
    console = shown(monkeypatch, terminal=False)
    with Board(3, at_a_time=2) as board:
        board.start("coinrun cql seed0")
        board.start("coinrun [bc] seed0", where="node-1")
        board.beat("coinrun cql seed0", BEAT)
        board.end("coinrun cql seed0", None)
        board.end("coinrun [bc] seed0", "a bug")
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "coinrun cql seed0 starts"
    assert lines[1] == "coinrun [bc] seed0 starts on node-1"
    assert lines[2].startswith("coinrun cql seed0 is done in 0:00; 1 of 3 done, 1 waiting, about")
    assert lines[3].startswith("coinrun [bc] seed0 failed in 0:00; 1 of 3 done, 1 failed, 1 wait")


def test_now_and_then_a_log_says_how_far_every_run_is(monkeypatch):
    console = shown(monkeypatch, terminal=False)
    monkeypatch.setattr(live, "SECONDS_BETWEEN_LINES", -1.0)
    with Board(2, at_a_time=2) as board:
        board.start("coinrun cql seed0")
        board.beat("coinrun cql seed0", BEAT)
        board.beat("gone", BEAT)
    said = console.file.getvalue()
    assert "coinrun cql seed0, train cql, 1,200/5,000, cql/loss=0.123, 2:05" in said


def test_a_terminal_shows_every_run_in_one_table(monkeypatch):
    console = shown(monkeypatch, terminal=True)
    board = Board(5, at_a_time=2)
    board.start("coinrun cql seed0", where="node-1")
    board.beat("coinrun cql seed0", BEAT)
    board.start("coinrun bc seed0", where="node-2")
    board.back("coinrun bc seed0")
    with console.capture() as capture:
        console.print(board._show())
    lines = capture.get().splitlines()
    assert [line.split() for line in lines[1:2]] == [
        [
            "coinrun",
            "cql",
            "seed0",
            "node-1",
            "train",
            "cql",
            "1,200/5,000",
            "cql/loss=0.123",
            "2:05",
        ]
    ]
    assert lines[2].startswith("0 of 5 done, 4 waiting; 2 at a time")


def test_progress_tells_whoever_listens(monkeypatch):
    heard: list[Beat] = []
    monkeypatch.setattr(logs, "_listener", None)
    monkeypatch.setattr(logs, "SECONDS_BETWEEN_BEATS", 1e9)
    logs.send_beats(heard.append)
    with logs.progress("train cql", 3) as advance:
        for step in (1, 2, 3):
            advance(step, loss=0.5)
    assert [(beat.done, beat.total) for beat in heard] == [(1, 3), (3, 3)]  # the first and the last
    assert heard[0].seconds_left is None
    assert heard[1].seconds_left == 0
    assert heard[1].facts == {"loss": 0.5}


class Clock:
    """Time that passes when a test says so."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def told(stages: dict[str, float], age: float) -> Beat | None:
    """What a run that takes so many seconds for each stage says of itself; None: it is done."""
    for what, seconds in stages.items():
        if age < seconds:
            return Beat(what, int(100 * age / seconds), 100, seconds - age, {})
        age -= seconds
    return None


BC = {"train bc": 100.0, "evaluate coinrun bc": 60.0}
GSF = {"cumulant reward": 40.0, "train gsf-reward": 130.0, "evaluate coinrun gsf-reward": 60.0}
DONE: dict[str, float] = {}  # already, when the sweep began


@pytest.mark.parametrize("at_a_time", [1, 2, 3])
@pytest.mark.parametrize("runs", [(BC, GSF), (GSF, BC, BC), (BC, BC, GSF, BC), (DONE, BC, GSF)])
def test_the_time_left_is_right_within_a_third_when_one_run_is_left(runs, at_a_time, monkeypatch):
    shown(monkeypatch, terminal=True)
    monkeypatch.setattr(live, "time", clock := Clock())
    board, waiting = Board(len(runs), at_a_time), dict(enumerate(runs))
    since: dict[int, float] = {}
    said: dict[float, float] = {}
    while waiting or since:
        for run in list(waiting)[: at_a_time - len(since)]:
            since[run] = clock.now
            board.start(str(run))
            del waiting[run]
        clock.now += 1
        for run, began in list(since.items()):
            if (beat := told(runs[run], clock.now - began)) is not None:
                board.beat(str(run), beat)
            else:
                del since[run]
                board.end(str(run), None)
        left = re.search(r"about (\d+):(\d+) left in all", board._counts())
        if len(since) == 1 and not waiting and left:
            said[clock.now] = 60 * int(left[1]) + int(left[2])
    assert len(said) > 1
    for when, seconds in said.items():
        assert seconds == pytest.approx(clock.now - when, rel=1 / 3, abs=2)
