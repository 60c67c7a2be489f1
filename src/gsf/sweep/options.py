"""Options of `gsf run`, and what they come to in a stage.

Read without torch, so that help is fast.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from gsf.core.errors import UserError
from gsf.core.options import CodedOptions, Count, Group, Some, above, between, from_json, to_json
from gsf.core.presets import Preset, preset_values
from gsf.core.stage import Kind
from gsf.learn.legend import AUXILIARY, BASES
from gsf.sweep.settings import GIVEN, STAGES, check, options_of, parse

if TYPE_CHECKING:
    from gsf.sweep.variants import Variant

MAX_SEEDS = 1_000  # --tune takes the next one

TUNING = Kind("tuning")


@dataclass(frozen=True)
class RunConfig(CodedOptions):
    """Compare methods: materialise, fit, label, train, evaluate and report, resumable.

    Any option of a stage, a base or a loss is given by its owner's name: --train.grad-steps 1000
    --label.n-bins 5 --cql.alpha 4 --gsf.tau 0.1. `gsf train --help`, `gsf fit --help` ... list
    those of stages, `gsf train --method gsf-reward --help` those of its base and its loss.
    """

    out: Path = Path("results/run")
    """Directory of all results; the same command goes on where it was stopped."""
    preset: Preset = "laptop"
    """Sizes of every stage: smoke (a minute), laptop (10 minutes), study (CPU days), paper; or
    grid, a comparison of its own on small worlds (docs/looks.md), under an hour."""
    games: tuple[str, ...] = ()
    """Games (`all` for every one); by default those with a shipped recording of a policy."""
    methods: Annotated[
        tuple[str, ...],
        Some(),
        tyro.conf.arg(
            help=f"Among {', '.join([*BASES, *AUXILIARY])} (`all` for every one); your own as "
            "file.py:Name, gsf-file.py:cumulant. A variant has settings behind a plus, as in "
            "gsf-reward+label.n_bins=3, and a row of its own."
        ),
    ] = ("bc", "cql", "gsf-reward")
    seeds: Annotated[int, between(1, MAX_SEEDS)] = 1
    """Seeds of every method, from --first-seed on."""
    first_seed: Annotated[int, between(0, MAX_SEEDS - 1)] = 0
    """The first of them: with 3, --seeds 2 are seeds 3 and 4, to add to a comparison made elsewhere
    (--merge, or `gsf report A B`)."""
    temperature: Literal["own", "pooled"] = "own"
    """At which sampled actions are drawn: every run's own, or one for all methods of a game. Either
    way validation levels choose it; pooled, all runs play these before any plays a test level."""
    report: bool = True
    """Write report.html at the end."""
    recordings: Annotated[tuple[str, ...], Group.DATA] = ()
    """Recording files, or names of shipped ones (coinrun-early); each says its game itself."""
    datasets: tuple[Path, ...] = ()
    """Datasets (of `gsf data import`, materialise or collect) to sweep instead of recordings, or
    beside those that --recordings names."""
    env: str | None = None
    """A Gymnasium environment of yours, as file.py:make, in which agents of data that no suite can
    play are evaluated; make(level) gives that of a level. The file is run."""
    held_out: tuple[Path, ...] = ()
    """Datasets of contexts that none of these runs is trained on: agents are judged by them, too
    (gsf evaluate --held-out). `gsf data import` makes one, OUT-validation."""
    tune: Annotated[Count | None, Group.TUNING] = None
    """First try four settings of every method for so many gradient steps; a game's validation
    levels choose. What is given stays as it is."""
    validation: tuple[Path, ...] = ()
    """--tune on datasets that no suite can play: data of other contexts (`gsf data import
    --validation` writes such a dataset, OUT-validation) whose likelihood chooses. Not the data of
    the results."""
    workers: Annotated[Annotated[int, between(1, 1024)] | None, Group.MACHINE] = None
    """Runs at a time, each in a process with its share of the cores; each writes <run>.log.
    Default: as many as there are cores, on a GPU one."""
    shard: str | None = None
    """Only part I of N of the runs, as I/N with I from 1, e.g. in an array of SLURM jobs; into the
    same --out on a shared disk, or into one each for --merge."""
    merge: tuple[Path, ...] = ()
    """Run nothing: bring the results of these directories, of shards, together in --out."""
    cluster: Annotated[str | None, Group.CLUSTER] = None
    """Spread the runs over the Ray cluster at HOST:PORT (or auto), whose machines need not share a
    disk (pip install 'gsf-rl[cluster]'; docs/cluster.md)."""
    cpus: Annotated[float, between(0.01, 1024)] = 1.0
    """--cluster: CPUs of each run; its threads."""
    gpus: Annotated[float, between(0, 1024)] | None = None
    """--cluster: GPUs of each run, 0.25 for four on one. Default: 1 if the cluster has any."""
    retries: Annotated[int, between(0, 1000)] = 3
    """--cluster: how often a run may be lost with its process or machine, without having gone on
    since, before it counts as failed."""
    storage: str | None = None
    """--cluster: also copy every file to a URI (file:///disk/sweep, s3://bucket/sweep, gs://...);
    with it the same command goes on from another machine with an empty --out."""
    cache_gb: Annotated[float, above(0, 10**6)] = 100.0
    """--cluster: what each machine may keep of datasets and labels; its $GSF_SCRATCH says where."""

    options: Annotated[Mapping[str, Any], tyro.conf.Suppress] = field(
        default_factory=dict, hash=False
    )
    """Of a stage, a base or a loss, as {"train.grad_steps": 1000, "gsf.tau": 0.1}."""

    @classmethod
    def owners(cls, given: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """Whose options may be given: the stages, and the parts of the methods, or of any."""
        heads = {x.partition(".")[0] for x in given if "." in x}
        if "help" in given or heads <= STAGES.keys():
            return {x: STAGES[x] for x in sorted(heads & STAGES.keys())}
        from gsf.learn import bases, losses
        from gsf.sweep import variants

        known = {x: room.find(x).value.Config for room in (bases, losses) for x in room.names()}
        on = next(iter(given.get("train.on", ())), None)
        for variant in variants.find_all(given.get("methods", cls.methods), on):
            known |= variant.owners
        return STAGES | known

    @classmethod
    def owned(cls, options: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Options of owners as an option of this config."""
        return {
            "options": {f"{x}.{name}": options[x][name] for x in options for name in options[x]}
        }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.storage and not self.cluster:
            raise UserError("--storage is for --cluster; --out says where results go otherwise.")
        if self.first_seed + self.seeds > MAX_SEEDS:
            raise UserError(
                f"--first-seed {self.first_seed} and --seeds {self.seeds} go past seed "
                f"{MAX_SEEDS - 1}, the last one; choose smaller numbers."
            )
        self.part()
        if self.temperature == "pooled" and (self.shard or self.cluster):
            raise UserError(
                "--temperature pooled waits for all runs of a game; it is not for --shard or "
                "--cluster."
            )
        self._check_settings()

    def part(self) -> tuple[int, int]:
        """The shard as (number from 0, of how many)."""
        if self.shard is None:
            return 0, 1
        number, _, total = self.shard.partition("/")
        if not (number.isdigit() and total.isdigit() and 0 < int(number) <= int(total)):
            raise UserError(f"--shard {self.shard} is not I/N with I from 1 to N, as 1/16.")
        if self.tune:
            raise UserError("--tune chooses among all trials; tune without --shard.")
        return int(number) - 1, int(total)

    def find_methods(self) -> "list[Variant]":
        """The methods to compare, a variant counting as one."""
        from gsf.sweep import variants

        chosen = preset_values("train", self.preset) | options_of("train", self.options)
        return variants.find_all(self.methods, chosen.get("on"))

    def of(
        self, variant: "Variant", chosen: Sequence[str] = (), fixed: Sequence[str] = ()
    ) -> "RunConfig":
        """With more options. Each overrides those before it: those that tuning has `chosen`, the
        user's, the variant's own, `fixed`."""
        ahead, behind = dict(map(parse, chosen)), dict(map(parse, (*variant.settings, *fixed)))
        return replace(self, options={**ahead, **self.options, **behind})

    def stage(self, name: str, variant: "Variant | None" = None, **given: Any) -> Any:
        """A stage's options: its defaults, the preset's, those given here, then `options`."""
        if issubclass(STAGES[name], CodedOptions):
            given["accept_code_change"] = self.accept_code_change
        for option in fields(STAGES[name]):
            if option.default is option.default_factory:  # both are missing
                given.setdefault(option.name, Path())
        chosen = to_json(STAGES[name](**{**preset_values(name, self.preset), **given}))
        chosen |= options_of(name, self.options)
        if variant is not None:
            parts = {part: options_of(part, self.options) for part in variant.method.parts}
            chosen |= {"method": variant.method.spec, "on": variant.method.base.spec}
            chosen |= {"name": variant.name if variant.settings else None, "parts": parts}
        made = from_json(STAGES[name], chosen)
        if getattr(made, "precision", None) == "auto":
            raise UserError(
                f"{name}.precision=auto: each run would choose by itself, and those of a "
                "comparison need the same; choose float32 or bf16."
            )
        return made

    def resolved(self) -> "RunConfig":
        """With every option of stages and of methods' parts that no tuning is to choose."""
        options = dict(self.options)
        owners = {} if self.tune else {"train": self.stage("train")}
        owners |= {name: self.stage(name) for name in STAGES if name != "train"}
        for variant in () if self.tune else self.find_methods():
            for name, part in variant.method.parts.items():
                owners[name] = from_json(part.value.Config, options_of(name, self.options))
        for owner, config in owners.items():
            left_out = (*GIVEN.get(owner, ()), "accept_code_change")
            values = to_json(config).items()
            options |= {f"{owner}.{x}": value for x, value in values if x not in left_out}
        return replace(self, options=options)

    def _check_settings(self) -> None:
        from gsf.learn import bases, losses

        known = dict(STAGES)
        for variant in self.find_methods():
            known |= variant.owners
        for name in self.options:
            owner = name.partition(".")[0]
            if owner not in known and owner in (*bases.names(), *losses.names()):
                raise UserError(f"--{name}: none of the methods of this run uses {owner}.")
            check(name, f"--{name}", known)
