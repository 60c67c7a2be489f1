"""`gsf verify`: everything at or below a path that gsf has made, checked; what is wrong is named.

Every file carries a checksum of its content, or its directory's manifest has one (core/sealed.py).
Other people's files are left alone.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gsf.core.errors import FoundWrongError, UserError
from gsf.core.files import is_leftover
from gsf.core.logs import progress, read_metrics
from gsf.core.sealed import KEY, check_file, load_checkpoint, read_json
from gsf.core.stage import DONE, MANIFEST, is_whole, read_any_manifest
from gsf.data.frames import verify_frames
from gsf.data.inspect import verify_recording
from gsf.data.recording import Recording
from gsf.data.tiers import find_policy, find_recording
from gsf.evaluation.rows import read_table
from gsf.reporting.options import VerifyConfig as VerifyConfig


def verify(config: VerifyConfig) -> None:
    checks = list(_checks(_find(config.path), config))
    if not checks:
        raise UserError(f"there is nothing in {config.path} that gsf has made.")
    wrong: dict[str, None] = {}  # each once, though several checks may find it
    with progress("verify", len(checks), "files") as advance:
        for done, (path, check) in enumerate(checks, 1):
            try:
                check(path)
            except (UserError, OSError) as error:
                wrong[str(error)] = None
            advance(done)
    files = f"{len(checks)} file{'s' * (len(checks) > 1)}"
    for words in wrong:
        print(f"wrong: {words}")
    if wrong:
        print(f"{config.path}: {files} checked, {len(wrong)} wrong.")
        raise FoundWrongError(f"{len(wrong)} things are wrong")
    print(f"{config.path}: {files} checked, all as they were written.")


def _find(name: str) -> Path:
    path = Path(name)
    if path.exists():
        return path
    policy = find_policy(name)
    return policy if policy.exists() and policy != path else find_recording(name)


_TABLES = ("returns.csv", "held_out.csv", "trials.csv", "probe.csv", "compare.csv")
Check = Callable[[Path], Any]


def _checks(path: Path, config: VerifyConfig) -> Iterator[tuple[Path, Check]]:
    """What there is to check, and how."""
    if path.is_file():
        yield path, _check_of(path, config) or _unknown
        return
    for name, folders, files in os.walk(path):
        folders.sort()
        folder = Path(name)
        for aside in (x for x in folders if is_leftover(Path(x))):
            yield folder / aside, _left_over
        folders[:] = [x for x in folders if not is_leftover(Path(x))]
        if MANIFEST in files:
            yield from _listed(folder)
        for file in sorted(files):
            if check := _check_of(folder / file, config):
                yield folder / file, check


def _listed(folder: Path) -> Iterator[tuple[Path, Check]]:
    """Files beside a manifest that has their checksums, if it can be read."""
    try:
        manifest = read_any_manifest(folder)
        if not is_whole(folder, manifest):
            return
    except UserError:
        return  # the manifest's own check says so
    if manifest["kind"] == "dataset":
        yield folder / "obs.npy", lambda path: verify_frames(path.parent)
    expected = manifest.get("files", {})
    for name in expected:
        yield folder / name, lambda path: check_file(path, expected[str(path.relative_to(folder))])


def _check_of(file: Path, config: VerifyConfig) -> Check | None:
    """How a file is checked; None if it is not one of gsf's, or its manifest has its checksum."""
    if is_leftover(file):
        return _left_over
    if file.name == MANIFEST:
        return lambda path: read_any_manifest(path.parent)
    if file.suffix == ".gsfrec":
        return lambda path: _recording(path, config)
    if file.name == DONE or (file.suffix == ".json" and KEY in file.read_text(errors="replace")):
        return lambda path: read_json(path, dict)
    if file.name in _TABLES or file.name.endswith(".csv.gz"):
        return read_table
    if file.suffix in (".csv", ".parquet") and KEY in file.read_text(errors="replace"):
        return read_table
    checks: dict[str, Check] = {"metrics.jsonl": read_metrics, "policy.pt": _policy}
    return checks.get(file.name) or (_network if file.suffix == ".pt" else None)


def _network(path: Path) -> None:
    load_checkpoint(path)
    if path.name.endswith(".policy.pt"):
        _policy(path)


def _policy(path: Path) -> None:
    from gsf.behaviour.policy import load_policy  # which needs torch

    load_policy(path)


def _recording(path: Path, config: VerifyConfig) -> None:
    recording = Recording.load(path)
    if config.replay and (n := verify_recording(recording, config.threads)):
        raise UserError(f"{path} replays with other pixels than recorded, in {n} checksums.")


def _left_over(path: Path) -> None:
    raise UserError(f"{path} was left by a process that is gone; the same command removes it.")


def _unknown(path: Path) -> None:
    raise UserError(f"{path} is not a file that gsf has made.")
