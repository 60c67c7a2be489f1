"""Files that are whole or not there: written aside and renamed, locked, identified by digests.

Who writes holds a lock of what is written; who gets the lock removes what a killed one has left.
"""

import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import xxhash

from gsf.core.errors import UserError

Listener = Callable[[Path, bool], None]
_listeners: list[Listener] = []


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Inside, `listener(path, grown)` hears of every file that was written, grew or was removed."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell(path: Path, grown: bool = False) -> None:
    """Whoever writes a file says so here; `grown`: lines were added, the rest is as it was."""
    for listener in _listeners:
        listener(path, grown)


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    tell(path)


def write_atomic(path: Path, data: str | bytes) -> None:
    """Readers see the old file or the whole new one, even after kill -9 or power loss."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.partial")
    with full_disk_is_named(path), _held(aside, path) as descriptor:
        try:
            os.ftruncate(descriptor, 0)  # what a killed writer has left of it
            with open(descriptor, "wb", closefd=False) as file:
                file.write(_encoded(data))
            os.fsync(descriptor)
            if sys.platform == "win32":  # which renames no open file
                os.close(descriptor)
            os.replace(aside, path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    _sync_directory(path.parent)
    tell(path)


@contextlib.contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yields a directory beside `path` to fill; it becomes `path` only if the block succeeds."""
    if path.exists() and not _is_left_over_whole(path):
        raise UserError(f"{path} exists already; remove it or choose another --out.")
    with full_disk_is_named(path), locked(path.parent, f".{path.name}.lock"):
        aside = path.with_name(f".{path.name}.partial")
        for left_over in (path, aside):  # by a process that was killed
            if left_over.exists():
                shutil.rmtree(left_over)
        aside.mkdir()
        try:
            yield aside
            for file in aside.rglob("*"):
                if file.is_file():
                    _sync_file(file)
            _sync_directory(aside)
            os.rename(aside, path)
            _sync_directory(path.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    for file in sorted(path.rglob("*"), key=lambda x: (x.name == "manifest.json", x)):
        if file.is_file():
            tell(file)


def is_leftover(path: Path) -> bool:
    """Whether a file is what a killed process may leave behind, and nothing else."""
    return path.name.startswith(".") and path.name.endswith((".lock", ".partial"))


def is_vacant(path: Path) -> bool:
    """Whether nothing is there but what a killed process may have left."""
    return not path.exists() or _is_left_over_whole(path)


def _is_left_over_whole(path: Path) -> bool:
    return path.is_dir() and all(map(is_leftover, path.iterdir()))


@contextlib.contextmanager
def locked(directory: Path, name: str = ".lock", wait: bool = False) -> Iterator[None]:
    """One writer per directory, or per file of it by `.<file>.lock`, however the process ends.

    What a killed writer has left unfinished is removed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    what = directory if name == ".lock" else directory / name[1:].removesuffix(".lock")
    lock = directory / name
    with _held(lock, what, wait):
        try:
            if name == ".lock":
                for file in directory.rglob(".*.partial"):
                    _remove_abandoned(file)
            yield
        finally:
            with contextlib.suppress(OSError):  # Windows removes no open file
                lock.unlink(missing_ok=True)


def clear_locks(path: Path) -> None:
    """Of an output that is done: its maker may have been killed between its last write and this."""
    for lock in (path / ".lock", path.with_name(f".{path.name}.lock")):
        _remove_abandoned(lock)


def _remove_abandoned(file: Path) -> None:
    """A partial file, unless somebody is writing it, as `gsf evaluate` may into a run."""
    if file.is_file():
        with contextlib.suppress(UserError, OSError), _held(file, file):
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def _held(path: Path, what: Path, wait: bool = False) -> Iterator[int]:
    """The descriptor of a file that no other process has, made if it is not there."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(descriptor, wait)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    break
        except OSError:
            os.close(descriptor)
            raise UserError(f"another gsf process is writing {what}; wait for it.") from None
        os.close(descriptor)  # its owner removed or renamed it after we had opened it
    try:
        yield descriptor
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _lock(descriptor: int, wait: bool) -> None:
    """OSError if another process has it; the system unlocks when the file is closed."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


@contextlib.contextmanager
def full_disk_is_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        short = " requested and " in str(error)  # numpy's words, without a number
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) and not short:
            raise
        raise UserError(
            f"the disk is full while writing {path}; make room, choose another --out or take "
            "fewer transitions."
        ) from None


def _sync_file(path: Path) -> None:
    with open(path, "r+b") as file:  # Windows syncs no file that is open for reading only
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    """Its entries; Windows knows no such thing."""
    if sys.platform != "win32":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _encoded(text: bytes | str) -> bytes:
    """In UTF-8; what it has nothing for, as of names in another code, in Python's words."""
    return text.encode(errors="backslashreplace") if isinstance(text, str) else text


def digest(*parts: bytes | str) -> str:
    """Identity of content, 16 hex digits; guards against mix-ups and damage, not against malice."""
    state = xxhash.xxh3_64()
    for part in parts:
        state.update(_encoded(part))
    return state.hexdigest()


def digest_file(path: Path) -> str:
    state = xxhash.xxh3_64()
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            state.update(block)
    return state.hexdigest()
