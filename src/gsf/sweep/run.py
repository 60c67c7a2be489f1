"""Stage: everything, for games x methods x seeds, here or on a Ray cluster.

Out: <game>/dataset, gvf-*, labels-*, <method>/seed<k> (runs with their returns.csv), report/; with
--tune also tuning/<game>/<method>/trial<k> and tuning/trials.csv. Every stage is skipped where its
output is complete and resumed where it was killed, so that the same command goes on. A run that
fails is named in the table; the others go on.
"""

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from gsf.behaviour.policy import load_policy
from gsf.core.errors import UserError
from gsf.core.files import write_atomic
from gsf.core.logs import console
from gsf.core.options import from_json, require_positive, to_json
from gsf.core.presets import Preset, preset_values
from gsf.core.stage import Identity
from gsf.data.materialise import MaterialiseConfig, materialise
from gsf.data.recording import SHIPPED, Recording, list_shipped
from gsf.evaluation.evaluate import EvaluateConfig, evaluate
from gsf.evaluation.rows import MODES
from gsf.gvf import cumulants
from gsf.gvf.fit import FitConfig, fit
from gsf.gvf.label import LabelConfig, label
from gsf.learn import bases, losses, methods
from gsf.learn.methods import Method
from gsf.learn.train import TrainConfig, train
from gsf.reporting import stats
from gsf.reporting.gather import gather
from gsf.reporting.scores import scores
from gsf.suites.procgen import GAMES, find_game
from gsf.sweep import tune
from gsf.sweep.workers import run_all

STAGES: dict[str, Any] = {
    "materialise": MaterialiseConfig,
    "fit": FitConfig,
    "label": LabelConfig,
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
}


@dataclass(frozen=True)
class RunConfig:
    """Compare methods: materialise, fit, label, train, evaluate and report, resumable."""

    out: Path = Path("results/run")
    """Directory of all results; the same command goes on where it was stopped."""
    preset: Preset = "laptop"
    """Sizes of every stage: smoke (a minute), laptop (15 minutes), study (CPU days), paper."""
    games: tuple[str, ...] = ()
    """Games (`all` for every one); by default those with a shipped recording."""
    methods: tuple[str, ...] = ("bc", "cql", "gsf-reward")
    """Methods (`all` for every one); your own as file.py:Name, gsf-file.py:cumulant."""
    seeds: int = 1
    """Seeds 0..seeds-1 of every method."""
    recordings: tuple[str, ...] = ()
    """Recording files, or names of shipped ones (coinrun-early); each says its game itself."""
    set: tuple[str, ...] = ()
    """Any option of a stage, a base or a loss: train.grad_steps=1000 cql.alpha=4 gsf.tau=0.1 ..."""
    tune: int | None = None
    """First try four settings of every method for so many gradient steps; a game's validation
    levels choose. What --set says stays as it is."""
    workers: int = 1
    """Runs at a time, each in a process with its share of the cores; each writes <run>.log."""
    ray: bool = False
    """Spread the runs over a Ray cluster (pip install 'gsf[cluster]') that shares this disk."""
    report: bool = True
    """Write report.html at the end."""

    def __post_init__(self) -> None:
        require_positive(self, "seeds", "tune", "workers")
        self._check_settings()

    def find_methods(self) -> list[Method]:
        chosen = dict(preset_values("train", self.preset))
        chosen |= {
            x: value for owner, x, value in map(_parse_setting, self.set) if owner == "train"
        }
        return methods.find_all(self.methods, chosen.get("on"))

    def stage(self, name: str, method: Method | None = None, **given: Any) -> Any:
        """A stage's options: its defaults, the preset's, those given, then --set."""
        chosen = to_json(STAGES[name](**{**preset_values(name, self.preset), **given}))
        parts = {} if method is None else {x.name: role for role, x in method.parts.items()}
        for owner, option, value in map(_parse_setting, self.set):
            if owner == name:
                chosen[option] = value
            elif owner in parts:
                role = parts[owner]
                chosen[role] = {**(chosen[role] or {}), option: value}
        if method is not None:
            chosen |= {"method": method.spec, "on": method.base.spec}
        return from_json(STAGES[name], chosen)

    def _check_settings(self) -> None:
        known = {name: bases.find(name).value.Config for name in bases.names()}
        known |= {name: losses.find(name).value.Config for name in losses.names()}
        for method in self.find_methods():
            known |= {part.name: part.value.Config for part in method.parts.values()}
        known |= STAGES
        for word in self.set:
            owner, option, _ = _parse_setting(word)
            if owner not in known:
                raise UserError(f"--set {word}: choose an owner among {', '.join(known)}.")
            options = [field.name for field in fields(known[owner])]
            if option not in options:
                raise UserError(
                    f"--set {word}: {owner} has no option {option}, but {', '.join(options)}."
                )


def _parse_setting(word: str) -> tuple[str, str, Any]:
    key, given, text = word.partition("=")
    owner, _, option = key.partition(".")
    if not (given and owner and option):
        raise UserError(f"--set {word} is not owner.option=value.")
    try:
        return owner, option, json.loads(text)
    except ValueError:
        return owner, option, text


@dataclass(frozen=True)
class Job:
    """One method and seed on one game's dataset."""

    game: str
    method: str  # as the user wrote it
    seed: int
    home: Path  # directory of the game
    out: Path  # directory of the run
    config: RunConfig

    def __str__(self) -> str:
        return f"{self.game} {self.out.parent.name} {self.out.name}"

    def _find(self) -> Method:
        [method] = replace(self.config, methods=(self.method,)).find_methods()
        return method

    def __call__(self) -> str | None:
        """Trains and evaluates; returns what went wrong, if it is the run's own fault."""
        try:
            labels = self.labels()
            data = self.home / "dataset"
            run = train(
                self.config.stage(
                    "train", self._find(), dataset=data, out=self.out, labels=labels, seed=self.seed
                )
            )
            evaluate(self.config.stage("evaluate", agent=str(run)))
        except UserError as error:
            return str(error)
        return None

    @property
    def _fit(self) -> FitConfig | None:
        """The fit whose labels the method needs: one for all seeds, unless chance has a part."""
        method = self._find()
        if method.cumulant is None:
            return None
        fitted: FitConfig = self.config.stage("fit", dataset=self.home / "dataset", out=Path())
        by_chance = fitted.estimator == "td" or cumulants.find(method.cumulant).value.random
        seed, ending = (self.seed, f"-seed{self.seed}") if by_chance else (0, "")
        name = f"gvf-{method.labels_of}-{fitted.estimator}{ending}"
        return replace(fitted, cumulant=method.cumulant, seed=seed, out=self.home / name)

    @property
    def fitted(self) -> Path | None:
        """Where that fit is, whoever makes it."""
        return None if self._fit is None else self._fit.out

    def labels(self) -> Path | None:
        if self._fit is None:
            return None
        gvf = fit(self._fit)
        out = gvf.with_name(gvf.name.replace("gvf-", "labels-", 1))
        return label(self.config.stage("label", gvf=gvf, out=out))


def run(config: RunConfig) -> Path:
    """Everything from recordings to the report, for games x methods x seeds; returns `out`.

    run(RunConfig(out=Path("results"), games=("coinrun",), methods=("cql", "gsf-reward"), seeds=3))
    """
    compared = config.find_methods()
    if config.tune and not config.stage("evaluate", agent="").n_validation:
        raise UserError("--tune needs validation levels: add evaluate.n_validation=50 to --set.")
    if config.tune and config.stage("train", dataset=Path(), out=Path()).released:
        raise UserError("--tune would undo train.released=true; leave one of them out.")
    recordings = _recordings(config)
    for game, recording in recordings.items():
        home = config.out / game
        materialise(config.stage("materialise", recording=recording, out=home / "dataset"))
        _reference_rows(config, game, recording)
    chosen = _tune(config, list(recordings), compared) if config.tune else {}
    jobs = [
        Job(
            game,
            method.spec,
            seed,
            config.out / game,
            config.out / game / method.name / f"seed{seed}",
            replace(config, set=(*chosen.get((game, method.name), ()), *config.set)),
        )
        for seed, game, method in itertools.product(range(config.seeds), recordings, compared)
    ]
    failures = _do(jobs, config)
    for job, failure in failures.items():
        console.print(f"[red]failed:[/] {job}: {failure}", soft_wrap=True)
    print_summary(config.out)
    if config.report:
        from gsf.reporting.report import ReportConfig, report

        page = report(
            ReportConfig(
                runs=(config.out,),
                out=config.out / "report",
                games=tuple(recordings),
                methods=tuple(method.name for method in compared),
                seeds=config.seeds,
            )
        )
        print(f"open {page}")
    if failures:
        raise UserError(f"{len(failures)} of {len(jobs)} runs failed; the others are in the table.")
    return config.out


def _tune(
    config: RunConfig, games: Sequence[str], compared: Sequence[Method]
) -> dict[tuple[str, str], tuple[str, ...]]:
    """(game, method) -> the settings that did best on the game's validation levels."""
    out = config.out / "tuning"
    if not (out / "manifest.json").is_file():  # it keeps these runs out of reports
        Identity("tuning").write(out)
    fixed = (
        *config.set,
        f"train.grad_steps={config.tune}",
        "train.keep=1",
        "evaluate.all=false",
        'evaluate.splits=["validation"]',
    )
    jobs = {
        Job(
            game,
            method.spec,
            tune.SEED,
            config.out / game,
            out / game / method.name / f"trial{number}",
            replace(config, set=(*trial, *fixed)),
        ): (number, trial)
        for game, method in itertools.product(games, compared)
        for number, trial in enumerate(_trials(config, method))
    }
    failures = _do(list(jobs), config)
    for job, failure in failures.items():  # a setting that breaks is named, and not chosen
        console.print(f"[red]failed:[/] tuning {job}: {failure}", soft_wrap=True)
    rows = [
        pd.read_csv(job.out / "returns.csv").assign(trial=number, setting=" ".join(trial))
        for job, (number, trial) in jobs.items()
        if job not in failures
    ]
    if not rows:
        raise UserError("every trial of the tuning failed; the reasons are above.")
    assert config.tune is not None
    table = tune.choose(pd.concat(rows), config.tune)
    write_atomic(out / "trials.csv", table.to_csv(index=False))
    best = table.loc[table["chosen"], ["game", "method", "setting"]].to_numpy().tolist()
    for game, method, setting in best:
        console.print(f"tuned {game} {method}: {setting}", highlight=False)
    return {(game, method): tuple(setting.split()) for game, method, setting in best}


def _trials(config: RunConfig, method: Method) -> list[tuple[str, ...]]:
    """The method's trials, less what --set has decided."""
    decided = {word.partition("=")[0] for word in config.set}
    found = tune.trials(config.stage("train", method, dataset=Path(), out=Path()))
    left = (tuple(w for w in trial if w.partition("=")[0] not in decided) for trial in found)
    return list(dict.fromkeys(left))


def _do(jobs: Sequence[Job], config: RunConfig) -> dict[Job, str]:
    """Runs the jobs; returns the reasons of those that failed."""
    if config.ray or config.workers > 1:
        by_fit = {job.fitted: job for job in jobs if job.fitted}
        wanted = Counter(job.fitted for job in jobs)
        for job in (job for fitted, job in by_fit.items() if wanted[fitted] > 1):
            with contextlib.suppress(UserError):  # the job itself will say so
                job.labels()  # that several jobs would race for
    return run_all(jobs, config.workers, config.ray)


def _recordings(config: RunConfig) -> dict[str, str]:
    """Game -> recording, of the games asked for."""
    given = config.recordings or tuple(p.stem for p in list_shipped() if p.stem in GAMES)
    found: dict[str, str] = {}
    for name in given:
        game = Recording.load(name).game
        if game in found:
            raise UserError(
                f"{found[game]} and {name} are both of {game}; `gsf data join` makes them one."
            )
        found[game] = name
    games = tuple(GAMES) if config.games == ("all",) else config.games or tuple(found)
    if not games:
        raise UserError("no recordings are shipped with this build; name some with --recordings.")
    for game in games:
        find_game(game)
        if game not in found:
            raise UserError(
                f"no recording of {game} is shipped; make one with `gsf collect --game {game}` "
                "and name it with --recordings."
            )
    return {game: found[game] for game in games}


def _reference_rows(config: RunConfig, game: str, recording: str) -> None:
    """Random play and, where its weights are at hand, the policy that was recorded."""
    data = config.out / game / "dataset"
    out = config.out / game / "random" / "returns.csv"
    config = replace(config, set=(*config.set, "evaluate.all=false"))  # they have one network
    evaluate(config.stage("evaluate", agent="random", game=game, dataset=data, out=out))
    policy = _policy_of(recording)
    if policy is None:
        console.print(f"the policy that played {recording} is not at hand: no behaviour row.")
        return
    out = config.out / game / "behaviour" / "returns.csv"
    evaluate(config.stage("evaluate", agent=str(policy), dataset=data, out=out))


def _policy_of(recording: str) -> Path | None:
    """The shipped policy, or the one beside a recording if it is the one that was recorded."""
    shipped, beside = SHIPPED / f"{recording}.policy.pt", Path(recording).with_name("policy.pt")
    if shipped.is_file():
        return shipped
    played = {take.policy.get("digest") for take in Recording.load(recording).takes}
    if beside.is_file() and {load_policy(beside).provenance["digest"]} == played:
        return beside
    return None


def print_summary(out: Path) -> None:
    """Returns of every method on seen and unseen levels, with intervals, failures not hidden."""
    rows, problems = gather([out])
    if len(rows):
        titles = {"seen": "seen levels", "unseen": "unseen levels"}
        splits = {split: title for split, title in titles.items() if split in set(rows["split"])}
        for mode in MODES:
            table = Table(
                title=f"mean return, {mode} actions, 95 % intervals over seeds and levels"
            )
            for heading in ("game", "method", *splits.values(), "seeds"):
                table.add_column(heading)
            for cells in _summary_cells(rows, mode, list(splits)):
                table.add_row(*cells)
            Console().print(table)
    for problem in problems:
        console.print(f"[yellow]{problem}[/]", soft_wrap=True, highlight=False)


def _summary_cells(rows: pd.DataFrame, mode: str, splits: list[str]) -> list[list[str]]:
    found: dict[tuple[str, str, int], dict[str, str]] = {}
    for split in splits:
        tidy = stats.per_game(stats.bootstrap(scores(rows, split, mode)), raw=True)
        for row in tidy.to_dict("records"):
            cell = f"{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
            found.setdefault((row["game"], row["method"], row["n_seeds"]), {})[split] = cell
    return [
        [game, method, *(cells.get(split, "-") for split in splits), str(n_seeds)]
        for (game, method, n_seeds), cells in found.items()
    ]
