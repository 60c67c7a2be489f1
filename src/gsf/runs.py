"""What every stage's directory shares: atomic writes, manifests, checkpoints, metrics, progress.

A stage writes its results aside and renames them into place, so a directory that carries a
manifest is complete. `UserError` is the one kind of error a user is meant to see: one sentence.
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import xxhash
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gsf import __version__

console = Console(stderr=True)
# Options that say where things lie and what works on them; `inputs` says what they are.
_WHERE = {"recording", "source", "dataset", "gvf", "labels", "policy", "bootstrap", "against"}
_WHERE |= {"out", "threads", "device"}


class UserError(Exception):
    """Bad input or a bad request: the message says what was wrong and what to do about it."""


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


@contextlib.contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yields a directory beside `path` to fill; it becomes `path` only if the block succeeds."""
    if path.exists():
        raise UserError(f"{path} exists already; remove it or choose another --out.")
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


def _remove_abandoned(path: Path) -> None:
    """Partial directories of processes that no longer run (kill -9 leaves them behind)."""
    for aside in path.parent.glob(f".{path.name}.*.partial"):
        pid = aside.name.split(".")[-2]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(aside, ignore_errors=True)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_sync_directory = _sync_file  # a directory's entries are synced the same way


@contextlib.contextmanager
def locked(directory: Path, name: str = ".lock") -> Iterator[None]:
    """One writer per run directory; the lock goes with the process, however it ends."""
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / name, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"another gsf process is writing {directory}; wait for it.") from None
        yield


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


def write_manifest(
    directory: Path,
    kind: str,
    version: int,
    *,
    config: Mapping[str, Any],
    inputs: Mapping[str, str],
    **facts: Any,
) -> dict[str, Any]:
    """`digest` identifies this output to the next stage; `inputs` holds those it was made of.

    The same made elsewhere, or by another number of threads, is the same.
    """
    manifest = {
        "kind": kind,
        "format": version,
        "gsf": __version__,
        "commit": _git_commit(),
        "config": dict(config),
        "inputs": dict(inputs),
        **facts,
    }
    body = {k: v for k, v in manifest.items() if k not in ("gsf", "commit")}
    body["config"] = {k: v for k, v in config.items() if k not in _WHERE}
    manifest["digest"] = digest(json.dumps(body, sort_keys=True))
    write_atomic(directory / "manifest.json", json.dumps(manifest, indent=1) + "\n")
    return manifest


def read_manifest(directory: Path, kind: str, version: int) -> dict[str, Any]:
    path = Path(directory) / "manifest.json"
    if not path.is_file():
        raise UserError(f"{directory} is not a {kind}: it has no manifest.json.")
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
        found, found_version = manifest["kind"], manifest["format"]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is damaged; make the {kind} again.") from None
    if found != kind:
        raise UserError(f"{directory} holds a {found}, not a {kind}.")
    if found_version != version:
        raise UserError(
            f"{directory} has {kind} format {found_version}; this gsf reads format {version}."
        )
    return manifest


def require_input(manifest: Mapping[str, Any], name: str, found: str, advice: str) -> None:
    """Refuses an input other than the one the manifest was made of."""
    expected = manifest["inputs"].get(name)
    if expected != found:
        raise UserError(f"made from another {name} ({expected}, not {found}): {advice}")


def _git_commit() -> str | None:
    """The commit of a source checkout; None for an installed package."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "--verify", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


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


def mark_done(directory: Path, **facts: Any) -> None:
    write_atomic(directory / "DONE", json.dumps(facts) + "\n")


def is_done(directory: Path) -> bool:
    return (directory / "DONE").is_file()


class Metrics:
    """Appends rows to metrics.jsonl and TensorBoard; on resume drops rows after the checkpoint."""

    def __init__(self, directory: Path, resume_step: int = 0, tensorboard: bool = True) -> None:
        self._path = directory / "metrics.jsonl"
        kept = [row for row in read_metrics(self._path) if row["step"] <= resume_step]
        write_atomic(self._path, "".join(json.dumps(row) + "\n" for row in kept))
        self._file = open(self._path, "a")  # noqa: SIM115 (closed by close)
        self._board = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(directory / "tensorboard"), purge_step=resume_step + 1)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Rows of a metrics.jsonl; a last line cut short by a kill is left out."""
    if not path.is_file():
        return []
    rows = []
    for line in path.read_text().splitlines():
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line))
    return rows


Advance = Callable[..., None]


@contextlib.contextmanager
def progress(what: str, total: int, unit: str = "steps") -> Iterator[Advance]:
    """Yields `advance(done, **facts)`: a bar with rate and time left, or lines in a log file."""
    started, first, last_line = time.monotonic(), None, time.monotonic()

    def describe(done: int, facts: Mapping[str, Any]) -> str:
        nonlocal first
        first = done if first is None else first
        rate = (done - first) / max(time.monotonic() - started, 1e-9)
        shown = [f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in facts.items()]
        return " ".join([f"{rate:,.0f} {unit}/s", *shown])

    if not console.is_terminal:

        def advance_log(done: int, **facts: Any) -> None:
            nonlocal last_line
            line = describe(done, facts)
            if time.monotonic() - last_line > 10 and done > (first or 0):
                last_line = time.monotonic()
                left = (last_line - started) / (done - (first or 0)) * (total - done)
                line = f"{what}: {done:,}/{total:,} {line}, {left:.0f} s left"
                console.print(line, soft_wrap=True, highlight=False)

        yield advance_log
        return

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(what, total=total, facts="")

        def advance_bar(done: int, **facts: Any) -> None:
            bar.update(task, completed=done, facts=describe(done, facts))

        yield advance_bar
