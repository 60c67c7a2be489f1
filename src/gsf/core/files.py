"""Files that are whole or not there: written aside and renamed, locked, identified by digests.

A writer holds a lock; whoever gets the lock next removes what a killed writer has left. A folder
may be somebody else's: what is written stays inside it, no link leads it elsewhere.
"""

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import xxhash

from gsf.core.errors import UserError

# No link, and no waiting for whoever reads a pipe; Windows lacks both.
_OWN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
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
    """Called by whoever has written a file; `grown`: lines were added, the rest is as it was."""
    for listener in _listeners:
        listener(path, grown)


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    tell(path)


def write_atomic(path: Path, data: str | bytes) -> None:
    """Readers see the old file or the whole new one, even after kill -9 or power loss."""
    with aside_of(path) as file:
        file.write(_encoded(data))


@contextlib.contextmanager
def aside_of(path: Path) -> Iterator[IO[bytes]]:
    """A new file beside `path` to write; it becomes `path` only if the block succeeds."""
    make_folder(path.parent)
    for left_over in _asides(path):
        _remove_abandoned(left_over)
    with full_disk_is_named(path), _new_file(path) as (aside, descriptor):
        try:
            with open(descriptor, "w+b", closefd=False) as file:
                yield file
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
    """Yields a directory beside `path` to fill; it becomes `path` only if the block succeeds.

    A link to an empty directory stays one: the directory it leads to is replaced.
    """
    if path.exists() and not _is_left_over_whole(path):
        raise UserError(f"{path} exists already; remove it or choose another --out.")
    if path.is_symlink():
        if not path.exists():
            raise _no_folder(path)
        path = Path(os.path.realpath(path))
    with full_disk_is_named(path), locked(path.parent, f".{path.name}.lock"):
        for left_over in (path, *_asides(path)):  # by a process that was killed
            if left_over.is_dir() and not left_over.is_symlink():
                shutil.rmtree(left_over)
        aside = _aside_name(path)
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
    """Inside, no other process writes into the directory, or the file whose `.<file>.lock` it is.

    The lock ends with the process, however that ends. What a killed writer has left is removed.
    """
    make_folder(directory)
    what = directory if name == ".lock" else directory / name[1:].removesuffix(".lock")
    lock = directory / name
    with _held(lock, what, wait):
        try:
            if name == ".lock":
                refuse_links(directory)
                for file in directory.rglob(".*.partial"):
                    _remove_abandoned(file)
            yield
        finally:
            with contextlib.suppress(OSError):  # Windows removes no open file
                lock.unlink(missing_ok=True)


def clear_locks(path: Path) -> None:
    """Removes the locks of a finished output: its maker may have been killed before it did so."""
    for lock in (path / ".lock", path.with_name(f".{path.name}.lock")):
        _remove_abandoned(lock)


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise _no_folder(path) from None


def _no_folder(path: Path) -> UserError:
    return UserError(f"{path} is a link to nothing, or no folder; remove it or choose another.")


def check_place(out: Path) -> None:
    """Refuses an `out` that cannot be written, before hours are spent on what is to go there."""
    if out.is_symlink() and not out.exists():
        raise _no_folder(out)
    places = (*([out] if out.is_dir() else []), *out.absolute().parents)
    there = next(path for path in places if path.exists())
    if not there.is_dir():
        raise UserError(f"{out} cannot be made: {there} is not a directory.")
    if not os.access(there, os.W_OK):
        raise UserError(f"{out} cannot be written: you may not write into {there}.")


def refuse_links(directory: Path, but: Callable[[Path], bool] = lambda path: False) -> None:
    """Refuses links that lead out of a directory, which may be a stranger's, before anything is
    written there."""
    root = os.path.realpath(directory)
    for home, folders, files in os.walk(root):
        for path in (Path(home, name) for name in (*folders, *files)):
            if not path.is_symlink() or but(path):
                continue
            if not Path(os.path.realpath(path)).is_relative_to(root):
                raise UserError(f"{path} is a link that leads out of {directory}; remove it.")


def open_own(path: Path, mode: str) -> IO[Any]:
    """Opens a file to write. A link is refused: it may lead anywhere."""

    def opener(name: str, flags: int) -> int:
        return _open(Path(name), flags)

    return open(path, mode, opener=opener)


def _open(path: Path, flags: int) -> int:
    """A descriptor of `path`, if that is a regular file and no link, pipe or device."""
    try:
        descriptor = os.open(path, flags | _OWN, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
        raise _no_file(path) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _no_file(path)
    return descriptor


def _no_file(path: Path) -> UserError:
    return UserError(f"{path} is no file but a link, a folder or a device; remove it.")


def _asides(path: Path) -> list[Path]:
    """Unfinished files that were to become `path`, of a running process or a killed one."""
    name = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{8}\.partial")
    return [other for other in path.parent.iterdir() if name.fullmatch(other.name)]


def _aside_name(path: Path) -> Path:
    """A name that nobody can foresee, so that nobody can put a link there first."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")


def _remove_abandoned(file: Path) -> None:
    """Removes a partial file, unless a process is writing it (`gsf evaluate` into a run)."""
    if file.is_file():
        with contextlib.suppress(UserError, OSError), _held(file, file):
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[tuple[Path, int]]:
    """A file beside `path` that was not there, and its descriptor."""
    while True:
        aside = _aside_name(path)
        descriptor = _open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        with contextlib.suppress(BlockingIOError):  # somebody has just taken it for a left-over
            if _is_held(descriptor, aside, wait=False):
                break
        os.close(descriptor)
    try:
        yield aside, descriptor
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)


@contextlib.contextmanager
def _held(path: Path, what: Path, wait: bool = False) -> Iterator[None]:
    """Inside, no other process has the file, which is made if it is not there."""
    while True:
        descriptor = _open(path, os.O_RDWR | os.O_CREAT)
        try:
            if _is_held(descriptor, path, wait):
                break
        except OSError:
            os.close(descriptor)
            raise UserError(f"another gsf process is writing {what}; wait for it.") from None
        os.close(descriptor)  # its owner removed or renamed it after we had opened it
    try:
        yield
    finally:
        os.close(descriptor)


def _is_held(descriptor: int, path: Path, wait: bool) -> bool:
    """Locks an open file. False if another file has its name by now; OSError if it is locked."""
    _lock(descriptor, wait)
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    return False


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
        short = " requested and " in str(error)  # what numpy says, without an error number
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
    """So that a new name in it survives power loss; Windows knows no such thing."""
    if sys.platform != "win32":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _encoded(text: bytes | str) -> bytes:
    """As UTF-8; characters that it cannot hold, as names of files may have, as escapes."""
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
