"""Stage: runs -> report.html, figures (PNG, SVG) and tables (CSV, Markdown, LaTeX); spec section 9.

Works while runs are still going: what is missing or broken is named on the page, the rest is
reported. Same inputs, same bytes. Torch and Procgen are imported late, and only for what needs them
(neighbours, films, theorems); without them the page says so.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import tyro
from rich.markup import escape

from gsf.core.errors import UserError
from gsf.core.files import digest_file, write_atomic
from gsf.core.logs import console
from gsf.core.options import require_positive, to_json
from gsf.core.stage import Identity
from gsf.evaluation.rows import SPLITS
from gsf.reporting import exhibits, headline, page, plots, provenance, stats, tables
from gsf.reporting.artifacts import Artifacts
from gsf.reporting.returns import REFERENCES, gather, missing_runs
from gsf.reporting.scores import scores
from gsf.reporting.sources import Sources, require_report
from gsf.reporting.stats import STATISTICS, Replicates, bootstrap
from gsf.suites import known_facts


@dataclass(frozen=True)
class ReportConfig:
    """Compare runs: a page that opens without a network, and its figures and tables as files."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories, directories of a `gsf run`, or CSV files of `gsf evaluate`; also those of
    `gsf collect`, for its learning curve, and of `gsf similar`, for its figure."""
    out: Path
    """Directory of the report; one that is there is brought up to date."""
    split: Literal["unseen", "validation", "seen"] = "unseen"
    """Levels of the headline, and of every figure and table that does not say another."""
    mode: Literal["greedy", "sampled"] = "greedy"
    """Actions of the headline: the best one, or drawn at temperature 1."""
    baseline: str = "cql"
    """What methods are compared with."""
    replicates: int = 2000
    """Bootstrap replicates behind every interval."""
    videos: bool = True
    """Film strips of every agent on the same unseen levels; needs Procgen and torch."""
    video_steps: int = 256
    """Steps of play in a film."""
    explorer: bool = True
    """Neighbours of observations under every method's embedding; needs torch and the dataset."""
    explorer_sample: int = 2000
    """Observations per game that neighbours are looked for among."""
    ablations: Path | None = None
    """Directory of <option>/<setting>/ with runs of one method each (K/3, K/7, tau/0.5, ...)."""
    games: tuple[str, ...] = ()
    """Runs expected, games x methods x seeds: those without results are named. Default: as found"""
    methods: tuple[str, ...] = ()
    """See --games."""
    seeds: int | None = None
    """See --games: seeds 0..seeds-1."""

    def __post_init__(self) -> None:
        require_positive(self, "replicates", "video_steps", "explorer_sample", "seeds")
        for path in self.runs:
            if not path.exists():
                raise UserError(f"there is no {path} to report on.")
        if not self.runs:
            raise UserError("name the runs to report on.")


@dataclass(frozen=True)
class Results:
    """Bootstrapped returns: of the headline, of seen levels, and of the other way to act."""

    rows: pd.DataFrame
    unseen: Replicates
    seen: Replicates | None
    other_mode: Replicates | None


def report(config: ReportConfig) -> Path:
    """Compares runs: report.html, and its tables and figures as files; returns the page's path.

    report(ReportConfig((Path("results/laptop"),), out=Path("report")))
    """
    stale = require_report(config.out)
    sources = Sources(config.runs)
    rows, problems = gather([path for path in config.runs if not sources.only_others(path)])
    if not len(rows) and not sources.of("run"):
        raise UserError(f"no run found in {', '.join(map(str, config.runs))}. {' '.join(problems)}")
    # First of all: a later report over the same directories must not take this one for runs.
    Identity.of("report", config, {}).write(config.out, files=stale)
    made = Artifacts(config.out, config.runs)
    made.problems += problems
    results = _results(rows, config, made)
    document = page.Page(_title(results, sources))
    _lead(document, results, config)
    if results is not None:
        overall = _aggregates(results, made)
        document.add("results", "Results", overall, *_figures(results, config, made))
        document.add("tables", "Tables", *_tables(results, config, made))
    runs = exhibits.best_known(sources)
    if config.videos:
        document.add(
            "films",
            "On unseen levels",
            *exhibits.films(runs, sources, rows, config.mode, config.video_steps, made),
        )
    if config.explorer:
        parts, data = exhibits.explorer(runs, sources, config.explorer_sample, made)
        document.add("explorer", "Explorer", *parts)
        document.data["explorer"] = data
    document.add("method", "Data and method", *exhibits.method(sources, made, config.baseline))
    made.problems += _unplayed(rows, sources)
    missing = _missing(rows, results, config, made)
    if missing:
        document.lead.append('<p><a href="#missing">Not everything is there yet.</a></p>')
    nothing = "Nothing: every run found is complete and in every number above."
    document.add("missing", "What is missing", page.bullets(missing) or page.paragraph(nothing))
    document.add("made", "How it was made", *provenance.provenance(sources, made, _shown(config)))
    target = config.out / "report.html"
    write_atomic(target, document.render())
    _finish(config, sources, made, stale)
    console.print(f"{target}: {target.stat().st_size / 1e6:.1f} MB", soft_wrap=True)
    return target


def _finish(config: ReportConfig, sources: Sources, made: Artifacts, stale: list[str]) -> None:
    """The manifest, and away with files of an earlier report that this one does not have."""
    for name in set(stale) - set(made.files):
        if Path(name).parts[0] in ("figures", "tables") and ".." not in Path(name).parts:
            (config.out / name).unlink(missing_ok=True)
    inputs = {str(run.path): str(run.manifest.get("digest")) for run in sources.of("run")}
    page_digest = digest_file(config.out / "report.html")
    Identity.of("report", config, inputs).write(
        config.out, page_digest, files=sorted(made.files), page=page_digest
    )


def _results(rows: pd.DataFrame, config: ReportConfig, made: Artifacts) -> Results | None:
    """None while there are no rows at all; another split where the one asked for has none."""

    def find(split: str, mode: str) -> Replicates | None:
        here = rows[(rows["split"] == split) & (rows["mode"] == mode)]
        trained = len(here) and not here["method"].isin(REFERENCES).all()
        if not trained:
            return None
        return bootstrap(scores(rows, split, mode), n=config.replicates)

    for split in dict.fromkeys((config.split, *reversed(SPLITS))):
        unseen = find(split, config.mode)
        if unseen is None:
            made.problems.append(f"No run has {split} rows with {config.mode} actions.")
            continue
        seen = find("seen", config.mode) if split != "seen" else None
        other = "sampled" if config.mode == "greedy" else "greedy"
        return Results(rows, unseen, seen, find(split, other))
    return None


def _shown(config: ReportConfig) -> dict[str, Any]:
    """What decides the page: not where it is written."""
    options: dict[str, Any] = to_json(config)
    return {k: v for k, v in options.items() if k != "out"} | {
        "runs": [str(path.resolve()) for path in config.runs]
    }


def _title(results: Results | None, sources: Sources) -> str:
    names = results.unseen.scores.games if results else sorted(_names(sources))
    shown = ", ".join(names) if len(names) <= 4 else f"{len(names)} games"
    return f"gsf report: {shown}" if shown else "gsf report"


def _names(sources: Sources) -> set[str]:
    return {str(run.manifest.get("game")) for run in sources.of("run")}


def _lead(document: page.Page, results: Results | None, config: ReportConfig) -> None:
    if results is None:
        waiting = "No returns yet: evaluate the runs (gsf evaluate), then report again."
        document.lead.append(page.paragraph(waiting, "headline"))
        return
    document.lead.append(page.paragraph(headline.headline(results.unseen), "headline"))
    document.lead.append(page.paragraph(headline.warning(results.unseen), "warning"))
    lines = headline.support(results.unseen, results.seen, config.baseline)
    document.lead += [page.paragraph(line) for line in lines]


_OVERALL: Any = {"index": "method", "columns": "statistic"}


def _aggregates(results: Results, made: Artifacts) -> str:
    source = results.unseen.scores
    title = f"Aggregate {source.unit}, {source.split} levels"
    return made.table("aggregates", title, lambda: stats.aggregates(results.unseen), **_OVERALL)


def _figures(results: Results, config: ReportConfig, made: Artifacts) -> Iterator[str]:
    unseen, seen, baseline = results.unseen, results.seen, config.baseline
    split = unseen.scores.split
    yield made.figure(
        "intervals",
        "Aggregate scores",
        "Interquartile mean, mean and median over runs and games: bars are 95 % intervals, the "
        "line in them the estimate.",
        lambda: plots.intervals(stats.aggregates(unseen)),
    )
    yield made.figure(
        "box",
        f"Every run against {baseline}: the paper's main figure",
        f"Return of each run divided by the median {baseline} run of its game.",
        lambda: plots.box(_ratios(unseen, baseline)),
    )
    if seen is not None:
        yield made.figure(
            "per_game",
            "Every game, seen and unseen levels",
            f"Mean return on {split} levels (filled) and on training levels (outlined).",
            lambda: plots.per_game(
                stats.per_game(seen, raw=True), stats.per_game(unseen, raw=True)
            ),
        )
        yield made.figure(
            "gap",
            "Generalization gap",
            f"Score on seen minus score on {split} levels, of the same runs.",
            lambda: plots.intervals(_gap_aggregates(seen, unseen)),
        )
    trained = results.rows[~results.rows["method"].isin(REFERENCES)]
    if trained.loc[trained["split"] == split, "step"].nunique() > 1:
        yield made.figure(
            "curves",
            "Learning curves",
            f"IQM on {split} levels of the checkpoints that were kept.",
            lambda: plots.curves(stats.curves(results.rows, split, config.mode)),
        )
    yield made.figure(
        "profiles",
        "Performance profiles",
        "Share of runs above each score.",
        lambda: plots.profiles(stats.profiles(unseen)),
    )
    yield made.figure(
        "improvement",
        f"Probability of improvement over {baseline}",
        f"That a run of the method beats a run of {baseline} in the same game.",
        lambda: plots.improvement(stats.improvement(unseen, baseline)),
        inches=5,
    )
    if config.ablations is not None:
        yield exhibits.ablations(config.ablations, made)


def _ratios(unseen: Replicates, baseline: str) -> pd.DataFrame:
    ratios = stats.ratios(unseen, baseline)
    if ratios["value"].isna().all():
        raise UserError(f"the returns of {baseline} are not above 0 in any game.")
    return ratios


def _gap_aggregates(seen: Replicates, unseen: Replicates) -> pd.DataFrame:
    gap = stats.gap(seen, unseen)
    gap = gap[gap["game"].isin(STATISTICS)].rename(columns={"game": "statistic"})
    if not len(gap):
        raise UserError("no run has results on both seen and unseen levels of all games.")
    return gap.assign(n_games=len(unseen.scores.games))


def _tables(results: Results, config: ReportConfig, made: Artifacts) -> Iterator[str]:
    unseen, seen, baseline = results.unseen, results.seen, config.baseline
    split, unit = unseen.scores.split, unseen.scores.unit

    def add(
        name: str, title: str, make: Callable[[], pd.DataFrame], note: str = "", **shape: Any
    ) -> str:
        return made.table(name, title, make, note, **shape)

    if (other := results.other_mode) is not None:
        title = f"Aggregate {unit}, {other.scores.mode} actions"
        yield add("aggregates_other_mode", title, lambda: stats.aggregates(other), **_OVERALL)
    yield add(
        "mean_returns", f"Mean return, {split} levels", lambda: stats.per_game(unseen, raw=True)
    )
    if unit != "return":
        yield add("scores", f"Min-max score, {split} levels", lambda: stats.per_game(unseen))
    if seen is not None:
        yield add(
            "mean_returns_seen", "Mean return, seen levels", lambda: stats.per_game(seen, raw=True)
        )
        title = f"Generalization gap: seen minus {split}, {unit}"
        yield add("gap", title, lambda: stats.gap(seen, unseen))
    yield add(
        "relative",
        f"(x - {baseline}) / {baseline}, beside the paper's numbers",
        lambda: _relative(unseen, baseline),
        "Columns marked (paper) are the paper's table; their mean and median are over the games "
        "that ours are over. n/a: the baseline's interval is not above 0.",
    )
    title = f"{unit.capitalize()} minus {baseline}'s, paired by level"
    yield add("differences", title, lambda: stats.differences(unseen, baseline))
    yield add(
        "improvement",
        f"Probability of improvement over {baseline}",
        lambda: stats.improvement(unseen, baseline),
        index="method",
        columns="baseline",
    )


def _relative(unseen: Replicates, baseline: str) -> pd.DataFrame:
    found = stats.relative(unseen, baseline)
    published = baseline == "cql" and any(map(known_facts, found["game"].unique()))
    return tables.beside_paper(found) if published else found


def _unplayed(rows: pd.DataFrame, sources: Sources) -> list[str]:
    """Of networks that were kept for learning curves and never played."""
    who = ["game", "method", "seed"]
    n_steps = rows.groupby(who, observed=True)["step"].nunique().to_dict()
    waiting = [
        run
        for run in sources.of("run")
        if n_steps.get(tuple(run.manifest.get(name) for name in who)) == 1
        and len(list((run.path / "checkpoints").glob("step_*.pt"))) > 1
    ]
    shown = f"{len(waiting)} runs keep networks for learning curves: play them, gsf evaluate --all."
    return [shown] if waiting else []


def _missing(
    rows: pd.DataFrame, results: Results | None, config: ReportConfig, made: Artifacts
) -> list[str]:
    seeds = range(config.seeds) if config.seeds else None
    absent = missing_runs(rows, config.games or None, config.methods or None, seeds)
    lines = list(made.problems)
    if absent:
        lines.append(f"{len(absent)} runs have no results: {', '.join(absent)}.")
    for replicates in (results.unseen, results.seen, results.other_mode) if results else ():
        if replicates is not None:
            kind = f"{replicates.scores.split} levels, {replicates.scores.mode} actions"
            lines += [f"{kind}: {note}" for note in replicates.scores.notes]
    lines = list(dict.fromkeys(map(made.brief, lines)))
    for line in lines:
        console.print(f"[yellow]missing:[/] {escape(line)}", soft_wrap=True, highlight=False)
    return lines
