"""What a user sees while a stage works, and what stays of it: console, progress bars, metrics."""

import contextlib
import importlib
import io
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gsf.core.errors import UserError
from gsf.core.files import digest, make_folder, open_own, tell, write_atomic
from gsf.core.processes import starting
from gsf.core.schema import COUNT
from gsf.core.sealed import read_lines, to_line
from gsf.core.stage import METRICS, check_finished

console = Console(stderr=True)


def show_in(file: IO[str] | None) -> None:
    """Where the console writes from now on; None: to standard error."""
    console.file = file  # type: ignore[assignment]


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """What is done inside says nothing."""
    before, console.quiet = console.quiet, True
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        console.quiet = before


@contextlib.contextmanager
def logged(path: Path) -> Iterator[None]:
    """Inside, what a user would have seen goes into a file, behind what it holds."""
    make_folder(path.parent)
    with open_own(path, "a") as file, contextlib.redirect_stdout(file):
        show_in(file)
        try:
            yield
        finally:
            show_in(None)


class Metrics:
    """Appends rows to metrics.jsonl, TensorBoard and, if asked, W&B; on resume drops rows after the
    checkpoint."""

    def __init__(
        self, directory: Path, resume_step: int = 0, tensorboard: bool = True, wandb: bool = False
    ) -> None:
        self._wandb = _start_wandb(directory) if wandb else None
        self._path = directory / METRICS
        kept = [row for row in read_metrics(self._path) if row["step"] <= resume_step]
        write_atomic(self._path, "".join(map(to_line, kept)))
        self._file = open_own(self._path, "a")
        self._board = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # which loads torch

            self._board = SummaryWriter(str(directory / "tensorboard"), purge_step=resume_step + 1)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._file.write(to_line({"step": step, **values}))
        self._file.flush()
        tell(self._path, grown=True)
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)
        if self._wandb is not None:
            self._wandb.log(dict(values), step=step)

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()
        if self._wandb is not None:
            self._wandb.finish()


def _start_wandb(directory: Path) -> Any:
    """A W&B run below the directory: offline, unless WANDB_MODE says otherwise; resumed by name."""
    try:
        wandb = importlib.import_module("wandb")
    except ImportError as error:
        raise UserError(
            f"--wandb needs Weights & Biases ({error}): pip install 'gsf-rl[wandb]', or leave it "
            "out; metrics.jsonl and TensorBoard have the same numbers."
        ) from None
    home = directory.resolve()
    with starting():
        return wandb.init(
            project="gsf",
            name="/".join(home.parts[-3:]),
            id=digest(str(home)),
            resume="allow",
            dir=str(home),
            mode=os.environ.get("WANDB_MODE", "offline"),
        )


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Rows of a metrics.jsonl; a last line cut short by a kill is left out."""
    rows = read_lines(path, {"step": COUNT})
    check_finished(path)
    return rows


def spell_rate(rate: float, unit: str) -> str:
    """12 steps/s, or 4.0 s/step where less than one is done in a second."""
    if rate >= 10:
        return f"{rate:,.0f} {unit}/s"
    if rate >= 1 or rate <= 0:
        return f"{rate:.1f} {unit}/s"
    return f"{1 / rate:,.1f} s/{unit.removesuffix('s')}"


Advance = Callable[..., None]
SECONDS_BETWEEN_BEATS = 0.5
SECONDS_TO_MEASURE = 5.0
LONG_SECONDS = 600.0


@dataclass(frozen=True)
class Beat:
    """How far something is, for another process, which shows it."""

    what: str
    done: int
    total: int
    seconds_left: float | None
    facts: Mapping[str, Any]  # such as losses


_listener: Callable[[Beat], None] | None = None


def send_beats(listener: Callable[[Beat], None] | None) -> None:
    """From now on `progress` tells this listener, now and then, and shows nothing itself."""
    global _listener
    _listener = listener


@dataclass
class Pace:
    """How fast something goes. The time before its first step does not count: it got ready then."""

    total: int
    _first: tuple[float, int] | None = None  # when, and how far it was

    def rate(self, done: int) -> float:
        """How many a second; 0 until that is known."""
        now = time.monotonic()
        self._first = self._first or (now, done)
        return (done - self._first[1]) / max(now - self._first[0], 1e-9)

    def seconds_left(self, done: int) -> float | None:
        rate = self.rate(done)
        return max(self.total - done, 0) / rate if rate > 0 else None

    def measured(self) -> bool:
        return self._first is not None and time.monotonic() - self._first[0] >= SECONDS_TO_MEASURE


def _say_if_long(what: str, seconds: float, shorter: str) -> None:
    if seconds > LONG_SECONDS:
        minutes = round(seconds / 60)
        length = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
        line = f"{what} will take about {length} at the speed of its first seconds."
        line += f" Shorter: {shorter}." if shorter else ""
        console.print(line, soft_wrap=True, highlight=False)


@contextlib.contextmanager
def progress(
    what: str, total: int, unit: str = "steps", shorter: str | None = None
) -> Iterator[Advance]:
    """Yields `advance(done, **facts)`: a bar with rate and time left, or lines in a log file.

    `shorter`: what would take less time, which is said once if this will take long.
    """
    pace, last_line = Pace(total), time.monotonic()

    def describe(done: int, facts: Mapping[str, Any]) -> str:
        nonlocal shorter
        rate = pace.rate(done)
        if shorter is not None and pace.measured():
            _say_if_long(what, pace.seconds_left(done) or 0.0, shorter)
            shorter = None
        shown = [f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in facts.items()]
        return " ".join([spell_rate(rate, unit), *shown])

    if _listener is not None:
        listener, last_line = _listener, -math.inf

        def advance_beat(done: int, **facts: Any) -> None:
            nonlocal last_line
            left = pace.seconds_left(done)
            if done >= total or time.monotonic() - last_line > SECONDS_BETWEEN_BEATS:
                last_line = time.monotonic()
                listener(Beat(what, done, total, left, facts))

        yield advance_beat
        return

    if not console.is_terminal:

        def advance_log(done: int, **facts: Any) -> None:
            nonlocal last_line
            line = describe(done, facts)
            left = pace.seconds_left(done)
            if time.monotonic() - last_line > 10 and left is not None:
                last_line = time.monotonic()
                line = f"{what}: {done:,}/{total:,} {line}, {left:.0f} s left"
                console.print(line, soft_wrap=True, highlight=False)

        yield advance_log
        return

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(what, total=total, facts="")

        def advance_bar(done: int, **facts: Any) -> None:
            bar.update(task, completed=done, facts=describe(done, facts))

        yield advance_bar
