"""Ctrl-C, SIGTERM, SIGHUP: asked to stop, a stage saves where it is; asked twice, it stops at once.

A loop that can save asks `stop.asked` once per step, saves if so, says what is `kept` and leaves.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

from gsf.core.logs import console

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class Interrupted(KeyboardInterrupt):
    """Somebody asked to stop; the message says what is kept, as the middle of a sentence."""


@dataclass
class Stop:
    asked: bool = False
    kept: str = ""


@contextlib.contextmanager
def stoppable(tell: Callable[[], object] = lambda: None) -> Iterator[Stop]:
    """Inside, the first signal only sets `asked` and calls `tell`; at the end comes Interrupted.

    The second one interrupts wherever it is. Threads other than the main one get no signals.
    """
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.asked:
            raise Interrupted
        stop.asked = True
        with contextlib.suppress(RuntimeError):  # of a console that was in use
            console.print("stopping as soon as all is saved; Ctrl-C again stops at once.")
        tell()

    with _handled_by(ask, SIGNALS):
        yield stop
        if stop.asked:
            raise Interrupted(stop.kept)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Inside, every signal that asks to stop raises what Ctrl-C does, so that blocks clean up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    with _handled_by(interrupt, SIGNALS):
        yield


@contextlib.contextmanager
def _handled_by(
    handler: Callable[[int, FrameType | None], None], signals: tuple[signal.Signals, ...]
) -> Iterator[None]:
    """Inside, the handler gets these signals, but for those that are ignored (as under nohup)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in signals if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, signal.SIG_DFL if former is None else former)
