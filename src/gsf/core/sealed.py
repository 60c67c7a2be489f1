"""Every file carries a checksum of its content, so that damage is noticed when the file is read.

Each form stays what tools expect: JSON is JSON, a table a table, a checkpoint loads with torch.
Checksums guard against damage, not against malice; what a file must hold is said in schema.py.
Checkpoints hold tensors, numbers and strings only: reading one never unpickles an object.
"""

import contextlib
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsf.core.errors import UserError
from gsf.core.files import digest, digest_file, write_atomic
from gsf.core.schema import MOST_BYTES, Form, misfit, parse_json

KEY, MARK = "checksum", "xxh3:"


@dataclass(frozen=True)
class Seal:
    """How a file or a line ends: with the checksum of all that stands before."""

    before: bytes
    after: bytes

    def close(self, body: bytes) -> bytes:
        return body + self._end(body)

    def open(self, data: bytes) -> bytes | None:
        """The body; None if it is not what was sealed."""
        body = data[: -len(self._end(b""))]
        return body if data[len(body) :] == self._end(body) else None

    def _end(self, body: bytes) -> bytes:
        return self.before + (MARK + digest(body)).encode() + self.after


_DOCUMENT = Seal(f',\n "{KEY}": "'.encode(), b'"\n}\n')
_LINE = Seal(f', "{KEY}": "'.encode(), b'"}')
_BINARY = Seal(f"\n{KEY} ".encode(), b"\n")


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """A document with the checksum as its last key; `facts` are not empty."""
    data = _DOCUMENT.close(json.dumps(facts, indent=1).removesuffix("\n}").encode())
    if len(data) > MOST_BYTES:
        raise UserError(f"{path} would have {len(data):,} bytes, more than gsf reads; take less.")
    write_atomic(path, data)


def read_json(path: Path, form: Form) -> dict[str, Any]:
    data = _read(path, MOST_BYTES + 1)
    if len(data) <= MOST_BYTES and _DOCUMENT.open(data) is None:
        raise damaged(path, _why(data))
    return checked(path, _parsed(path, data), form)


def damaged(path: Path | str, why: str = "it fails its checksum") -> UserError:
    return UserError(f"{path} is damaged: {why}; make it again or put a good copy in its place.")


def checked(path: Path | str, found: dict[str, Any], form: Form) -> dict[str, Any]:
    """Returns what was found; refuses what has not the form asked for."""
    if wrong := misfit(found, form):
        raise UserError(f"{path} is whole, but {wrong}; make it again with this gsf.")
    return found


def to_line(row: Mapping[str, Any]) -> str:
    """A row of a .jsonl, which grows line by line."""
    return _LINE.close(json.dumps(row).removesuffix("}").encode()).decode() + "\n"


def read_lines(path: Path, form: Form) -> list[dict[str, Any]]:
    """Rows of a .jsonl; what a kill has left of a last line is left out."""
    *lines, rest = _read(path).split(b"\n") if path.is_file() else [b""]
    if _LINE.open(rest) or _LINE.open(rest[:-1]) or b"\0" in rest:
        lines.append(rest)  # not what a kill leaves: a whole line with another ending, or damage
    rows = []
    for number, line in enumerate(lines, 1):
        if _LINE.open(line) is None:
            raise damaged(path, f"line {number} fails its checksum")
        rows.append(checked(f"{path}, line {number}", _parsed(path, line), form))
    return rows


def write_table(path: Path, frame: Any, **options: Any) -> None:
    """A data frame as CSV with one column more, in every row the checksum of all the rest.

    Compressed if the path ends in .gz; the same rows give the same bytes.
    """

    def text(rows: Any) -> str:
        return str(rows.to_csv(index=False, lineterminator="\n", **options))

    data = text(frame.assign(**{KEY: MARK + digest(text(frame))})).encode()
    write_atomic(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def open_table(path: Path, data: bytes) -> bytes:
    """The CSV that was sealed. One without a checksum, by an older gsf or by hand, is taken as it
    is."""
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            raise damaged(path, "it is no whole gzip file") from None
    if MARK.encode() not in data and KEY.encode() not in data:
        return data
    cell = data[-len(f",{MARK}{digest('')}\n") :]
    body = data.replace(cell, b"\n").replace(f",{KEY}\n".encode(), b"\n", 1)
    if cell != f",{MARK}{digest(body)}\n".encode():
        raise UserError(
            f"{path} is damaged, or was changed since gsf wrote it: its rows do not fit their "
            f"checksum. Evaluate again; if it was you, leave the column {KEY!r} out."
        )
    return body


def is_sealed(path: Path) -> bool:
    """Whether a CSV that can be read has its checksums: one by hand may have none."""
    data = path.read_bytes()
    return MARK.encode() in (gzip.decompress(data) if path.suffix == ".gz" else data)


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Tensors, numbers, strings, lists and dicts only, so that loading never unpickles objects."""
    import torch  # only here and below: manifests and rows are read without it

    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    write_atomic(path, _BINARY.close(buffer.getvalue()))


def load_checkpoint(path: Path, form: Form = dict) -> dict[str, Any]:
    import torch

    if not path.is_file():
        raise UserError(f"no checkpoint at {path}.")
    data = _read(path)
    body = _BINARY.open(data)
    if body is None:
        raise damaged(path, _why(data))
    try:
        state = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises a different type for each way a file can be wrong
        raise UserError(f"{path} is not a readable checkpoint ({type(error).__name__}).") from None
    return checked(path, state, form)


@contextlib.contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Inside, a checkpoint's parts are put into networks: a file that does not fit is named."""
    try:
        yield
    except (KeyError, IndexError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{path} is whole, but of something else than is asked of it ({why}); make it again "
            "or put the right file in its place."
        ) from None


def check_file(path: Path, expected: str) -> None:
    """Refuses a file that is not as its manifest says."""
    if not path.is_file():
        raise UserError(f"{path.parent} lacks {path.name}; make it again.")
    if digest_file(path) != expected:
        raise damaged(path)


def _read(path: Path, most: int = -1) -> bytes:
    with open(path, "rb") as file:
        return file.read(most)


def _why(data: bytes) -> str:
    cut = MARK.encode() not in data[-64:]
    return "it was cut short, or has no checksum" if cut else "it fails its checksum"


def _parsed(path: Path, data: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = parse_json(data)
        found.pop(KEY)
    except (KeyError, AttributeError, TypeError):
        raise UserError(f"{path} holds no JSON object; make it again.") from None
    except ValueError as error:
        raise UserError(f"{path} cannot be read as JSON: {error}; make it again.") from None
    return found
