"""Stage: runs -> report.html, figures (PNG, SVG) and tables (CSV, Markdown, LaTeX).

Works while runs are still going: what is missing or broken is named on the page, the rest is
reported. Same inputs, same bytes. Torch and Procgen are imported late, and only for what needs them
(neighbours, films, theorems); without them the page says so.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.markup import escape

from gsf.core.errors import UserError
from gsf.core.files import digest, digest_file, is_vacant, locked, write_atomic
from gsf.core.logs import console
from gsf.core.options import to_json
from gsf.core.results import Results, Stage
from gsf.core.stage import DONE, MANIFEST, Identity, read_manifest
from gsf.learn.legend import in_order
from gsf.reporting import headline
from gsf.reporting.gather import RUN, gather, missing_runs
from gsf.reporting.options import ReportConfig as ReportConfig
from gsf.reporting.page import Page, Part, part, text
from gsf.reporting.returns import Returns, define_scores, find_returns
from gsf.reporting.sections.explorer import Runs, explorer
from gsf.reporting.sections.films import films, play_in
from gsf.reporting.sections.held_out import gather_held_out, has_held_out, held_out
from gsf.reporting.sections.held_out import headline as held_out_headline
from gsf.reporting.sections.made import made
from gsf.reporting.sections.method import method
from gsf.reporting.sections.power import power
from gsf.reporting.sections.results import all_tables, first_look, results


def report(config: ReportConfig) -> Path:
    """Compares runs: report.html, and its tables and figures as files; returns the page's path.

    report(ReportConfig((Path("results/laptop"),), out=Path("report")))
    """
    _require_report(config.out)
    found = Results(config.runs)
    rows, problems = gather(config.runs)
    if not len(rows) and not found.of_kind("run"):
        raise UserError(f"no run found in {', '.join(map(str, config.runs))}. {' '.join(problems)}")
    rows = _without(rows, config.leave_out, problems)
    with locked(config.out):
        return _report(config, found, rows, problems)


def _without(rows: pd.DataFrame, methods: Sequence[str], problems: list[str]) -> pd.DataFrame:
    known = sorted(set(rows["method"]))
    for name in methods:
        if name not in known:
            raise UserError(f"--leave-out {name}: there is none; there are {', '.join(known)}.")
    if methods:
        problems.append(f"left out, as asked: {', '.join(methods)}.")
    return rows[~rows["method"].isin(methods)]


def _report(config: ReportConfig, found: Results, rows: pd.DataFrame, problems: list[str]) -> Path:
    stale = _require_report(config.out)
    # First of all: a later report over the same directories must not take this one for runs.
    (config.out / DONE).unlink(missing_ok=True)
    Identity.of("report", config, {}).write(config.out, in_place=True, files=stale)
    page = Page(config.out, config.runs)
    page.problems += problems
    asked = config.split, config.mode, config.baseline, config.replicates
    returns = find_returns(rows, *asked, page)
    page.title = _title(returns, found)
    judged = gather_held_out(found, page)
    page.lead = _lead(returns, judged, config.baseline, page)
    if returns is not None:
        page.add("results", "Results", results(returns, page))
        page.add("tables", "Tables", all_tables(returns, page))
        if config.power:
            page.add("power", "What could be seen", power(returns, page))
    page.add("held_out", "Held-out contexts", held_out(judged, page))
    runs = first_runs(found, config.leave_out)
    if config.videos:
        if config.env is not None:
            play_in(config.env, runs)
        parts = films(runs, found, rows, config.mode, config.video_steps, page)
        page.add("films", "On unseen levels", parts)
    if config.explorer:
        page.add("explorer", "Explorer", explorer(runs, found, config.explorer_sample, page))
    page.add("method", "Data and method", method(found, config.baseline, page))
    page.add("missing", "What is missing", [_missing(rows, judged, returns, found, config, page)])
    page.add("made", "How it was made", made(found, _shown(config), page))
    target = config.out / "report.html"
    write_atomic(target, page.render())
    _finish(config, found, page, stale)
    console.print(f"{target}: {target.stat().st_size / 1e6:.1f} MB", soft_wrap=True)
    return target


def _require_report(out: Path) -> dict[str, str]:
    """The files of the report that `out` holds already; anything else there is refused."""
    if (out / MANIFEST).is_file():
        return dict(read_manifest(out, "report", whole=False)["files"])
    if not is_vacant(out):
        raise UserError(f"{out} exists and is not a report; choose another --out.")
    return {}


def _finish(config: ReportConfig, found: Results, page: Page, stale: Iterable[str]) -> None:
    """Writes the manifest, and removes files of an earlier report that this one has not."""
    names = ["report.html", *sorted(page.files)]
    for name in set(stale) - set(names):
        if Path(name).parent in (Path("figures"), Path("tables")):
            (config.out / name).unlink(missing_ok=True)
    inputs = {str(run.path): run.digest for run in found.of_kind("run")}
    files = {name: digest_file(config.out / name) for name in names}
    identity = Identity.of("report", config, inputs)
    identity.write(config.out, digest(json.dumps(files)), in_place=True, files=files)
    identity.finish(config.out)


def first_runs(found: Results, without: Iterable[str] = ()) -> Runs:
    """Game -> method -> the run of the lowest seed that has a checkpoint."""
    first: dict[str, dict[str, Stage]] = {}
    runs = [run for run in found.of_kind("run") if (run.path / "checkpoint.pt").is_file()]
    complete = [run for run in runs if set(RUN) <= set(run.manifest)]
    wanted = [run for run in complete if run.manifest["method"] not in without]
    for run in sorted(wanted, key=lambda run: (run.manifest["seed"], run.path)):
        of_game = first.setdefault(str(run.manifest["game"]), {})
        of_game.setdefault(str(run.manifest["method"]), run)
    return {game: {m: first[game][m] for m in in_order(first[game])} for game in sorted(first)}


def _shown(config: ReportConfig) -> dict[str, Any]:
    """The options that decide the page; where it is written does not."""
    options: dict[str, Any] = to_json(config)
    return {k: v for k, v in options.items() if k != "out"} | {
        "runs": [str(path.resolve()) for path in config.runs]
    }


def _title(returns: Returns | None, found: Results) -> str:
    of_runs = sorted({str(run.manifest.get("game")) for run in found.of_kind("run")})
    games = returns.main.scores.games if returns else of_runs
    shown = ", ".join(games) if len(games) <= 4 else f"{len(games)} games"
    return f"gsf report: {shown}" if shown else "gsf report"


def _lead(returns: Returns | None, judged: pd.DataFrame, baseline: str, page: Page) -> list[Part]:
    """One sentence and one figure; then what is needed to weigh them."""
    if returns is None and len(judged):
        return [text(held_out_headline(judged), "headline")]
    if returns is None:
        waiting = (
            "No results yet: play the runs (gsf evaluate RUN) or, where there is no environment, "
            "judge them by data of other contexts (gsf evaluate RUN --held-out DATASET)."
        )
        return [text(waiting, "headline")]
    parts = [text(headline.headline(returns.main), "headline")]
    with page.attempt("no first figure"):
        parts += [x for x in first_look(returns, page) if x]
    if warning := headline.warning(returns.main):
        parts.append(text(warning, "warning"))
    parts += [text(x) for x in headline.support(returns.main, returns.seen, baseline)]
    return parts + [x for x in [define_scores(returns.main.scores)] if x]


def _unplayed(rows: pd.DataFrame, found: Results) -> list[str]:
    """One line if runs have kept networks for learning curves that were never played."""
    n_steps = rows.groupby(RUN, observed=True)["step"].nunique().to_dict()
    waiting = [
        run
        for run in found.of_kind("run")
        if n_steps.get(tuple(run.manifest.get(name) for name in RUN)) == 1
        and len(list((run.path / "checkpoints").glob("step_*.pt"))) > 1
    ]
    shown = f"{len(waiting)} runs keep networks for learning curves: play them, gsf evaluate --all."
    return [shown] if waiting else []


def _missing(
    rows: pd.DataFrame,
    judged: pd.DataFrame,
    returns: Returns | None,
    found: Results,
    config: ReportConfig,
    page: Page,
) -> Part:
    first = config.first_seed
    seeds = range(first, first + config.seeds) if config.seeds else None
    absent = missing_runs(rows, config.games or None, config.methods or None, seeds)
    lines = page.problems + _unplayed(rows, found)
    there = has_held_out(judged)
    absent = [run for run in absent if run not in there]
    if absent:
        lines.append(f"{len(absent)} runs have no results: {', '.join(absent)}.")
    for source in [replicates.scores for replicates in returns.all] if returns else []:
        kind = f"{source.split} levels, {source.actions}"
        lines += [f"{kind}: {note}" for note in source.notes]
    lines = list(dict.fromkeys(map(page.brief, lines)))
    for line in lines:
        console.print(f"[yellow]missing:[/] {escape(line)}", soft_wrap=True, highlight=False)
    if not lines:
        return text("Nothing: every run found is complete and in every number above.")
    page.lead.append(part("link", anchor="missing", words="Not everything is there yet."))
    return part("bullets", lines=lines)
