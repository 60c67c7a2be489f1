"""A sweep as units of work for machines that share no disk, by names relative to --out.

A unit says what it writes and which unit it needs: labels a fit, a run labels. On a node it runs
in a directory of its own that is laid out like --out, with its dataset and what it needs in it. Its
key identifies the work: what is done under the same key need not be looked at again.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gsf.core import registry
from gsf.core.files import atomic_directory, digest, digest_file
from gsf.core.stage import kinds, read_manifest
from gsf.core.version import __version__
from gsf.data.recording import Recording
from gsf.data.tiers import find_recording
from gsf.sweep.jobs import Fitting, Job, Labelling, References
from gsf.sweep.options import RunConfig
from gsf.sweep.sources import Source

Fetch = Callable[[str, Path], None]  # an input by its name, to a path


@dataclass(frozen=True)
class Recorded:
    """A dataset as any node makes it: by replaying a recording, which travels."""

    key: str
    recording: str  # name of the input
    config: RunConfig

    def make(self, fetch: Fetch, out: Path) -> None:
        from gsf.data.materialise import materialise

        fetch(self.recording, Path(self.recording))
        materialise(self.config.stage("materialise", recording=self.recording, out=out))


@dataclass(frozen=True)
class Imported:
    """A dataset that only the driver has: all of its files travel."""

    key: str
    files: tuple[str, ...]  # names of the inputs

    def make(self, fetch: Fetch, out: Path) -> None:
        with atomic_directory(out) as aside:
            for name in self.files:
                fetch(name, aside / name.removeprefix(f"inputs/{self.key}/"))


Data = Recorded | Imported


@dataclass(frozen=True)
class Unit:
    name: str  # unique, a path in --out
    home: str  # of its source
    title: tuple[str, str, str]  # source, method, seed
    writes: tuple[str, ...]
    data: Data
    key: str
    work: Callable[[], str | None] = field(repr=False)
    needs: str | None = None  # labels or a fit, another unit's name
    policy: str | None = None  # an input

    @property
    def log(self) -> str:
        return f"{self.name}.log"

    def __str__(self) -> str:
        return " ".join(x for x in self.title if x)


@dataclass(frozen=True)
class _Run:
    """A job whose labels are there already."""

    job: Job
    labels: Path | None

    def __call__(self) -> str | None:
        return self.job.train_with(self.labels)


class Units:
    """Turns the jobs of a sweep into units, and names the files that have to travel to them."""

    def __init__(self, config: RunConfig, sources: Mapping[str, Source]) -> None:
        self._out = config.out
        self._config = replace(config, out=Path(), cluster=None, storage=None)
        self.inputs: dict[str, Path] = {}
        self._data = {name: self._find_data(source) for name, source in sources.items()}
        files = registry.spellings()
        self.code = {x: f"code/{digest_file(path)}/{path.name}" for x, path in files.items()}
        self.inputs |= {self.code[x]: path for x, path in files.items()}

    def _find_data(self, source: Source) -> Data:
        if source.recording:
            chosen = self._config.stage("materialise", recording="", out=Path())
            replayed = Recording.load(source.recording).digest
            key = digest(
                json.dumps([kinds()["dataset"].format, __version__, repr(chosen), replayed])
            )
            name = f"inputs/{key}.gsfrec"
            self.inputs[name] = find_recording(source.recording)
            return Recorded(f"dataset-{key}", name, self._config)
        assert source.dataset is not None
        key = f"dataset-{read_manifest(source.dataset, 'dataset')['digest']}"
        there = [path for path in source.dataset.rglob("*") if path.is_file()]
        names = (path.relative_to(source.dataset).as_posix() for path in there)
        files = {f"inputs/{key}/{name}": path for name, path in zip(names, there, strict=True)}
        self.inputs |= files
        return Imported(key, tuple(files))

    def of_references(self, references: References) -> Unit:
        source, policy = references.source, references.policy
        there = None if policy is None else f"inputs/{digest_file(policy)}.policy.pt"
        if policy is not None and there is not None:
            self.inputs[there] = policy
        moved = replace(
            references,
            source=replace(source, dataset=None),
            home=self._name(references.home),
            policy=None if there is None else Path(there),
            config=self._config,
        )
        names = tuple(str(self._name(x)) for x in references.outs)
        title = (source.name, ", ".join(x.name for x in references.outs), "")
        said = [there, moved.config.set]
        return replace(self._unit(names[0], source, title, names, moved, said), policy=there)

    def of_jobs(self, jobs: Iterable[Job]) -> list[Unit]:
        """Runs, each behind the fit and labels it needs, the sources one after the other.

        A node that works through one source at a time needs one dataset at a time.
        """
        units: dict[str, Unit] = {}
        order = list(self._data)
        for job in sorted(jobs, key=lambda job: order.index(job.source.name)):
            moved = replace(
                job,
                source=replace(job.source, dataset=None),
                home=self._name(job.home),
                out=self._name(job.out),
                config=replace(job.config, out=Path(), cluster=None),
            )
            labels = None
            if (labelling := moved.labelling) is not None:
                fitted = self._made(job.source, labelling.fitting)
                labels = self._made(job.source, labelling, fitted.name)
                units |= {unit.name: unit for unit in (fitted, labels) if unit.name not in units}
            name = str(moved.out)
            title = (job.source.name, job.out.parent.name, job.out.name)
            units[name] = self._unit(
                name,
                job.source,
                title,
                (name,),
                _Run(moved, None if labels is None else Path(labels.name)),
                [job.config.set, job.method],
                None if labels is None else labels.name,
            )
        return list(units.values())

    def _made(self, source: Source, work: Fitting | Labelling, needs: str | None = None) -> Unit:
        name, title = str(work.config.out), (source.name, work.config.out.name, "")
        return self._unit(name, source, title, (name,), work, repr(work), needs)

    def _unit(
        self,
        name: str,
        source: Source,
        title: tuple[str, str, str],
        writes: tuple[str, ...],
        work: Callable[[], str | None],
        said: Any,
        needs: str | None = None,
    ) -> Unit:
        data = self._data[source.name]
        code = sorted(set(self.code.values()))
        key = digest(json.dumps([data.key, self._config.preset, code, name, said]))
        return Unit(name, source.folder, title, writes, data, key, work, needs)

    def _name(self, path: Path) -> Path:
        return path.relative_to(self._out)
