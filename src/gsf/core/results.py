"""A directory of results: every stage's directory at or below some paths, with its manifest.

Nothing here fails on a damaged directory: its manifest is taken as empty, and whatever reads more
of it says what is wrong.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsf.core.errors import UserError
from gsf.core.naming import split_variant
from gsf.core.stage import DONE, MANIFEST, read_any_manifest

_ROWS = "returns.csv"
_TRACES = {MANIFEST, _ROWS, "checkpoint.pt", "metrics.jsonl", DONE}  # what runs hold


@dataclass(frozen=True)
class Stage:
    """A directory that a stage has written, whole or not."""

    path: Path
    manifest: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """ "": no manifest can be read. "rows": a returns.csv without a run, as random play has."""
        return str(self.manifest.get("kind", ""))

    @property
    def digest(self) -> str:
        return str(self.manifest.get("digest", ""))

    @property
    def config(self) -> Mapping[str, Any]:
        return _mapping(self.manifest.get("config"))

    @property
    def inputs(self) -> Mapping[str, Any]:
        return _mapping(self.manifest.get("inputs"))


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def read_stage(path: Path) -> Stage:
    path = Path(path)
    try:
        path = path.resolve()
        if (path / _ROWS).is_file() and not any(
            (path / name).exists() for name in _TRACES - {_ROWS, DONE}
        ):
            return Stage(path, {"kind": "rows"})
        return Stage(path, read_any_manifest(path))
    except (OSError, ValueError, UserError):  # ValueError: a manifest named what cannot be a path
        return Stage(path, {})


def find_stages(paths: Iterable[Path]) -> Iterator[Stage]:
    """Every stage's directory at or below the paths. No stage is looked for inside
    another, but in a directory of rows, which may hold runs."""
    done: set[Path] = set()
    for path in paths:
        for name, folders, files in os.walk(path):
            folders[:] = sorted(f for f in folders if not f.startswith("."))
            if not _TRACES.intersection(files):
                continue
            stage = read_stage(Path(name))
            if stage.kind != "rows":
                folders.clear()
            if stage.path not in done:
                done.add(stage.path)
                yield stage


class Results:
    """The stages at or below the paths, and the datasets and labels that runs there name."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._stages = {stage.path: stage for stage in find_stages(paths)}
        for run in self.of_kind("run"):  # runs trained by hand have data and labels elsewhere
            for kind in ("dataset", "labels"):
                if isinstance(path := run.config.get(kind), str):
                    named = read_stage(Path(path))  # only if it is what was used
                    mine = named.kind == kind and named.digest == run.inputs.get(kind)
                    if mine and not self._with_digest(kind, named.digest):
                        self._stages.setdefault(named.path, named)

    def of_kind(self, *kinds: str) -> list[Stage]:
        """All stages of the first kind, then of the next."""
        return [stage for kind in kinds for stage in self._stages.values() if stage.kind == kind]

    def dataset_of(self, stage: Stage) -> Stage | None:
        """The dataset that a run, fit or labels were made of, wherever it is now."""
        return self._with_digest("dataset", stage.inputs.get("dataset"))

    def labels_of(self, dataset: Stage, cumulant: str) -> Stage | None:
        """A dataset's labels. Those of no variant come first, then those without a network."""
        mine = [
            stage
            for stage in self.of_kind("labels")
            if stage.inputs.get("dataset") == dataset.digest
            and stage.manifest.get("cumulant") == cumulant
        ]

        def order(stage: Stage) -> tuple[bool, bool, Path]:
            name = stage.path.name
            return bool(split_variant(name)[1]), "-mc" not in name, stage.path

        return min(mine, key=order, default=None)

    def game_of(self, stage: Stage) -> str:
        """The game (or name) of what a stage was made of."""
        dataset = self.dataset_of(stage)
        return str(dataset.manifest.get("name") if dataset else stage.path.parent.name)

    def _with_digest(self, kind: str, digest: Any) -> Stage | None:
        return next((s for s in self.of_kind(kind) if digest and s.digest == digest), None)
