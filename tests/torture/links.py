"""A link at every name that a stage writes: in an empty folder, and among all that it has made.

To a file, to a folder and to nothing; also where its locks lie, and where it once wrote aside. The
stage refuses in one sentence or goes through; what the links lead to is as it was.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gsf.core.stage import DONE
from torture import forks, stages
from torture.figures import Row

ENDS = ("file", "folder", "nothing")
NAMED = {("evaluate", "random")}  # the user's own --out random/returns.csv leads there


def campaign(home: Path, share: float = 1.0, seed: int = 0) -> list[Row]:
    return forks.attacked("links", _attack, home, share, seed)


def _attack(name: str, home: Path, share: float, rng: np.random.Generator) -> Row:
    row, out, outside = Row("links", name), home / "out" / name, home / "outside"
    whole = home / "made" / name
    places = [place for place in _places(whole) if (name, str(place)) not in NAMED]
    cases = [(place, end, full) for place in places for end in ENDS for full in (0, 1)]
    chosen = [case for case in cases if rng.random() < share]
    for place, end, full in chosen or [cases[rng.integers(len(cases))]]:
        for old in (out, outside):
            shutil.rmtree(old, ignore_errors=True)
        (outside / "folder").mkdir(parents=True)
        for file in ("file", "folder/file"):
            (outside / file).write_text("mine")
        _plant(whole if full else None, out, place, outside / end)
        said = forks.in_child(lambda: stages.STAGES[name](home / "made", out), home)
        row.tried += 1
        case = f"{place} -> a {end}{', among the rest' if full else ''}"
        found = {str(path.relative_to(outside)) for path in outside.rglob("*")}
        kept = [(outside / file).read_text() for file in ("file", "folder/file")]
        if found != {"file", "folder", "folder/file"} or kept != ["mine", "mine"]:
            row.fail("written outside", case)
        elif said and not said.startswith("UserError"):
            row.fail("crashed", f"{case}: {said}")
    shutil.rmtree(out.parent, ignore_errors=True)
    return row


def _places(whole: Path) -> list[Path]:
    """Names of files and folders, of their locks and of what was once written aside."""

    def around() -> Iterator[Path]:
        for path in sorted(whole.rglob("*")):
            if forks.ASIDE not in path.relative_to(whole).parent.parts:
                yield from (path, path.parent / ".lock")
                yield from (path.with_name(f".{path.name}.{end}") for end in ("lock", "partial"))

    return list(dict.fromkeys(path.relative_to(whole) for path in around()))


def _plant(whole: Path | None, out: Path, place: Path, end: Path) -> None:
    out.mkdir(parents=True)
    if whole is not None:
        shutil.copytree(whole, out, dirs_exist_ok=True)
        for done in out.rglob(DONE):
            done.unlink()
    link = out / place
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_dir():
        shutil.rmtree(link)
    link.unlink(missing_ok=True)
    link.symlink_to(end, target_is_directory=end.name == "folder")
