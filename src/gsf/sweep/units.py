"""A sweep as units of work for machines that share no disk: what each needs, does and writes.

A unit runs in a directory of its own, which is laid out like --out. In it are the unit's dataset
and what it needs from another unit: labels need a fit, a run needs labels. A unit's key is a digest
of all that decides its result: what was done under the same key is not done again.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from gsf.core import registry
from gsf.core.code import decided_by
from gsf.core.files import atomic_directory, digest, digest_file
from gsf.core.stage import kinds, read_manifest
from gsf.core.version import __version__
from gsf.data.materialise import MaterialiseConfig, materialise
from gsf.data.recording import Recording
from gsf.data.tiers import find_recording
from gsf.gvf import cumulants
from gsf.nets import encoders
from gsf.suites import all_suites
from gsf.sweep.jobs import Job, Reference
from gsf.sweep.options import RunConfig
from gsf.sweep.sources import Source

Fetch = Callable[[str, Path], None]  # copies an input, by its name, to a path
Played = TypeVar("Played", Job, Reference)


@dataclass(frozen=True)
class Data:
    """A source's dataset, as any machine can make it."""

    key: str  # of its content
    at: Path  # where a unit looks for it
    make: Callable[[Fetch, Path], object]


def _replay(config: MaterialiseConfig, fetch: Fetch, out: Path) -> None:
    """Makes a dataset from a recording, which is much smaller to send."""
    fetch(config.recording, Path(config.recording))
    materialise(replace(config, out=out))


def _copy(files: Mapping[str, str], fetch: Fetch, out: Path) -> None:
    """Fetches a dataset that only the driver has. files: names in it -> names of inputs."""
    with atomic_directory(out) as aside:
        for name, there in files.items():
            fetch(there, aside / name)


@dataclass(frozen=True)
class Unit:
    """One thing to do. Its files lie in the directory of its name, its log beside that."""

    name: str  # a path in --out
    key: str
    data: Data
    work: Callable[[], object] = field(repr=False)
    needs: str | None = None  # the unit whose output must be there: labels or a fit
    policy: str | None = None  # an input

    @property
    def log(self) -> str:
        return f"{self.name}.log"

    def __str__(self) -> str:
        return self.name.replace("/", " ")


class Units:
    """Turns the jobs of a sweep into units; `inputs` are the files that have to travel to them."""

    def __init__(self, config: RunConfig, sources: Mapping[str, Source]) -> None:
        self._out, self._config = config.out, _elsewhere(config)
        files = registry.spellings()
        self.code = {x: f"code/{digest_file(path)}/{path.name}" for x, path in files.items()}
        self.inputs = {self.code[x]: path for x, path in files.items()}
        self._data = {name: self._find_data(source) for name, source in sources.items()}
        self._own_code = _code_of_gsf(config)

    def _find_data(self, source: Source) -> Data:
        at = Path(source.folder, "dataset")
        if source.recording:
            config = self._config.stage("materialise", recording="", out=Path())
            config = replace(config, accept_code_change=False)
            replayed = Recording.load(source.recording).digest
            chosen = [kinds()["dataset"].format, __version__, repr(config), replayed]
            key = digest(json.dumps(chosen))
            name = f"inputs/{key}.gsfrec"
            self.inputs[name] = find_recording(source.recording)
            return Data(f"dataset-{key}", at, partial(_replay, replace(config, recording=name)))
        assert source.dataset is not None
        key = f"dataset-{read_manifest(source.dataset, 'dataset')['digest']}"
        there = {
            path.relative_to(source.dataset).as_posix(): path
            for path in source.dataset.rglob("*")
            if path.is_file()
        }
        self.inputs |= {f"inputs/{key}/{name}": path for name, path in there.items()}
        return Data(key, at, partial(_copy, {name: f"inputs/{key}/{name}" for name in there}))

    def name(self, path: Path) -> str:
        return path.relative_to(self._out).as_posix()

    def reference(self, found: Reference) -> Unit:
        policy = None
        if found.policy is not None:
            policy = f"inputs/{digest_file(found.policy)}.policy.pt"
            self.inputs[policy] = found.policy
        work = replace(self._moved(found), policy=Path(policy) if policy else None)
        decides = [policy, work.config.options]
        return self._unit(found.source, work.out, work.play, decides, policy=policy)

    def runs(self, jobs: Iterable[Job]) -> list[Unit]:
        """One for each job, and those that make the labels and fits which jobs need.

        They are sorted by source, so that a machine needs one dataset at a time.
        """
        units: dict[str, Unit] = {}
        order = list(self._data)
        for job in sorted(jobs, key=lambda job: order.index(job.source.name)):
            moved, needs = replace(self._moved(job), home=Path(self.name(job.home))), None
            if labelling := moved.labelling:
                for work in (labelling.fitting, labelling):
                    made = self._unit(job.source, work.config.out, work.make, repr(work), needs)
                    needs = units.setdefault(made.name, made).name
            train = partial(moved.train_with, Path(needs) if needs else None)
            made = self._unit(job.source, moved.out, train, [job.config.options, job.method], needs)
            units[made.name] = made
        return list(units.values())

    def _moved(self, work: Played) -> Played:
        """The same work, with paths in a directory that is laid out like --out."""
        source = replace(work.source, dataset=None)
        out, config = Path(self.name(work.out)), _elsewhere(work.config)
        return replace(work, source=source, out=out, config=config)

    def _unit(
        self,
        source: Source,
        out: Path,
        work: Callable[[], object],
        decides: Any,
        needs: str | None = None,
        policy: str | None = None,
    ) -> Unit:
        """decides: all that decides the result but data, preset, the user's code and gsf's."""
        data, code = self._data[source.name], sorted(set(self.code.values()))
        code.append(self._own_code)
        key = digest(json.dumps([data.key, self._config.preset, code, str(out), decides]))
        return Unit(out.as_posix(), key, data, work, needs, policy)


def _code_of_gsf(config: RunConfig) -> str:
    """The digest of all of gsf's code that decides a run of this sweep."""
    decides: list[Any] = ["gsf.sweep.jobs", *(x.make_env.__module__ for x in all_suites())]
    for variant in config.find_methods():
        decides += [part.value for part in variant.method.parts.values()]
        decides.append(encoders.find(config.stage("train", variant).encoder).value.build)
        if cumulant := variant.method.cumulant:
            decides.append(cumulants.find(cumulant).value.function)
    return digest(json.dumps(decided_by(*decides)))


def _elsewhere(config: RunConfig) -> RunConfig:
    return replace(config, out=Path(), cluster=None, storage=None)
