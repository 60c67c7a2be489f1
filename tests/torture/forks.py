"""Work in processes forked from this one, which count what they do to files and kill themselves.

This process has imported everything and done nothing with it, so that a fork costs little and
inherits no threads.
"""

import builtins
import contextlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gsf.core.errors import UserError
from gsf.core.logs import progress
from torture import stages
from torture.figures import Row

_CALLS = ("replace", "rename", "fsync", "fdatasync", "unlink", "remove", "rmdir", "mkdir")
_CALLS += ("ftruncate", "truncate")
ASIDE = "tensorboard"  # written by a thread of its own, named by the time, never read by gsf
_SECONDS = 900  # after which a stage hangs, however busy the machine


def made(home: Path) -> Path:
    """What every stage makes, in one folder each; shared by the campaigns."""
    found = home / "made"
    if not found.exists():
        said = in_child(lambda: stages.make(found), home)
        if said:
            raise RuntimeError(f"the stages themselves fail: {said}")
    return found


def attacked(
    campaign: str, attack: Callable[..., Row], home: Path, share: float, seed: int
) -> list[Row]:
    """A row for each stage: attack(stage, home, share, rng)."""
    rng, rows = np.random.default_rng(seed), []
    made(home)
    with progress(campaign, len(stages.STAGES), "stages") as advance:
        for done, name in enumerate(stages.STAGES, 1):
            rows.append(attack(name, home, share, rng))
            advance(done)
    return rows


def in_child(work: Callable[[], None], home: Path, kill_at: int | None = None) -> str:
    """Does it in a process of its own; what was said where it failed, other than by the kill."""
    home.mkdir(exist_ok=True)
    said = home / "said"
    said.write_text("")
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            killed = number == signal.SIGKILL and kill_at is not None
            return "" if killed else f"ended by signal {number}"
        return said.read_text() if os.WEXITSTATUS(status) else ""
    code = 1
    try:
        signal.alarm(_SECONDS)
        silent = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(silent, descriptor)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        stages.prepare()
        with _counting(kill_at) as count:
            work()
        (home / "count").write_text(str(count()))
        code = 0
    except UserError as error:
        said.write_text(f"UserError: {error}")
    except BaseException:
        said.write_text(traceback.format_exc())
    finally:
        os._exit(code)


def counted(home: Path) -> int:
    """What the last one that went through has done to files."""
    return int((home / "count").read_text())


@contextlib.contextmanager
def _counting(kill_at: int | None) -> Iterator[Callable[[], int]]:
    """Counts what is done to files, and kills this process at its turn."""
    done = 0

    def tick(path: Any, half: Callable[[], Any] = lambda: None) -> None:
        nonlocal done
        if isinstance(path, (str, os.PathLike)) and ASIDE in Path(path).parts:
            return
        done += 1
        if done == kill_at:
            half()
            os.kill(os.getpid(), signal.SIGKILL)

    class Counted(io.FileIO):
        def write(self, data: Any) -> int:
            tick(self.name, lambda: super(Counted, self).write(bytes(data)[: len(data) // 2]))
            return super().write(data)

    def calling(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *rest: Any, **options: Any) -> Any:
            tick(path)
            return function(path, *rest, **options)

        return call

    plain_open, plain_write = builtins.open, os.write

    def opening(file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **options: Any) -> Any:
        aside = isinstance(file, (str, os.PathLike)) and ASIDE in Path(file).parts
        if not set(mode) & set("wax+") or aside:
            return plain_open(file, mode, buffering, *rest, **options)
        tick(file)
        at = {name: options.pop(name) for name in ("closefd", "opener") if name in options}
        raw = Counted(file, mode.replace("b", "").replace("t", ""), **at)
        if buffering == 0:
            return raw
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *rest, **options)

    def write(descriptor: int, data: Any) -> int:
        tick(descriptor, lambda: plain_write(descriptor, bytes(data)[: len(data) // 2]))
        return plain_write(descriptor, data)

    for name in _CALLS:
        setattr(os, name, calling(getattr(os, name)))
    os.write = write
    builtins.open = io.open = opening  # type: ignore[assignment]
    yield lambda: done
