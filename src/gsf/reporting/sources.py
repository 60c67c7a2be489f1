"""What lies below a report's paths beside returns: the directories of every stage, by kind.

Nothing here fails on a damaged directory; `returns.gather` names those. Also here: the command
that would make a directory again, read from its manifest.
"""

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsf.core.errors import UserError
from gsf.core.stage import read_manifest
from gsf.reporting.returns import find_runs

# kind of a directory -> the verb that makes it, and which of its options are positional
VERBS: dict[str, tuple[str, tuple[str, ...]]] = {
    "dataset": ("materialise", ("recording",)),
    "gvf": ("fit", ("dataset",)),
    "labels": ("label", ("gvf",)),
    "run": ("train", ("dataset",)),
    "policy": ("collect", ()),
    "similar": ("similar", ("recording",)),
}
_TAIL = 1 << 16  # bytes at the end of a metrics file, enough for its last rows


@dataclass(frozen=True)
class Stage:
    """A directory with a readable manifest."""

    path: Path
    manifest: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.manifest["kind"])

    @property
    def config(self) -> Mapping[str, Any]:
        config = self.manifest.get("config")
        return config if isinstance(config, dict) else {}

    @property
    def inputs(self) -> Mapping[str, Any]:
        inputs = self.manifest.get("inputs")
        return inputs if isinstance(inputs, dict) else {}

    def command(self) -> str:
        """The command that makes it again, every option spelled out."""
        verb, positional = VERBS[self.kind]
        if self.kind == "dataset" and "recording" not in self.config:
            return ""  # imported
        return command(verb, self.config, positional)


def command(verb: str, config: Mapping[str, Any], positional: Sequence[str] = ()) -> str:
    words = ["gsf", verb, *(str(config[name]) for name in positional if name in config)]
    words += _options({k: v for k, v in config.items() if k not in positional}, "")
    return shlex.join(words)


def _options(config: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, value in config.items():
        option = f"{prefix}{name.replace('_', '-')}"
        if isinstance(value, bool):
            yield f"--{'' if value else 'no-'}{option}"
        elif isinstance(value, Mapping):
            yield from _options(value, f"{option}.")
        elif isinstance(value, list):
            yield from [f"--{option}", *map(str, value)] if value else []
        elif value is not None:
            yield from [f"--{option}", str(value)]


class Sources:
    """Every stage's directories at or below the paths, and those that runs there name."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._found: dict[Path, Stage] = {}
        for path in paths:
            for stage in _walk(Path(path)):
                self._found.setdefault(stage.path.resolve(), stage)
        for run in self.of("run"):  # runs trained by hand have data and labels elsewhere
            for name, kind in (("dataset", "dataset"), ("labels", "labels")):
                if isinstance(place := run.config.get(name), str):
                    named = read_stage(Path(place))
                    if named is None or named.kind != kind:
                        continue
                    if self._by_digest(kind, named.manifest.get("digest")) is None:
                        self._found.setdefault(named.path.resolve(), named)

    def of(self, kind: str) -> list[Stage]:
        return [stage for stage in self._found.values() if stage.kind == kind]

    def only_others(self, path: Path) -> bool:
        """Whether a path holds stages, but no run: a policy, say, given for its entropy."""
        below = [s for s in self._found.values() if s.path.resolve().is_relative_to(path.resolve())]
        return bool(below) and not find_runs([path])

    def dataset_of(self, stage: Stage) -> Stage | None:
        """The dataset that a run, fit or labels were made of, wherever it is now."""
        return self._by_digest("dataset", stage.inputs.get("dataset"))

    def labels_of(self, dataset: Stage, cumulant: str) -> Stage | None:
        """Labels of a dataset; those without a network if there are several."""
        mine = [
            stage
            for stage in self.of("labels")
            if stage.inputs.get("dataset") == dataset.manifest.get("digest")
            and stage.manifest.get("cumulant") == cumulant
        ]
        return min(mine, key=lambda stage: ("-mc" not in stage.path.name, stage.path), default=None)

    def game_of(self, stage: Stage) -> str:
        """The game (or name) of what a stage was made of."""
        dataset = self.dataset_of(stage)
        return str(dataset.manifest.get("name") if dataset else stage.path.parent.name)

    def _by_digest(self, kind: str, digest: Any) -> Stage | None:
        same = [s for s in self.of(kind) if digest and s.manifest.get("digest") == digest]
        return same[0] if same else None


def read_stage(path: Path) -> Stage | None:
    try:
        manifest = json.loads((path / "manifest.json").read_text())
    except (OSError, ValueError):
        return None
    known = isinstance(manifest, dict) and manifest.get("kind") in VERBS
    return Stage(path, manifest) if known else None


def _walk(path: Path) -> Iterator[Stage]:
    """Stages are not entered: what is inside them is theirs."""
    for name, folders, files in os.walk(path):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        if "manifest.json" in files:
            folders.clear()
            if (stage := read_stage(Path(name))) is not None:
                yield stage


def last_metrics(path: Path, key: str) -> dict[str, Any] | None:
    """The last whole row with `key` of a metrics.jsonl, without reading all of a long file."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and key in row and "step" in row:
            return row
    return None


def seconds_per_step(run: Stage) -> float | None:
    row = last_metrics(run.path / "metrics.jsonl", "train/seconds")
    return float(row["train/seconds"]) / row["step"] if row and row["step"] else None


def require_report(out: Path) -> list[str]:
    """The files of the report that `out` holds already; anything else there is refused."""
    if not out.exists():
        return []
    if (out / "manifest.json").is_file():
        return list(read_manifest(out, "report").get("files", []))
    if not out.is_dir() or any(out.iterdir()):
        raise UserError(f"{out} exists and is not a report; choose another --out.")
    return []
