"""Where a cluster's runs send their files: the driver's --out, and a copy of it under --storage.

A unit of work (a run, labels, reference rows) has numbered attempts. Files of the latest attempt
alone are taken, so that a node that was only cut off cannot overwrite its successor. A journal in
.cluster/ keeps the numbers and what is done, for a driver that is started again; with --storage it
may be on another machine, with an empty --out.
"""

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from gsf.core.errors import UserError
from gsf.core.files import digest, make_folder, open_own, write_atomic
from gsf.core.logs import Beat
from gsf.core.schema import COUNT
from gsf.core.sealed import read_lines, to_line
from gsf.sweep.storage import Storage

JOURNAL = ".cluster/journal.jsonl"
PIECE = 1 << 24  # bytes that travel at once


class SupersededError(Exception):
    """A later attempt has this work now; whatever an older one still writes is refused."""


@dataclass
class _Record:
    """What the journal says of a unit, and what happened to it since the store was opened."""

    attempt: int = 0
    writes: tuple[str, ...] = ()  # directories and files of --out
    done: str | None = None  # key of the work that was finished
    received: int = 0  # bytes
    sent: int = 0
    saved: int = 0  # checkpoints that came in
    machine: str = ""
    beat: Beat | None = None


class Store:
    """Takes and gives files by their names in `out`; `inputs` are files that any work may read.

    One call at a time: Ray's actor, or a test, calls it.
    """

    def __init__(
        self, out: Path, inputs: Mapping[str, Path] | None = None, storage: str | None = None
    ) -> None:
        self._out, self._inputs = out, dict(inputs or {})
        self._lock = _sole_writer(out)
        self._storage = Storage(storage) if storage else None
        if self._storage:
            _bring_together(out, self._storage)
        noted = _read_journal(out / JOURNAL)
        _write_journal(out / JOURNAL, noted)  # without what a kill may have left of a line
        self._records = {name: _Record(**row) for name, row in noted.items()}

    def close(self) -> None:
        self._lock.close()

    # The driver asks these.

    def begin(self, unit: str, writes: Sequence[str]) -> int:
        """A new attempt at a unit, by its number; from now on older ones are refused."""
        record = self._records.setdefault(unit, _Record())
        record.attempt, record.writes, record.done = record.attempt + 1, tuple(writes), None
        record.machine, record.beat = "", None
        self._note(unit, record)
        return record.attempt

    def finish(self, unit: str, key: str) -> None:
        """`key` identifies the work that was done, so that the same need not be looked at again."""
        self._records[unit].done = key
        self._note(unit, self._records[unit])

    def done(self, keys: Mapping[str, str]) -> list[str]:
        """The units, of those with these keys, whose very work is finished and still there."""
        known = ((unit, key) for unit, key in keys.items() if unit in self._records)
        same = (unit for unit, key in known if self._records[unit].done == key)
        return [unit for unit in same if self._is_there(unit)]

    def _is_there(self, unit: str) -> bool:
        names = (name for name in self._records[unit].writes if not name.endswith(".log"))
        return all((self._out / name).is_dir() for name in names)

    def progress(self, units: Sequence[str]) -> dict[str, tuple[str, Beat | None, int]]:
        """Of each that has begun: its machine, how far it is, how many checkpoints came in."""
        found = {unit: self._records[unit] for unit in units}
        return {unit: (x.machine, x.beat, x.saved) for unit, x in found.items() if x.machine}

    # The nodes ask these.

    def show(self, unit: str, attempt: int, machine: str, beat: Beat | None) -> None:
        record = self._current(unit, attempt)
        record.machine, record.beat = machine, beat

    def files(self, unit: str) -> dict[str, int]:
        """Names and sizes of what a unit has written so far."""
        found = _files_of(self._out, self._records[unit].writes)
        return {self._name(path): path.stat().st_size for path in found}

    def read(self, unit: str, name: str, at: int = 0) -> bytes:
        """A piece of a file of `out`, or of an input."""
        with open(self._inputs.get(name) or self._path(name), "rb") as file:
            file.seek(at)
            data = file.read(PIECE)
        if unit in self._records:
            self._records[unit].sent += len(data)
        return data

    def put(
        self, unit: str, attempt: int, name: str, data: bytes, at: int = 0, more: bool = False
    ) -> None:
        """A file, whole or not at all; larger ones come piece by piece, with `more` to follow."""
        path = self._taken(unit, attempt, name, data)
        if at == 0 and not more:
            write_atomic(path, data)
        else:
            aside = path.with_name(f".{path.name}.{attempt}.partial")
            _write_at(aside, data, at, sync=not more)
            if more:
                return
            os.replace(aside, path)
        self._records[unit].saved += path.name == "checkpoint.pt"
        if self._storage:
            for grown in path.parent.glob("*.jsonl"):  # an object store knows no appending
                self._storage.write(self._name(grown), grown)
            self._storage.write(name, path)

    def append(self, unit: str, attempt: int, name: str, data: bytes, at: int) -> None:
        """Lines from byte `at` on; what was there behind it goes."""
        _write_at(self._taken(unit, attempt, name, data), data, at, sync=False)

    def remove(self, unit: str, attempt: int, name: str) -> None:
        self._taken(unit, attempt, name, b"").unlink(missing_ok=True)
        if self._storage:
            self._storage.remove(name)

    def _current(self, unit: str, attempt: int) -> _Record:
        record = self._records.get(unit)
        if record is None or attempt != record.attempt:
            latest = record.attempt if record else "none"
            raise SupersededError(f"attempt {attempt} at {unit}: the latest is {latest}")
        return record

    def _taken(self, unit: str, attempt: int, name: str, data: bytes) -> Path:
        record = self._current(unit, attempt)
        path = PurePosixPath(name)
        if not any(path == own or own in path.parents for own in map(PurePosixPath, record.writes)):
            raise ValueError(f"{unit} writes {', '.join(record.writes)}, not {name}")
        record.received += len(data)
        found = self._path(name)
        make_folder(found.parent)
        return found

    def _path(self, name: str) -> Path:
        """Only inside `out`, whoever asks."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{name} is no name in a directory of results")
        return self._out / path

    def _name(self, path: Path) -> str:
        return path.relative_to(self._out).as_posix()

    def _note(self, unit: str, record: _Record) -> None:
        path, noted = self._out / JOURNAL, ("attempt", "writes", "done", "received", "sent")
        with open_own(path, "a") as file:
            file.write(to_line({"unit": unit, **{name: getattr(record, name) for name in noted}}))
            file.flush()
            os.fsync(file.fileno())
        if self._storage:
            self._storage.write(JOURNAL, path)


def _write_at(path: Path, data: bytes, at: int, sync: bool) -> None:
    with open_own(path, "r+b" if path.exists() and at else "wb") as file:
        if file.seek(0, os.SEEK_END) < at:
            raise ValueError(f"{path} has no byte {at} yet")
        file.truncate(at)
        file.seek(at)
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())


def _read_journal(path: Path) -> dict[str, dict[str, Any]]:
    """The last line of every unit."""
    form = {"unit": str, "attempt": COUNT, "writes": [str], "received": COUNT, "sent": COUNT}
    kept = (*form, "done")
    rows = ({name: row[name] for name in kept} for row in read_lines(path, form))
    return {row.pop("unit"): row for row in rows}


def _write_journal(path: Path, rows: Mapping[str, Mapping[str, Any]]) -> None:
    write_atomic(path, "".join(to_line({"unit": unit, **row}) for unit, row in rows.items()))


def _bring_together(out: Path, storage: Storage) -> None:
    """Of every unit the side with the later attempt is copied to the other."""
    theirs_at = out / f"{JOURNAL}.theirs"
    write_atomic(theirs_at, storage.read(JOURNAL) or b"")
    mine, theirs = _read_journal(out / JOURNAL), _read_journal(theirs_at)
    theirs_at.unlink()
    for unit in sorted({*mine, *theirs}):
        here, there = (x.get(unit, {"attempt": 0}) for x in (mine, theirs))
        if there["attempt"] > here["attempt"]:
            mine[unit] = there
            for own in there["writes"]:
                shutil.rmtree(out / own, ignore_errors=True)
                for name in storage.names(own):
                    write_atomic(out / name, storage.read(name) or b"")
        elif here["attempt"] > there["attempt"]:
            for path in _files_of(out, here["writes"]):
                storage.write(path.relative_to(out).as_posix(), path)
    _write_journal(out / JOURNAL, mine)
    storage.write(JOURNAL, out / JOURNAL)


def _files_of(out: Path, writes: Sequence[str]) -> list[Path]:
    found = (path for own in writes for path in [out / own, *sorted((out / own).rglob("*"))])
    return [path for path in found if path.is_file() and not path.name.startswith(".")]


def _sole_writer(out: Path) -> IO[str]:
    """A store that was killed may take a moment to be gone; until then its files are its own."""
    import fcntl

    directory = out / ".cluster"
    make_folder(directory)
    file = open_own(directory / "store.lock", "w")  # as long as the store lives
    for _ in range(300):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.2)
        else:
            return file
    raise UserError(f"another gsf run is writing {out}; wait for it or end it.")


def sweep_id(out: Path) -> str:
    """The same for the same directory, as long as it is there; another for any other."""
    path = out / ".cluster" / "sweep"
    if not path.is_file():
        write_atomic(path, digest(os.urandom(16)))
    return path.read_text()
