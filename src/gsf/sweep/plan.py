"""What to run: sources x methods x seeds. Names are resolved here, before anything is computed."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gsf.core.errors import UserError
from gsf.data.recording import Recording
from gsf.gvf.controls import check_source
from gsf.nets import encoders
from gsf.nets.runtime import pick_device
from gsf.sweep.jobs import Job
from gsf.sweep.options import RunConfig
from gsf.sweep.sources import Source, find_sources
from gsf.sweep.variants import Variant

Chosen = Mapping[tuple[str, str], tuple[str, ...]]  # (source, method) -> owner.option=value words


@dataclass(frozen=True)
class Plan:
    config: RunConfig
    sources: dict[str, Source]
    methods: tuple[Variant, ...]

    def home(self, source: Source) -> Path:
        return self.config.out / source.folder

    def job(
        self,
        source: Source,
        variant: Variant,
        seed: int,
        out: Path,
        chosen: Sequence[str] = (),
        fixed: Sequence[str] = (),
    ) -> Job:
        config = self.config.of(variant, chosen, fixed)
        return Job(source, variant.spec, seed, self.home(source), out, config)

    def jobs(self, chosen: Chosen) -> list[Job]:
        """All runs, the first seed of every method first. chosen: the settings of tuning."""
        first = self.config.first_seed
        seeds = range(first, first + self.config.seeds)
        axes = itertools.product(seeds, self.sources.values(), self.methods)
        return [
            self.job(
                source,
                method,
                seed,
                self.home(source) / method.name / f"seed{seed}",
                chosen.get((source.name, method.name), ()),
            )
            for seed, source, method in axes
        ]


def _check_length(source: Source, wanted: int) -> None:
    length = len(Recording.load(str(source)))
    if length < wanted:
        raise UserError(
            f"{source} has {length:,} transitions, not the {wanted:,} asked for; make a larger "
            f"recording (`gsf collect --game {source.name} --transitions {wanted}`) and name it "
            f"with --recordings, or take fewer: --materialise.transitions {length}."
        )


def resolve(config: RunConfig) -> Plan:
    """Finds sources and methods, checks the options of every stage; bad input is refused here."""
    methods = tuple(config.find_methods())
    for variant in methods:
        own = config.of(variant)
        trained = own.stage("train", variant, dataset=Path(), out=Path()).resolved()
        fitted = own.stage("fit", dataset=Path(), out=Path())
        encoders.find(fitted.encoder)
        own.stage("label", gvf=Path(), out=Path())
        if not config.cluster:  # whose machines may have other devices
            for stage in (trained, fitted):
                pick_device(stage.device)
    wanted = config.stage("materialise", recording="", out=Path()).transitions
    played = config.stage("evaluate", agent="")
    if not config.cluster:
        pick_device(played.device)
    sources = find_sources(config)
    for source in sources.values():
        if source.recording and wanted:
            _check_length(source, wanted)
    for variant in (x for x in methods if x.method.cumulant):
        labels = config.of(variant).stage("label", gvf=Path(), out=Path())
        for source in sources.values():
            check_source(labels.source, source.name)
    for source in sources.values() if config.tune else ():
        if source.played and not played.n_validation:
            advice = "add --evaluate.n-validation 50."
            raise UserError(f"--tune needs validation levels: {advice}")
        if not source.played and source.validation is None:
            raise UserError(
                f"--tune cannot judge runs on {source.name}, which no suite can play: name an "
                "environment (--env), or data of other contexts (--validation DATASET)."
            )
    if config.tune and config.stage("train", dataset=Path(), out=Path()).released:
        raise UserError("--tune would undo --train.released; leave one of them out.")
    return Plan(config, sources, methods)
