"""Evaluation rows of runs, one per (game, method, seed, step, split, level, mode), gathered.

Runs that cannot be used are left out and named: one bad run must neither end a report of 500 nor be
hidden. What becomes of the rows is in scores.py.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gsf.core.errors import UserError
from gsf.core.results import Stage, find_stages
from gsf.core.stage import is_whole, read_manifest
from gsf.evaluation.rows import COLUMNS, REFERENCES, check_rows, read_returns

RUN = ["game", "method", "seed"]


def gather(paths: Sequence[Path]) -> tuple[pd.DataFrame, list[str]]:
    """All rows at or below run directories, sweep directories or CSV files, and what was wrong."""
    parts: list[pd.DataFrame] = []
    problems: list[str] = []
    owner: dict[tuple[Any, ...], Path] = {}
    settings: dict[tuple[Any, ...], tuple[Path, Mapping[str, Any]]] = {}  # of a game and method
    for source in _sources(paths, problems):
        if _only_held_out(source.path):  # judged without play: sections/held_out.py
            continue
        try:
            rows = _read(source, problems)
        except UserError as error:
            problems.append(f"{error} Skipped.")
            continue
        given = _settings(source)
        for run, group in rows.groupby(RUN, observed=True, sort=True):
            first, others = settings.setdefault(run[:2], (source.path, given))
            differing = [k for k in given if k in others and given[k] != others[k]]
            if differing:
                option = differing[0]
                problems.append(
                    f"{source.path} has {option}={given[option]} where {first} has "
                    f"{others[option]}: not a seed of the same {run[1]}, skipped."
                )
            elif owner.setdefault(run, source.path) != source.path:
                problems.append(
                    f"{source.path} repeats run {run[0]}/{run[1]}/seed{run[2]} of {owner[run]}: "
                    "skipped."
                )
            else:
                parts.append(group)
    if not parts:
        return pd.DataFrame(columns=COLUMNS), problems
    rows = pd.concat([part.astype({"game": str, "method": str}) for part in parts])
    return check_rows(rows.reset_index(drop=True), "the runs"), problems


def _sources(paths: Sequence[Path], problems: list[str]) -> Iterator[Stage]:
    """CSV files, directories with rows, and runs, which should have some."""
    for path in map(Path, paths):
        is_file = path.is_file()
        found = [Stage(path, {"kind": "rows"})] if is_file else list(find_stages([path]))
        if not found:
            problems.append(f"{path}: no run found there.")
        yield from (stage for stage in found if stage.kind in ("run", "rows", ""))


def _only_held_out(directory: Path) -> bool:
    return (directory / "held_out.csv").is_file() and not (directory / "returns.csv").is_file()


def _read(source: Stage, problems: list[str]) -> pd.DataFrame:
    directory = source.path
    file = directory if directory.is_file() else directory / "returns.csv"
    if source.kind == "rows":
        return read_returns(file)
    if not (directory / "manifest.json").is_file():
        raise UserError(f"{directory} is half-written: it has no manifest.json.")
    manifest = read_manifest(directory, "run", whole=False)
    if not file.is_file():
        raise UserError(f"{directory} has not been evaluated: it has no returns.csv.")
    rows = read_returns(file)
    for name in RUN:
        if name in manifest and set(rows[name]) != {manifest[name]}:
            raise UserError(
                f"{file} has rows of another {name} than the run's own {manifest[name]!r}."
            )
    if manifest.get("difficulty") == "hard":
        problems.append(
            f"{directory} plays hard levels: min-max scores use the ranges of easy ones."
        )
    if not is_whole(directory, manifest):
        problems.append(f"{directory} is still training: used up to step {rows['step'].max()}.")
    return rows


def _settings(source: Stage) -> dict[str, Any]:
    """Options and code that all seeds of a method must share in a game."""
    if source.kind != "run":
        return {}
    options = source.manifest.get("options", {})
    own = {"seed", "grad_steps", "keep"}
    shared = {name: value for name, value in options.items() if name not in own}
    code = {name: x for name, x in source.inputs.items() if name != "labels"}
    return {**code, **shared}


def missing_runs(
    rows: pd.DataFrame,
    games: Iterable[str] | None = None,
    methods: Iterable[str] | None = None,
    seeds: Iterable[int] | None = None,
) -> list[str]:
    """Runs of games x methods x seeds without rows, as game/method/seed<k>.

    The grid is the rows' own where it is not given; references have no grid.
    """
    trained = rows[~rows["method"].isin(REFERENCES)]
    have = set(map(tuple, trained[RUN].drop_duplicates().to_numpy().tolist()))
    grid = [
        sorted(set(trained[name])) if given is None else list(given)
        for name, given in zip(RUN, (games, methods, seeds), strict=True)
    ]
    wanted = [run for run in itertools.product(*grid) if run not in have]
    return [f"{game}/{method}/seed{seed}" for game, method, seed in wanted]
