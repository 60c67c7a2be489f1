"""All runs of a sweep at one look: which wait, run, are done or failed, and the time that is left.

At a terminal a table that is kept up to date; in a log file a line when a run starts or ends, and
now and then how far it is. Whoever runs the jobs, here or on a cluster, tells the board.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import mean
from typing import Any, Self

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from gsf.core.logs import Beat, console

SECONDS_BETWEEN_LINES = 30.0


@dataclass
class _Running:
    where: str
    since: float = field(default_factory=time.monotonic)
    beat: Beat | None = None
    reached: dict[str, float] = field(default_factory=dict)  # when each of its stages began

    def hear(self, beat: Beat) -> None:
        self.beat = beat
        self.reached.setdefault(_stage(beat), time.monotonic())


@dataclass
class _Pace:
    """How long finished runs took: in all, and from the end of each of their stages to the end."""

    whole: list[float] = field(default_factory=list)
    after: dict[str, list[float]] = field(default_factory=dict)

    def learn(self, running: _Running) -> None:
        now = time.monotonic()
        if not running.reached:  # it had been done before
            return
        self.whole.append(now - running.since)
        ends = [*list(running.reached.values())[1:], now]
        for stage, end in zip(running.reached, ends, strict=True):
            self.after.setdefault(stage, []).append(now - end)

    def left(self, running: _Running) -> float:
        """Seconds: the rest of the run's stage, at its own speed, and what came after that stage in
        finished runs. If none of them had this stage (such as making labels), a whole run."""
        beat = running.beat
        if beat is None or beat.seconds_left is None:
            return max(mean(self.whole) - (time.monotonic() - running.since), 0.0)
        return beat.seconds_left + mean(self.after.get(_stage(beat), self.whole))


class Board:
    """with Board(n) as board: board.start("coinrun cql seed0"); board.beat(...); board.end(...)"""

    def __init__(self, n_runs: int, at_a_time: int) -> None:
        self._n_runs, self._at_a_time = n_runs, at_a_time
        self._running: dict[str, _Running] = {}
        self._done, self._failed, self._pace = 0, 0, _Pace()
        self._last_lines = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if console.is_terminal:
            self._live = Live(get_renderable=self._show, console=console, refresh_per_second=2)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def start(self, run: str, where: str = "") -> None:
        """where: the machine it runs on, if there are several."""
        self._running[run] = _Running(where)
        self._say(f"{run} starts{f' on {where}' if where else ''}")

    def beat(self, run: str, beat: Beat) -> None:
        if run in self._running:
            self._running[run].hear(beat)
        if self._live is None and time.monotonic() - self._last_lines > SECONDS_BETWEEN_LINES:
            self._last_lines = time.monotonic()
            for name, running in self._running.items():
                self._say(", ".join(filter(None, [name, *_cells(running)])))

    def end(self, run: str, reason: str | None) -> None:
        running = self._running.pop(run, None)
        if running and reason is None:
            self._pace.learn(running)
        self._done += reason is None
        self._failed += reason is not None
        took = f" in {_clock(time.monotonic() - running.since)}" if running else ""
        self._say(f"{run} {'is done' if reason is None else 'failed'}{took}; {self._counts()}")

    def show(self, run: str, where: str, beat: Beat | None) -> None:
        """News of a run on another machine; the first news is that it has started."""
        if run not in self._running or self._running[run].where != where:
            self.start(run, where)
        if beat is not None and beat != self._running[run].beat:
            self.beat(run, beat)

    def back(self, run: str, why: str = "") -> None:
        """Its machine is gone; it will be started again."""
        self._running.pop(run, None)
        line = f"{run} was cut off and waits again{f' ({why})' if why else ''}"
        console.print(escape(line), soft_wrap=True, highlight=False)

    def stop(self, run: str) -> None:
        """It stopped because it was asked to, and has saved how far it got."""
        self._running.pop(run, None)

    def _counts(self) -> str:
        over = self._done + self._failed
        waiting = self._n_runs - over - len(self._running)
        words = [f"{self._done} of {self._n_runs} done"]
        words += [
            f"{n} {what}" for n, what in ((self._failed, "failed"), (waiting, "waiting")) if n
        ]
        if self._pace.whole and over < self._n_runs:
            words.append(f"about {_clock(self._left(waiting))} left in all")
        return ", ".join(words)

    def _left(self, waiting: int) -> float:
        """Seconds until the last run is done; a waiting run begins as soon as another ends."""
        busy = [self._pace.left(running) for running in self._running.values()]
        slots = busy + [0.0] * (self._at_a_time - len(busy))
        for _ in range(waiting):
            free = slots.index(min(slots))
            slots[free] += mean(self._pace.whole)
        return max(slots)

    def _say(self, line: str) -> None:
        if self._live is None:
            console.print(escape(line), soft_wrap=True, highlight=False)

    def _show(self) -> Group:
        several = any(running.where for running in self._running.values())
        table = Table(box=None, pad_edge=False)
        for heading in ("run", *(["machine"] if several else []), "doing", "step", "", "left"):
            whole = heading == "run"  # the end of its name may be all that tells it from others
            table.add_column(heading, no_wrap=True, overflow="fold" if whole else "ellipsis")
        for run, running in self._running.items():
            table.add_row(escape(run), *([running.where] if several else []), *_cells(running))
        return Group(table, Text(f"{self._counts()}; {self._at_a_time} at a time"))


def _stage(beat: Beat) -> str:
    return beat.what.partition(" ")[0]  # the rest is the name of the method or the agent


def _cells(running: _Running) -> list[str]:
    beat = running.beat
    if beat is None:
        return ["starts", "", "", ""]
    left = "" if beat.seconds_left is None else _clock(beat.seconds_left)
    return [beat.what, f"{beat.done:,}/{beat.total:,}", _words(beat.facts), left]


def _words(facts: Mapping[str, Any]) -> str:
    return " ".join(
        f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in facts.items()
    )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
    )
