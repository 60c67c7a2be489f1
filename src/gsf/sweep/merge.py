"""`gsf run --merge`: results of several directories, of shards of one sweep, brought together.

Every stage's directory is copied, whole or not at all. Of the same output in two directories one
is taken: the finished one, if only one is. Different outputs of the same name are refused before
anything is copied.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from gsf.core.errors import UserError
from gsf.core.files import atomic_directory, locked, write_atomic
from gsf.core.logs import console, progress
from gsf.core.results import Stage, find_stages
from gsf.core.stage import is_whole
from gsf.evaluation.rows import IDENTITY, KEYS, read_rows, write_rows

ROWS = "returns.csv"


def merge(sources: Sequence[Path], out: Path) -> Path:
    """Copies what `out` lacks from the sources; returns `out`."""
    for source in sources:
        if not source.is_dir():
            raise UserError(f"--merge {source}: there is no such directory.")
    found = [(stage, stage.path.relative_to(source.resolve())) for source in sources
             for stage in _find(source)]  # fmt: skip
    if not found:
        raise UserError(f"--merge: no results in {', '.join(map(str, sources))}.")
    best: dict[Path, Stage] = {stage.path.relative_to(out.resolve()): stage for stage in _find(out)}
    for stage, name in found:
        other = best.get(name)
        if other is not None and stage.kind != "rows":
            _check_same(stage, other)
        if other is None or (_rank(stage) > _rank(other)):
            best[name] = stage
    with locked(out), progress("merge", len(best), "directories") as advance:
        for done, (name, stage) in enumerate(best.items(), 1):
            copies = [x for x, at in found if at == name]
            if stage.path != (out / name).resolve():
                _copy(stage.path, out / name)
            _join_rows(copies, out / name / ROWS)
            for log in (x.path.with_name(f"{x.path.name}.log") for x in copies):
                if log.is_file() and not (out / name).with_name(log.name).exists():
                    write_atomic((out / name).with_name(log.name), log.read_bytes())
            advance(done)
    console.print(f"{len(best)} directories of results are in {out}.", soft_wrap=True)
    return out


def _find(source: Path) -> list[Stage]:
    """Every stage's directory but reports, as a new report is made of everything."""
    return [stage for stage in find_stages([source]) if stage.kind != "report"]


def _check_same(one: Stage, other: Stage) -> None:
    for what in ("kind", "options", "inputs"):
        if one.manifest.get(what) != other.manifest.get(what):
            raise UserError(
                f"{one.path} and {other.path} are not of one sweep: their {what} differ; merge "
                "only shards of the same command."
            )


def _rank(stage: Stage) -> tuple[bool, int]:
    """Larger for the copy to keep: the finished one, else the one that was trained for longer."""
    whole = bool(stage.manifest) and is_whole(stage.path, stage.manifest)
    latest = stage.path / "metrics.jsonl"
    return whole, latest.stat().st_size if latest.is_file() else 0


def _copy(source: Path, to: Path) -> None:
    if to.exists():
        shutil.rmtree(to)
    with atomic_directory(to) as aside:
        shutil.copytree(source, aside, ignore=shutil.ignore_patterns(".*"), dirs_exist_ok=True)


def _join_rows(copies: Sequence[Stage], to: Path) -> None:
    """Rows of one run or of random play, of which each shard may have played a part."""
    paths = [stage.path / ROWS for stage in copies if (stage.path / ROWS).is_file()]
    if len(paths) > 1 or (paths and to.is_file()):
        rows = pd.concat([read_rows(path) for path in [to, *paths] if path.is_file()])
        rows = rows.drop_duplicates([*KEYS, IDENTITY])
        if rows.duplicated(KEYS).any():
            raise UserError(f"{to.parent.name}: rows of different agents have the same name.")
        write_rows(to, rows)
