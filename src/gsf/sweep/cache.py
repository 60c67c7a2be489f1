"""What a node keeps for all its runs: datasets, fits and labels. The first that asks makes it.

An entry is named by the digests of what it is made from, so that nothing old is taken for new. An
entry that is there is whole. Whoever makes or uses it holds a lock beside it. When the cache grows
beyond its limit, the entries that were used longest ago are removed, but none that is in use.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path


class Cache:
    def __init__(self, root: Path, limit_gb: float) -> None:
        self._root, self._limit = root, limit_gb * 1e9
        root.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def hold(self, key: str, make: Callable[[Path], object]) -> Iterator[Path]:
        """The entry `key`, which stays at least until the block ends.

        make(path): makes the entry if it is not there, in one process of the node only.
        """
        entry = self._root / key
        with open(self._root / f"{key}.lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            while not entry.is_dir():
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not entry.is_dir():
                    make(entry)
                fcntl.flock(lock, fcntl.LOCK_SH)  # unlocked for a moment: it may be gone
            os.utime(lock.name)
            self._make_room()
            yield entry

    def _make_room(self) -> None:
        locks = sorted(self._root.glob("*.lock"), key=lambda path: path.stat().st_mtime)
        sizes = {path: _size(path.with_suffix("")) for path in locks}
        for path in locks:
            if sum(sizes.values()) <= self._limit:
                return
            with open(path) as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:  # in use, by this process too
                    continue
                _remove(path.with_suffix(""))
                sizes[path] = 0


def _remove(entry: Path) -> None:
    """Renamed first: if we are killed half way, nobody takes what is left for a whole entry."""
    if entry.is_dir():
        aside = entry.with_name(f".{entry.name}.partial")
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(entry, aside)
        shutil.rmtree(aside, ignore_errors=True)


def _size(directory: Path) -> int:
    with contextlib.suppress(FileNotFoundError):  # removed by another process just now
        return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    return 0
