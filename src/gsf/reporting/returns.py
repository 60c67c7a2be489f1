"""Evaluation rows, one per (game, method, seed, step, split, level, mode): read and checked.

`gather` reads run directories and names what it cannot use instead of failing: a report of 500
runs must not die of one, nor hide it. What becomes of the rows is in scores.py.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gsf.core.errors import UserError
from gsf.core.stage import is_whole, read_manifest
from gsf.evaluation.rows import COLUMNS, check_rows, read_returns

REFERENCES = ("random", "behaviour")  # not trained here: no grid of seeds, no last step to reach


_BASELINES = ("bc", "cql", "curl", "ctrl", "deepmdp", "vpn", "cssc", "pse")


_CUMULANTS = ("gsf-reward", "gsf-successor", "gsf-action")


_RUN = ["game", "method", "seed"]


_TRACES = ("checkpoint.pt", "metrics.jsonl", "returns.csv", "DONE")  # of a run, whole or not


def in_order(methods: Iterable[str]) -> list[str]:
    """References, baselines in the paper's order, new methods, GSF: the same in every result."""
    known = {name: i for i, name in enumerate((*REFERENCES, *_BASELINES, *_CUMULANTS))}
    return sorted(set(methods), key=lambda m: (m.startswith("gsf"), known.get(m, len(known)), m))


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """Run directories at or below the paths, whole or not, and directories with a bare returns.csv.

    Directories of other stages (datasets, labels, reports: their manifest says so) are not entered.
    """
    found: dict[Path, None] = {}
    for path in paths:
        found.update(dict.fromkeys(_walk(Path(path))))
    return list(found)


def _walk(path: Path) -> Iterator[Path]:
    for name, folders, files in os.walk(path):
        directory = Path(name)
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        if _is_bare(files):
            yield directory.resolve()
        elif "manifest.json" in files or any(trace in files for trace in _TRACES):
            folders.clear()
            if _kind(directory) in ("run", None):
                yield directory.resolve()


def _is_bare(files: Iterable[str]) -> bool:
    """Only rows, no run: OUT/<game>/returns.csv of random and behaviour, with runs below."""
    return "returns.csv" in files and not {"manifest.json", "checkpoint.pt", "metrics.jsonl"} & set(
        files
    )


def _kind(directory: Path) -> str | None:
    """What its manifest says a directory holds; None where nothing readable says it."""
    try:
        kind = json.loads((directory / "manifest.json").read_text())["kind"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(kind)


def gather(paths: Sequence[Path]) -> tuple[pd.DataFrame, list[str]]:
    """All rows at or below run directories, sweep directories or CSV files, and what was wrong."""
    parts: list[pd.DataFrame] = []
    problems: list[str] = []
    owner: dict[tuple[Any, ...], str] = {}
    settings: dict[tuple[Any, ...], tuple[Path, Mapping[str, Any]]] = {}  # of a game and method
    for path in paths:
        sources = [Path(path)] if Path(path).is_file() else find_runs([path])
        if not sources:
            problems.append(f"{path}: no run found there.")
        for source in sources:
            try:
                rows, said = (read_returns(source), []) if source.is_file() else _read(source)
            except UserError as error:
                problems.append(f"{error} Skipped.")
                continue
            problems += said
            fresh = []
            given = _settings(source)
            for run, group in rows.groupby(_RUN, observed=True, sort=True):
                first, others = settings.setdefault(run[:2], (source, given))
                if differing := [k for k in given if k in others and given[k] != others[k]]:
                    option = differing[0]
                    problems.append(
                        f"{source} has {option}={given[option]} where {first} has "
                        f"{others[option]}: not a seed of the same {run[1]}, skipped."
                    )
                    continue
                if owner.setdefault(run, str(source)) == str(source):
                    fresh.append(group)
                else:
                    problems.append(
                        f"{source} repeats run {run[0]}/{run[1]}/seed{run[2]} of {owner[run]}: "
                        "skipped."
                    )
            parts += fresh
    if not parts:
        return pd.DataFrame(columns=COLUMNS), problems
    rows = pd.concat([part.astype({"game": str, "method": str}) for part in parts])
    return check_rows(rows.reset_index(drop=True), "the runs"), problems


def _read(directory: Path) -> tuple[pd.DataFrame, list[str]]:
    """The rows of one directory, and what is to be said about it although it can be used."""
    file = directory / "returns.csv"
    if _is_bare(os.listdir(directory)):
        return read_returns(file), []
    if not (directory / "manifest.json").is_file():
        raise UserError(f"{directory} is half-written: it has no manifest.json.")
    manifest = read_manifest(directory, "run", whole=False)
    if not file.is_file():
        raise UserError(f"{directory} has not been evaluated: it has no returns.csv.")
    rows = read_returns(file)
    for name in _RUN:
        if name in manifest and set(rows[name]) != {manifest[name]}:
            raise UserError(
                f"{file} has rows of another {name} than the run's own {manifest[name]!r}."
            )
    said = []
    if manifest.get("difficulty") == "hard":
        said.append(f"{directory} plays hard levels: min-max scores use the ranges of easy ones.")
    if not is_whole(directory, manifest):
        said.append(f"{directory} is still training: used up to step {rows['step'].max()}.")
    return rows, said


def _settings(source: Path) -> dict[str, Any]:
    """What all seeds of a method share in a game, as far as a run says it."""
    if _kind(source) != "run":
        return {}
    manifest = read_manifest(source, "run", whole=False)
    shared = set(manifest["decisive"]) - {"seed", "grad_steps", "keep"}
    chosen = {name: value for name, value in manifest["config"].items() if name in shared}
    return {"dataset": manifest.get("inputs", {}).get("dataset"), **chosen}


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
    have = set(map(tuple, trained[_RUN].drop_duplicates().to_numpy().tolist()))
    columns = (games, methods, seeds)
    grid = [
        sorted(set(trained[name])) if given is None else list(given)
        for name, given in zip(_RUN, columns, strict=True)
    ]
    return [
        f"{game}/{method}/seed{seed}"
        for game in grid[0]
        for method in grid[1]
        for seed in grid[2]
        if (game, method, seed) not in have
    ]
