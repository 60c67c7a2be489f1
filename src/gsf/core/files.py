"""Files that are whole or not there: written aside and renamed, locked, identified by digests.

Checkpoints hold tensors, numbers and strings only: reading one never unpickles an object.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

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
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(aside, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    _sync_directory(path.parent)
    tell(path)


@contextlib.contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yields a directory beside `path` to fill; it becomes `path` only if the block succeeds."""
    if path.exists():
        if not (path.is_dir() and all(map(is_leftover, path.iterdir()))):
            raise UserError(f"{path} exists already; remove it or choose another --out.")
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
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
    return path.name.endswith(".lock") or (path.name[:1] == "." and path.suffix == ".partial")


def _remove_abandoned(path: Path) -> None:
    """Partial directories of processes that no longer run (kill -9 leaves them behind)."""
    for aside in path.parent.glob(f".{path.name}.*.partial"):
        pid = aside.name.split(".")[-2]
        if pid.isdigit() and not _is_running(int(pid)):
            shutil.rmtree(aside, ignore_errors=True)


def _is_running(pid: int) -> bool:
    if sys.platform == "win32":  # where signal 0 is Ctrl-C
        import ctypes

        handle = ctypes.windll.kernel32.OpenProcess(0x1000, False, pid)
        return bool(handle and ctypes.windll.kernel32.CloseHandle(handle))
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


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


@contextlib.contextmanager
def locked(directory: Path, name: str = ".lock", wait: bool = False) -> Iterator[None]:
    """One writer per run directory; the lock goes with the process, however it ends."""
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / name, "w") as file:
        try:
            _lock(file.fileno(), wait)
        except OSError:
            raise UserError(f"another gsf process is writing {directory}; wait for it.") from None
        yield


def _lock(descriptor: int, wait: bool) -> None:
    """OSError if another process has it; the system unlocks when the file is closed."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def digest(*parts: bytes | str) -> str:
    """Identity of content, 16 hex digits; guards against mix-ups and damage, not against malice."""
    state = xxhash.xxh3_64()
    for part in parts:
        state.update(part.encode() if isinstance(part, str) else part)
    return state.hexdigest()


def digest_file(path: Path) -> str:
    state = xxhash.xxh3_64()
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            state.update(block)
    return state.hexdigest()


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Tensors, numbers, strings, lists and dicts only, so that loading never unpickles objects."""
    import io

    import torch

    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    write_atomic(path, buffer.getvalue())


def load_checkpoint(path: Path) -> dict[str, Any]:
    import torch

    if not path.is_file():
        raise UserError(f"no checkpoint at {path}.")
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises a different type for each way a file can be broken
        raise UserError(f"{path} is not a readable checkpoint ({type(error).__name__}).") from None
    return state
