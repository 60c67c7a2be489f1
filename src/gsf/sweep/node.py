"""One unit of work on a node: fetch what there is of it, go on with it, send what is written.

A node shares no disk with the driver. It has a directory of its own ($GSF_SCRATCH, or one below the
system's for temporary files) with a cache of datasets, fits and labels, and a fresh directory per
attempt. Everything else comes from and goes to the store, which `ask(method, *arguments)` calls.
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
from pathlib import Path
from typing import Any

from gsf.core import registry
from gsf.core.errors import UserError, is_out_of_memory
from gsf.core.files import atomic_directory, digest, heard_by, is_leftover
from gsf.core.logs import Beat, console, send_beats, show_in
from gsf.core.stage import DONE, MANIFEST
from gsf.core.version import __version__
from gsf.sweep.cache import Cache
from gsf.sweep.store import PIECE
from gsf.sweep.units import Unit

Ask = Callable[..., Any]


class LostError(BaseException):
    """The store is gone or has given the work to another; no handler on the way may hide that."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: done if there is no reason."""

    reason: str | None
    own: bool = True  # whether the reason is the work's own fault, not the machine's


@dataclass(frozen=True)
class Order:
    """A unit, and what the driver has decided about it."""

    unit: Unit
    attempt: int
    sweep: str
    code: Mapping[str, str]  # the user's files, as the user calls them -> inputs
    threads: int
    cache_gb: float
    version: str = __version__


def scratch_root() -> Path:
    if chosen := os.environ.get("GSF_SCRATCH"):
        return Path(chosen) / socket.gethostname()
    own = Path(tempfile.gettempdir()) / f"gsf-{getpass.getuser()}"  # where anybody may write
    own.mkdir(mode=0o700, exist_ok=True)
    if own.is_symlink() or own.stat().st_uid != os.getuid():
        raise UserError(f"{own} is somebody else's; set GSF_SCRATCH to a folder of your own.")
    return own / socket.gethostname()


def work(order: Order, ask: Ask) -> Outcome:
    """Does the work, or goes on with it where the store says it was."""
    if order.version != __version__:
        return Outcome(f"it has gsf {__version__}, the driver has {order.version}", own=False)
    import torch

    torch.set_num_threads(order.threads)

    def ask_or_leave(*arguments: Any) -> Any:
        try:
            return ask(*arguments)
        except Exception as error:
            raise LostError(error) from None

    with _own_directory(order) as home, _logged(home / order.unit.log):
        sender = Sender(order, home, ask_or_leave)
        try:
            outcome = _guarded(lambda: _work(order, ask_or_leave, sender))
            console.file.flush()
            sender(home / order.unit.log, False)
        except LostError as lost:
            raise lost.why from None
    return outcome


def _work(order: Order, ask: Ask, sender: "Sender") -> str | None:
    unit, cache = order.unit, Cache(scratch_root() / "cache", order.cache_gb)
    sender.show()
    for name, size in ask("files", unit.name).items():
        _fetch(ask, unit.name, name, Path(name), size)
        sender.knows(Path(name))
    with contextlib.ExitStack() as stack:
        send_beats(sender.show)
        stack.callback(send_beats, None)
        _bring_code(order, ask)
        data = stack.enter_context(_dataset(order, ask, cache))
        _link(Path(unit.home, "dataset"), data)
        if unit.needs is not None:
            _link(Path(unit.needs), stack.enter_context(_needed(order, ask, cache)))
        if unit.policy is not None:
            _fetch(ask, unit.name, unit.policy, Path(unit.policy))
        stack.enter_context(heard_by(sender))
        return unit.work()


def _guarded(act: Callable[[], str | None]) -> Outcome:
    """What the work itself did wrong, and what the machine did, which another may do better."""
    try:
        return Outcome(act())
    except UserError as error:
        return Outcome(str(error))
    except (OSError, KeyboardInterrupt) as error:  # a full disk, a machine taken away
        return Outcome(f"{type(error).__name__}: {error}", own=False)
    except (Exception, SystemExit) as error:  # a user's own code may call exit
        console.print_exception()
        return Outcome(registry.in_short(error), own=not is_out_of_memory(error))


@contextlib.contextmanager
def _own_directory(order: Order) -> Iterator[Path]:
    """A fresh directory, to work in; those that killed processes left behind are removed."""
    sweeps = scratch_root() / "sweeps"
    sweeps.mkdir(parents=True, exist_ok=True)
    for lock in sweeps.glob("*.lock"):
        with open(lock) as file, contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
    name = f"{order.sweep}-{digest(order.unit.name)}-{order.attempt}-{os.getpid()}"
    home, before = sweeps / name, Path.cwd()
    with open(sweeps / f"{name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        home.mkdir()
        os.chdir(home)
        try:
            yield home
        finally:
            os.chdir(before)
            shutil.rmtree(home, ignore_errors=True)
            Path(file.name).unlink(missing_ok=True)


@contextlib.contextmanager
def _logged(path: Path) -> Iterator[None]:
    """What a user would have seen goes into a log, which travels like the rest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file, contextlib.redirect_stdout(file):
        show_in(file)
        try:
            yield
        finally:
            show_in(None)


def _fetch(ask: Ask, unit: str, name: str, to: Path, size: int | None = None) -> None:
    """A file of the store, piece by piece."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with open(to, "wb") as file:
        while piece := ask("read", unit, name, file.tell()):
            file.write(piece)
            if len(piece) < PIECE or file.tell() == size:
                return


def _bring_code(order: Order, ask: Ask) -> None:
    """Files of the user's own, under the names that options call them by."""
    for word, name in order.code.items():
        _fetch(ask, order.unit.name, name, Path(name))
        registry.stand_in(word, Path(name).resolve())


def _dataset(order: Order, ask: Ask, cache: Cache) -> contextlib.AbstractContextManager[Path]:
    data = order.unit.data

    def fetch(name: str, to: Path) -> None:
        _fetch(ask, order.unit.name, name, to)

    return cache.hold(data.key, lambda out: data.make(fetch, out))


def _needed(order: Order, ask: Ask, cache: Cache) -> contextlib.AbstractContextManager[Path]:
    """Labels or a fit that another unit has made, fetched once per node."""
    unit = order.unit
    assert unit.needs is not None
    below = f"{unit.needs}/"
    names = {x: size for x, size in ask("files", unit.needs).items() if x.startswith(below)}
    key = digest(ask("read", unit.name, below + MANIFEST))

    def make(out: Path) -> None:
        with atomic_directory(out) as aside:
            for name, size in names.items():
                _fetch(ask, unit.name, name, aside / name.removeprefix(below), size)

    return cache.hold(f"needed-{key}", make)


def _link(at: Path, to: Path) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(to, target_is_directory=True)


class Sender:
    """Sends every file of an attempt as it is written, DONE after all others."""

    def __init__(self, order: Order, home: Path, ask: Ask) -> None:
        self._who, self._home, self._ask = (order.unit.name, order.attempt), home, ask
        self._writes = (*order.unit.writes, order.unit.log)
        self._sent: dict[Path, tuple[int, int]] = {}  # size and time of what the store has

    def knows(self, path: Path) -> None:
        """The store has this file as it is here."""
        status = path.stat()
        self._sent[Path(os.path.abspath(path))] = status.st_size, status.st_mtime_ns

    def show(self, beat: Beat | None = None) -> None:
        """How far the work is, for the driver's table."""
        self._call("show", socket.gethostname(), beat)

    def _call(self, method: str, *arguments: Any) -> None:
        self._ask(method, *self._who, *arguments)

    def __call__(self, path: Path, grown: bool) -> None:
        path = Path(os.path.abspath(path))
        if not self._travels(path):
            return
        if path.name in (DONE, MANIFEST):  # some files are written by other hands
            for file in sorted(path.parent.iterdir()):
                if file != path and file.is_file() and self._travels(file):
                    self._send(file, grown=False)
        self._send(path, grown)

    def _travels(self, path: Path) -> bool:
        if not path.is_relative_to(self._home):
            return False
        inside = path.relative_to(self._home)
        mine = any(inside.is_relative_to(own) for own in self._writes)
        return mine and not any(is_leftover(Path(part)) for part in inside.parts)

    def _send(self, path: Path, grown: bool) -> None:
        name = path.relative_to(self._home).as_posix()
        if not path.exists():
            self._call("remove", name)
            return
        status = path.stat()
        if (status.st_size, status.st_mtime_ns) == self._sent.get(path):
            return
        with open(path, "rb") as file:
            if grown and path in self._sent:
                at, _ = self._sent[path]
                file.seek(at)
                self._call("append", name, file.read(), at)
            else:
                at, piece = 0, file.read(PIECE)
                while True:
                    following = file.read(PIECE)
                    self._call("put", name, piece, at, bool(following))
                    if not following:
                        break
                    at, piece = at + len(piece), following
        self.knows(path)
