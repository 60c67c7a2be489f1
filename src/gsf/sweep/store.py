"""The driver's end of a cluster: takes the files of all units into --out, and gives what they need.

Attempts at a unit are numbered. Files of the latest attempt alone are taken: a machine that was
only cut off for a while cannot overwrite the work of the one that took over. A journal in .cluster/
keeps these numbers and what is done, for a driver that is started again; with --storage that may be
on another machine.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from gsf.core.errors import UserError
from gsf.core.files import make_folder, open_own
from gsf.core.logs import Beat
from gsf.core.schema import POSITIVE
from gsf.core.sealed import read_json, write_json
from gsf.sweep.bucket import Bucket

JOURNAL = ".cluster/journal.json"
PIECE = 1 << 24  # bytes that travel at once


class SupersededError(Exception):
    """A later attempt has this unit now; whatever an older one still sends is refused."""


@dataclass
class Record:
    """What the store knows of a unit. The journal keeps the first two fields; the others tell of
    the attempt under way."""

    attempt: int
    done: str | None = None  # the key it had when it was finished
    machine: str = ""
    beat: Beat | None = None
    saved: int = 0  # checkpoints that came in


class Store:
    """Takes and gives files by their names in `out`; `inputs` are files that any unit may read.

    One call at a time: Ray's actor, or a test, calls it.
    """

    def __init__(
        self, out: Path, inputs: Mapping[str, Path] | None = None, storage: str | None = None
    ) -> None:
        self._out, self._inputs = out, dict(inputs or {})
        self._lock = _sole_writer(out)
        self._bucket = Bucket(storage) if storage else None
        self._records = read_journal(out / JOURNAL)
        if self._bucket:
            _bring_together(out, self._records, self._bucket)

    def close(self) -> None:
        self._lock.close()

    # The driver asks these.

    def begin(self, unit: str) -> int:
        """The number of a new attempt at a unit; from now on older ones are refused."""
        before = self._records.get(unit, Record(0))
        self._records[unit] = Record(before.attempt + 1)
        self._note()
        return before.attempt + 1

    def finish(self, unit: str, key: str) -> None:
        self._records[unit].done = key
        self._note()

    def done(self, keys: Mapping[str, str]) -> list[str]:
        """The units that were finished under the same key and whose files are still there."""
        finished = (unit for unit, record in self._records.items() if record.done is not None)
        same = (unit for unit in finished if keys.get(unit) == self._records[unit].done)
        return [unit for unit in same if (self._out / unit).is_dir()]

    def heard(self, units: Sequence[str]) -> dict[str, Record]:
        """The latest news of the units at which a machine is at work."""
        return {unit: self._records[unit] for unit in units if self._records[unit].machine}

    # The nodes ask these.

    def show(self, unit: str, attempt: int, machine: str, beat: Beat | None) -> None:
        record = self._latest(unit, attempt)
        record.machine, record.beat = machine, beat

    def files(self, unit: str) -> dict[str, int]:
        """Names and sizes of what a unit has written so far."""
        return {self._name(path): path.stat().st_size for path in _files_of(self._out, unit)}

    def read(self, name: str, at: int = 0) -> bytes:
        """A piece of a file of `out`, or of an input."""
        with open(self._inputs.get(name) or self._path(name), "rb") as file:
            file.seek(at)
            return file.read(PIECE)

    def put(
        self, unit: str, attempt: int, name: str, data: bytes, at: int = 0, more: bool = False
    ) -> None:
        """A file, whole or not at all; a large one comes piece by piece, with `more` to follow."""
        path = self._taken(unit, attempt, name)
        aside = path.with_name(f".{path.name}.{attempt}.partial")
        _write_at(aside, data, at, sync=not more)
        if more:
            return
        os.replace(aside, path)
        self._records[unit].saved += path.name == "checkpoint.pt"
        if self._bucket:
            for grown in path.parent.glob("*.jsonl"):  # a bucket appends to nothing: whole
                self._bucket.send(grown, self._name(grown))
            self._bucket.send(path, name)

    def append(self, unit: str, attempt: int, name: str, data: bytes, at: int) -> None:
        """Lines from byte `at` on; they replace what was there from that byte on."""
        _write_at(self._taken(unit, attempt, name), data, at, sync=False)

    def remove(self, unit: str, attempt: int, name: str) -> None:
        self._taken(unit, attempt, name).unlink(missing_ok=True)
        if self._bucket:
            self._bucket.remove(name)

    def _latest(self, unit: str, attempt: int) -> Record:
        record = self._records.get(unit, Record(0))
        if attempt != record.attempt:
            raise SupersededError(f"attempt {attempt} at {unit}: the latest is {record.attempt}")
        return record

    def _taken(self, unit: str, attempt: int, name: str) -> Path:
        """Where a file goes that a unit sends. Only its latest attempt may, and only its own."""
        self._latest(unit, attempt)
        if name != f"{unit}.log" and PurePosixPath(unit) not in PurePosixPath(name).parents:
            raise ValueError(f"{unit} writes below its name, not {name}")
        path = self._path(name)
        make_folder(path.parent)
        return path

    def _path(self, name: str) -> Path:
        """A name never leads out of `out`."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{name} is no name in a directory of results")
        return self._out / path

    def _name(self, path: Path) -> str:
        return path.relative_to(self._out).as_posix()

    def _note(self) -> None:
        _write_journal(self._out / JOURNAL, self._records)
        if self._bucket:
            self._bucket.send(self._out / JOURNAL, JOURNAL)


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


def read_journal(path: Path) -> dict[str, Record]:
    """The attempts at every unit that was ever begun, and which units are done."""
    if not path.is_file():
        return {}
    form = {str: {"attempt": POSITIVE, "done": (str, None)}}
    return {unit: Record(x["attempt"], x["done"]) for unit, x in read_json(path, form).items()}


def _write_journal(path: Path, records: Mapping[str, Record]) -> None:
    noted = {unit: {"attempt": x.attempt, "done": x.done} for unit, x in records.items()}
    write_json(path, noted)


def _bring_together(out: Path, records: dict[str, Record], bucket: Bucket) -> None:
    """Where `out` and the bucket differ in a unit, the later attempt at it replaces the other."""
    aside = out / f"{JOURNAL}.theirs"
    bucket.fetch(JOURNAL, aside)
    theirs = read_journal(aside)
    aside.unlink(missing_ok=True)
    for unit in sorted({*records, *theirs}):
        here, there = (x.get(unit, Record(0)) for x in (records, theirs))
        if there.attempt > here.attempt:
            shutil.rmtree(out / unit, ignore_errors=True)
            for name in [*bucket.names(unit), f"{unit}.log"]:
                bucket.fetch(name, out / name)
            records[unit] = there
        elif here.attempt > there.attempt:
            for path in _files_of(out, unit):
                bucket.send(path, path.relative_to(out).as_posix())
    if records:
        _write_journal(out / JOURNAL, records)
        bucket.send(out / JOURNAL, JOURNAL)


def _files_of(out: Path, unit: str) -> list[Path]:
    found = [out / f"{unit}.log", *sorted((out / unit).rglob("*"))]
    return [path for path in found if path.is_file() and not path.name.startswith(".")]


def _sole_writer(out: Path) -> IO[Any]:
    """Waits for the lock: the store of a driver that was killed may live on for a moment."""
    import fcntl  # not on Windows, which has no cluster

    make_folder(out / ".cluster")
    file = open_own(out / ".cluster/store.lock", "w")  # held for as long as it is open
    for _ in range(300):
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        time.sleep(0.2)
    raise UserError(f"another gsf run is writing {out}; wait for it or end it.")
