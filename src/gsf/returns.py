"""Evaluation rows, one per (game, method, seed, step, split, level, mode): read, checked, arranged.

`gather` reads run directories and names what it cannot use instead of failing: a report of 500
runs must not die of one, nor hide it. `scores` arranges one split and mode as [seeds, levels].
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gsf.games import GAMES
from gsf.runs import UserError, is_done, read_manifest

Array = NDArray[np.float64]

RUN_FORMAT = 1  # of a training run's manifest
KEYS = ["game", "method", "seed", "step", "split", "level", "mode"]
COLUMNS = [*KEYS, "return", "length", "completed"]
IDENTITY = "agent"  # one column more: a digest of what played, so that rows are never mixed up
# Options of a run that do not change what is learnt: it may go on with others.
FREE = ("dataset", "labels", "out", "device", "log_every", "checkpoint_every")
SPLITS = ("seen", "validation", "test")
MODES = ("greedy", "softmax")
REFERENCES = ("random", "behaviour")  # not trained here: no grid of seeds, no last step to reach
_BASELINES = ("bc", "cql", "curl", "ctrl", "deepmdp", "vpn", "cssc", "pse")
_CUMULANTS = ("gsf-reward", "gsf-successor", "gsf-action")

_RUN = ["game", "method", "seed"]
_TRACES = ("checkpoint.pt", "metrics.jsonl", "returns.csv", "DONE")  # of a run, whole or not


def in_order(methods: Iterable[str]) -> list[str]:
    """References, baselines in the paper's order, new methods, GSF: the same in every result."""
    known = {name: i for i, name in enumerate((*REFERENCES, *_BASELINES, *_CUMULANTS))}
    return sorted(set(methods), key=lambda m: (m.startswith("gsf"), known.get(m, len(known)), m))


def check_rows(rows: pd.DataFrame, where: str) -> pd.DataFrame:
    """The rows with their columns typed and in order; a UserError says what is wrong with them."""
    missing = [name for name in COLUMNS if name not in rows]
    if missing:
        raise UserError(f"{where} has no column {missing[0]!r}; evaluate the run again.")
    if not len(rows):
        raise UserError(f"{where} has no rows; evaluate the run again.")
    rows = rows[COLUMNS].copy()
    for name in ("seed", "step", "return", "length"):
        rows[name] = _numbers(rows[name], f"{where}: column {name!r}")
    for name in ("seed", "step"):
        rows[name] = rows[name].astype(np.int64)
    for name, known in (("split", SPLITS), ("mode", MODES)):
        unknown = sorted(set(rows[name].astype(str)) - set(known))
        if unknown:
            raise UserError(f"{where}: {name} {unknown[0]!r} is not one of {', '.join(known)}.")
    for name in ("game", "method", "level"):
        if rows[name].isna().any():
            raise UserError(f"{where}: a row has no {name}; evaluate the run again.")
    of_procgen = rows["game"].isin(list(GAMES))
    _numbers(rows.loc[of_procgen, "level"], f"{where}: column 'level'")
    if not rows["completed"].isin([True, False]).all():
        raise UserError(f"{where}: completed is neither True nor False; evaluate the run again.")
    for name in ("game", "method", "split", "mode"):
        rows[name] = rows[name].astype(str).astype("category")
    repeated = rows.duplicated(KEYS)
    if repeated.any():
        row = rows[repeated].iloc[0]
        raise UserError(
            f"{where} has two rows for {row['game']}/{row['method']}/seed{row['seed']}, "
            f"{row['split']} level {row['level']}, {row['mode']}: one episode per level and run "
            "is expected, more would be counted as runs."
        )
    return rows


def _numbers(column: pd.Series, what: str) -> pd.Series:
    numbers = pd.to_numeric(column, errors="coerce").astype(float)
    if not np.isfinite(numbers).all():
        first = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise UserError(
            f"{what} is not a finite number in row {first + 1}; evaluate the run again."
        )
    return numbers


def read_returns(path: Path) -> pd.DataFrame:
    """A returns.csv, checked."""
    return check_rows(read_table(path), str(path))


def read_table(path: Path) -> pd.DataFrame:
    """A CSV or Parquet file as it is."""
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        return pd.read_csv(path, dtype={IDENTITY: str})
    except (OSError, ValueError, ImportError) as error:  # pandas' parser errors are ValueErrors
        kind = "Parquet file" if path.suffix == ".parquet" else "CSV"
        raise UserError(f"{path} is not a readable {kind} ({type(error).__name__}).") from None


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
                rows, problem = (read_returns(source), None) if source.is_file() else _read(source)
            except UserError as error:
                problems.append(f"{error} Skipped.")
                continue
            if problem:
                problems.append(problem)
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


def _read(directory: Path) -> tuple[pd.DataFrame, str | None]:
    """The rows of one directory, and what is to be said about it although it can be used."""
    file = directory / "returns.csv"
    if _is_bare(os.listdir(directory)):
        return read_returns(file), None
    if not (directory / "manifest.json").is_file():
        raise UserError(f"{directory} is half-written: it has no manifest.json.")
    manifest = read_manifest(directory, "run", RUN_FORMAT)
    if not file.is_file():
        raise UserError(f"{directory} has not been evaluated: it has no returns.csv.")
    rows = read_returns(file)
    for name in _RUN:
        if name in manifest and set(rows[name]) != {manifest[name]}:
            raise UserError(
                f"{file} has rows of another {name} than the run's own {manifest[name]!r}."
            )
    if manifest.get("mode") == "hard":
        return rows, f"{directory} plays hard levels: its min-max scores use the easy ones' ranges."
    if is_done(directory):
        return rows, None
    return rows, f"{directory} is still training: used up to step {rows['step'].max()}."


def _settings(source: Path) -> dict[str, Any]:
    """What all seeds of a method share in a game, as far as a run says it."""
    if _kind(source) != "run":
        return {}
    manifest = read_manifest(source, "run", RUN_FORMAT)
    config, own = manifest.get("config", {}), {*FREE, "seed", "grad_steps", "keep"}
    chosen = {name: value for name, value in config.items() if name not in own}
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


@dataclass(frozen=True)
class Scores:
    """Raw returns of one split and mode at one point of training."""

    split: str
    mode: str
    returns: dict[str, dict[str, Array]]  # method -> game -> [seeds, levels]
    seeds: dict[str, dict[str, tuple[int, ...]]]
    steps: dict[str, int]  # game -> gradient steps of its trained runs
    games: tuple[str, ...]  # that aggregates are over: the ones every trained method has
    notes: tuple[str, ...]  # what is missing and was left out

    @property
    def methods(self) -> list[str]:
        """Those with runs of all `games`, which can be aggregated."""
        return [m for m, by_game in self.returns.items() if set(self.games) <= set(by_game)]

    @property
    def unit(self) -> str:
        """Imported datasets have no min-max range: then everything stays raw."""
        known = all(game in GAMES for by_game in self.returns.values() for game in by_game)
        return "min-max score" if known else "return"

    def n_seeds(self, method: str, games: Iterable[str] | None = None) -> int:
        return min(len(self.seeds[method][g]) for g in (self.games if games is None else games))

    def normalise(self, game: str, x: Array) -> Array:
        if self.unit == "return":
            return x
        return (x - GAMES[game].score_min) / (GAMES[game].score_max - GAMES[game].score_min)

    def run_means(self, method: str, game: str) -> Array:
        """[seeds]: mean over levels. One run, one number."""
        means: Array = self.returns[method][game].mean(axis=1)
        return means

    def matrix(self, method: str) -> Array:
        """[seeds, games] of normalised run means: what rliable calls scores."""
        if len({self.seeds[method][game] for game in self.games}) > 1:
            raise UserError(f"{method} lacks some seeds in some games: {' '.join(self.notes)}")
        return np.stack([self.normalise(g, self.run_means(method, g)) for g in self.games], axis=1)


def scores(
    rows: pd.DataFrame, split: str = "test", mode: str = "greedy", step: int | None = None
) -> Scores:
    """Runs at `step`, by default at `last_steps`; what is left out is in `notes`."""
    left_out: dict[str, list[str]] = {}
    part = _select(rows, split, mode, step, left_out)
    returns: dict[str, dict[str, Array]] = {}
    seeds: dict[str, dict[str, tuple[int, ...]]] = {}
    for game, group in part.groupby("game", observed=True, sort=True):
        for method, (run_seeds, values) in _by_level(group, str(game), split, left_out).items():
            returns.setdefault(method, {})[str(game)] = values
            seeds.setdefault(method, {})[str(game)] = run_seeds
    methods = in_order(returns)
    games, notes = _common_games({m: set(returns[m]) for m in methods})
    notes = [f"{why}: {', '.join(names)}." for why, names in left_out.items()] + notes
    trained = part[~part["method"].isin(REFERENCES)]
    last = trained.groupby("game", observed=True)["step"].max()
    steps = {str(game): int(step) for game, step in last.items()}
    ordered = {m: returns[m] for m in methods}
    return Scores(split, mode, ordered, seeds, steps, tuple(games), tuple(notes))


def last_steps(rows: pd.DataFrame) -> dict[str, int]:
    """Game -> the last step of trained runs that all splits and modes played there have in common.

    So a gap between splits is between the same networks, also where an evaluation was cut short.
    """
    found: dict[str, int] = {}
    trained = rows[~rows["method"].isin(REFERENCES)]
    for game, group in trained.groupby("game", observed=True):
        by_kind = group.groupby(["split", "mode"], observed=True)["step"]
        common = set.intersection(*(set(steps) for _, steps in by_kind))
        if common:
            found[str(game)] = max(common)
    return found


def _select(
    rows: pd.DataFrame, split: str, mode: str, step: int | None, left_out: dict[str, list[str]]
) -> pd.DataFrame:
    """Rows of every trained run at the same step, and of the references at theirs."""
    is_reference = rows["method"].isin(REFERENCES)
    trained = rows[~is_reference & (rows["split"] == split) & (rows["mode"] == mode)]
    if step is None:
        own = trained.groupby("game", observed=True)["step"].transform("max")
        last = trained["game"].astype(str).map(last_steps(rows)).fillna(own)
        chosen = trained[trained["step"] == last]
    else:
        chosen = trained[trained["step"] == step]
    everyone = rows[~is_reference]
    grid = [sorted(set(everyone[name])) for name in ("game", "method", "seed")]
    absent = set(missing_runs(trained, *grid))
    behind = "left out, behind the others" if step is None else f"not evaluated at step {step}"
    for run in missing_runs(chosen, *grid):
        why = f"no {split} rows with {mode} actions" if run in absent else behind
        left_out.setdefault(why, []).append(run)
    parts = [chosen]
    for name in REFERENCES:
        reference = rows[(rows["method"] == name) & (rows["split"] == split)]
        in_mode = reference[reference["mode"] == mode]
        if len(reference) and not len(in_mode):
            in_mode = reference
            other = set(reference["mode"].astype(str)).pop()
            left_out.setdefault(f"played with {other} actions only", []).append(name)
        last_step = in_mode.groupby("game", observed=True)["step"].transform("max")
        parts.append(in_mode[in_mode["step"] == last_step])
    part = pd.concat(parts)
    if not len(part):
        raise UserError(
            f"no {split} rows with {mode} actions; evaluate the runs on {split} levels."
        )
    return part


def _by_level(
    group: pd.DataFrame, game: str, split: str, left_out: dict[str, list[str]]
) -> dict[str, tuple[tuple[int, ...], Array]]:
    """method -> (seeds, returns [seeds, levels]) of one game, all on the same levels in order."""
    try:
        table = group.astype({"method": str}).pivot(
            index=["method", "seed"], columns="level", values="return"
        )
    except ValueError:
        raise UserError(
            f"{game} has several rows for one method, seed and {split} level: one episode per "
            "level and run is expected, more would be counted as runs."
        ) from None
    played = table.notna().to_numpy()
    is_reference = table.index.get_level_values("method").isin(REFERENCES)
    voting = played if is_reference.all() else played[~is_reference]
    counts = Counter(row.tobytes() for row in voting)
    # the levels that most trained runs played; of equally frequent sets the larger
    shared = np.frombuffer(max(counts, key=lambda b: (counts[b], sum(b), b)), dtype=bool)
    complete = played[:, shared].all(axis=1)
    for (method, seed), row in zip(table.index[~complete], played[~complete], strict=True):
        why = f"{int((row & shared).sum())} of {int(shared.sum())} {split} levels"
        left_out.setdefault(f"left out with {why}", []).append(f"{game}/{method}/seed{seed}")
    values = table.to_numpy(dtype=float)[:, shared]
    found: dict[str, tuple[tuple[int, ...], Array]] = {}
    names = table.index.get_level_values("method").to_numpy()
    numbers = table.index.get_level_values("seed").to_numpy()
    for method in sorted(set(names[complete])):
        of_method = complete & (names == method)
        found[str(method)] = (tuple(int(s) for s in numbers[of_method]), values[of_method])
    return found


def _common_games(games_of: Mapping[str, set[str]]) -> tuple[list[str], list[str]]:
    """Games that every trained method has; methods with too few games go until one is shared."""
    trained = [m for m in games_of if m not in REFERENCES] or list(games_of)
    kept = sorted(trained, key=lambda m: len(games_of[m]), reverse=True)
    while not (common := set.intersection(*(games_of[m] for m in kept))):
        kept.pop()
    notes = []
    for game in sorted(set().union(*games_of.values()) - common):
        lacking = ", ".join(m for m in trained if game not in games_of[m]) or "every trained method"
        notes.append(f"aggregates leave out {game}: no run of {lacking}.")
    for method, games in games_of.items():
        if not common <= games:
            lacking = ", ".join(sorted(common - games))
            notes.append(f"aggregates leave out {method}: no run of {lacking}.")
    return sorted(common), notes
