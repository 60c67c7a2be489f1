"""One unit of work on a node: fetch what exists of it, go on from there, send what is written.

A node shares no disk with the driver. It has a directory of its own ($GSF_SCRATCH, or one below the
system's for temporary files) with a cache of datasets, fits and labels, and a fresh directory for
each attempt. All else comes from the store and goes there: ask(method, *arguments) calls it.
"""

import contextlib
import fcntl
import getpass
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gsf.core import registry
from gsf.core.errors import UserError, is_out_of_memory
from gsf.core.files import atomic_directory, digest, heard_by, is_leftover
from gsf.core.logs import Beat, console, logged, send_beats
from gsf.core.stage import DONE, MANIFEST
from gsf.core.version import __version__
from gsf.sweep.cache import Cache
from gsf.sweep.store import PIECE
from gsf.sweep.units import Unit

Ask = Callable[..., Any]


class LostError(BaseException):
    """The store is gone, or has given the work to another node.

    No Exception, so that no handler of the work hides it.
    """

    def __init__(self, why: Exception) -> None:
        self.why = why


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: why it failed, or None."""

    reason: str | None
    own: bool = True  # the work's own fault; else the machine's, and another may do better


@dataclass(frozen=True)
class Order:
    """What the driver tells a node to do, and how."""

    unit: Unit
    attempt: int
    code: Mapping[str, str]  # the user's files: what the user calls them -> name of the input
    threads: int
    cache_gb: float
    version: str = __version__


def scratch_root() -> Path:
    if chosen := os.environ.get("GSF_SCRATCH"):
        return Path(chosen) / socket.gethostname()
    own = Path(tempfile.gettempdir()) / f"gsf-{getpass.getuser()}"  # others may write there
    own.mkdir(mode=0o700, exist_ok=True)
    if own.is_symlink() or own.stat().st_uid != os.getuid():
        raise UserError(f"{own} is somebody else's; set GSF_SCRATCH to a folder of your own.")
    return own / socket.gethostname()


def work(order: Order, ask: Ask) -> Outcome:
    """Does the work, or goes on from what the store has of it."""
    if order.version != __version__:
        return Outcome(f"it has gsf {__version__}, the driver has {order.version}", own=False)
    torch.set_num_threads(order.threads)

    def ask_or_leave(*arguments: Any) -> Any:
        try:
            return ask(*arguments)
        except Exception as error:
            raise LostError(error) from None

    try:
        with _own_directory() as home, logged(home / order.unit.log):
            sender = Sender(order, home, ask_or_leave)
            outcome = _guarded(lambda: _go_on(order, ask_or_leave, sender))
            console.file.flush()
            sender(home / order.unit.log, False)
            return outcome
    except LostError as lost:
        raise lost.why from None


def _go_on(order: Order, ask: Ask, sender: "Sender") -> None:
    unit, cache = order.unit, Cache(scratch_root() / "cache", order.cache_gb)
    fetch = partial(_fetch, ask)
    sender.show()
    for name in ask("files", unit.name):
        fetch(name, Path(name))
        sender.knows(Path(name))
    with contextlib.ExitStack() as stack:
        send_beats(sender.show)
        stack.callback(send_beats, None)
        for word, name in order.code.items():  # the user's own files
            fetch(name, Path(name))
            registry.stand_in(word, Path(name).resolve())
        data = stack.enter_context(cache.hold(unit.data.key, partial(unit.data.make, fetch)))
        _link(unit.data.at, data)
        if unit.needs is not None:
            key = digest(ask("read", f"{unit.needs}/{MANIFEST}"))
            make = partial(_copy_of, ask, unit.needs)
            _link(Path(unit.needs), stack.enter_context(cache.hold(f"needed-{key}", make)))
        if unit.policy is not None:
            fetch(unit.policy, Path(unit.policy))
        stack.enter_context(heard_by(sender))
        unit.work()


def _guarded(act: Callable[[], None]) -> Outcome:
    """Does the work; if it fails, says whether by its own fault or by its machine's."""
    try:
        act()
    except UserError as error:
        return Outcome(str(error))
    except (OSError, KeyboardInterrupt) as error:  # a full disk, a machine taken away
        return Outcome(f"{type(error).__name__}: {error}", own=False)
    except (Exception, SystemExit) as error:  # a user's own code may call exit
        console.print_exception()
        return Outcome(registry.in_short(error), own=not is_out_of_memory(error))
    return Outcome(None)


@contextlib.contextmanager
def _own_directory() -> Iterator[Path]:
    """A fresh current directory; those that killed processes have left are removed."""
    attempts = scratch_root() / "attempts"
    attempts.mkdir(parents=True, exist_ok=True)
    for lock in attempts.glob("*.lock"):
        with open(lock) as file, contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
    home = attempts / str(os.getpid())  # a process does one unit at a time
    with open(home.with_suffix(".lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        try:
            with contextlib.chdir(home):
                yield home
        finally:
            shutil.rmtree(home, ignore_errors=True)
            Path(file.name).unlink(missing_ok=True)


def _fetch(ask: Ask, name: str, to: Path) -> None:
    """Copies a file from the store, piece by piece."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with open(to, "wb") as file:
        while True:
            piece = ask("read", name, file.tell())
            file.write(piece)
            if len(piece) < PIECE:
                return


def _copy_of(ask: Ask, unit: str, out: Path) -> None:
    """Copies labels or a fit that another unit has made."""
    with atomic_directory(out) as aside:
        for name in ask("files", unit):
            if name.startswith(f"{unit}/"):  # not its log
                _fetch(ask, name, aside / name.removeprefix(f"{unit}/"))


def _link(at: Path, to: Path) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(to, target_is_directory=True)


class Sender:
    """Sends every file of an attempt as it is written, DONE after all others."""

    def __init__(self, order: Order, home: Path, ask: Ask) -> None:
        self._unit, self._attempt, self._home, self._ask = order.unit, order.attempt, home, ask
        self._sent: dict[Path, tuple[int, int]] = {}  # size and time of what the store has

    def knows(self, path: Path) -> None:
        """The store has this file as it is here."""
        status = path.stat()
        self._sent[Path(os.path.abspath(path))] = status.st_size, status.st_mtime_ns

    def show(self, beat: Beat | None = None) -> None:
        """How far the work is, for the driver's table."""
        self._tell("show", socket.gethostname(), beat)

    def _tell(self, method: str, *arguments: Any) -> None:
        self._ask(method, self._unit.name, self._attempt, *arguments)

    def __call__(self, path: Path, grown: bool) -> None:
        path = Path(os.path.abspath(path))
        if not self._travels(path):
            return
        if path.name in (DONE, MANIFEST):  # some files are written by code that does not say so
            for file in sorted(path.parent.iterdir()):
                if file != path and file.is_file() and self._travels(file):
                    self._send(file, grown=False)
        self._send(path, grown)

    def _travels(self, path: Path) -> bool:
        """Whether it is a file of the unit, and no lock or half-written one."""
        own = path.is_relative_to(self._home / self._unit.name)
        own = own or path == self._home / self._unit.log
        return own and not any(is_leftover(x) for x in (path, *path.parents))

    def _send(self, path: Path, grown: bool) -> None:
        name = path.relative_to(self._home).as_posix()
        if not path.exists():
            self._tell("remove", name)
            return
        status = path.stat()
        if (status.st_size, status.st_mtime_ns) == self._sent.get(path):
            return
        with open(path, "rb") as file:
            if grown and path in self._sent:
                at, _ = self._sent[path]
                file.seek(at)
                self._tell("append", name, file.read(), at)
            else:
                while True:
                    at, piece = file.tell(), file.read(PIECE)
                    more = file.tell() < status.st_size
                    self._tell("put", name, piece, at, more)
                    if not more:
                        break
        self.knows(path)
