"""Stage: agent -> returns on seen, validation or unseen levels. Needs the game's suite or --env.

One episode on each of a fixed list of levels, greedy and by sampling. A row is a function of the
agent, its seed and the level alone: not of the order of play, nor of who plays beside it. Rows go
to a file as soon as a split is played; those already there are kept, so the same command goes on.
"""

import contextlib
import importlib
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import tyro
from rich.console import Console
from rich.table import Table

from gsf.core.errors import UserError
from gsf.core.files import digest, locked, write_atomic
from gsf.core.interrupts import Stop, stoppable
from gsf.core.logs import console, progress
from gsf.core.options import Count, Options, Seed, Some, Threads, between
from gsf.evaluation.intervals import mean_over_levels
from gsf.evaluation.players import Device, Player, checkpoint_steps, find_players, is_run
from gsf.evaluation.rollout import Actor, rollout
from gsf.evaluation.rows import COLUMNS, IDENTITY, KEYS, MODES, SPLITS, check_rows, read_table
from gsf.evaluation.splits import Split, parse_levels, split_levels
from gsf.nets.acting import Mode

# The same however the rows came here, by play or from a file.
TYPES: dict[str, Any] = dict.fromkeys([*COLUMNS, IDENTITY], str) | {
    **dict.fromkeys(("seed", "step", "level", "length"), np.int64),
    "return": np.float64,
    "completed": bool,
}

Levels = Annotated[int, between(0, 10**6)]


@dataclass(frozen=True)
class EvaluateConfig(Options):
    """Play one episode on each level of fixed lists, greedy and by sampling."""

    agent: tyro.conf.Positional[str]
    """A run directory, a policy (its file, the directory of a `gsf collect`, or the name of a
    shipped one), or `random`."""
    out: Path | None = None
    """File of the rows, .csv or .parquet. Default: returns.csv in the run directory."""
    game: str | None = None
    """What `random` is to play; a run or a policy knows its game, but not a suite in a file of
    yours: file.py:Suite/game."""
    env: str | None = None
    """A Gymnasium environment of yours to play in, as file.py:make: make(level) gives that of a
    level, which is reset with seed=level. The file is run."""
    levels: tuple[str, ...] = ()
    """Exactly these (7, or 1000..1099 for all from the first to the last) instead of the lists
    below: those of the training data count as seen, all others as unseen."""
    splits: Annotated[tuple[Split, ...], Some()] = ("seen", "validation", "unseen")
    """Which levels: those of the training data, those for choosing, those for reporting."""
    modes: Annotated[tuple[Mode, ...], Some()] = ("greedy", "sampled")
    """The best action, or one drawn at temperature 1."""
    n_seen: Levels = 200
    """Levels of the training data to play; 0: none."""
    n_validation: Levels = 50
    """Validation levels to play; 0: none."""
    n_unseen: Levels = 200
    """Unseen levels to play; 0: none."""
    all: bool = False
    """Play every checkpoint kept (`gsf train --keep`), for learning curves."""
    max_frames: Count | None = None
    """Frames after which an episode is over, for a quick look. Default: as the game says."""
    n_envs: Annotated[int, between(1, 4096)] = 100
    """Levels played at once; changes the speed only."""
    threads: Threads | None = None
    """Procgen's threads. Default: one per core."""
    seed: Seed = 0
    """Of the actions `random` or a policy draws; a run has its own."""
    dataset: Path | None = None
    """`random` and policies: the training data, whose levels count as seen; a run knows its own."""
    device: Device = "auto"
    """Where networks run; auto: a GPU if there is one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for what, chosen, known in (("split", self.splits, SPLITS), ("mode", self.modes, MODES)):
            for name in chosen:
                if name not in known:
                    raise UserError(f"unknown {what} {name!r}; choose from {', '.join(known)}.")
        parse_levels(self.levels)

    def n_levels(self, split: Split) -> int:
        return int(getattr(self, f"n_{split}"))


@dataclass(frozen=True)
class Task:
    """What is played without a pause, and written when it is over."""

    player: Player
    split: Split
    mode: Mode
    levels: list[int]

    def of(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Those of the rows that this task would make, were there none."""
        asked: dict[str, Any] = {**self.player.names, "split": self.split, "mode": self.mode}
        mine = rows["level"].isin(self.levels)
        for name, value in asked.items():
            mine &= rows[name] == value
        return rows[mine]


def evaluate(config: EvaluateConfig) -> pd.DataFrame:
    """Plays an agent on levels of each split; a row per level and mode, also in returns.csv.

    All rows asked for, as rows.COLUMNS: those played now and those that were there.

    rows = evaluate(EvaluateConfig("run", splits=("unseen",)))
    rows.groupby("mode")["return"].mean()
    """
    players = _players(config)
    out = _out(config)
    levels = _levels(players[0], config)
    tasks = [
        Task(player, split, mode, levels[split])
        for player in players
        for split in levels
        for mode in dict.fromkeys(config.modes)
        if levels[split]
    ]
    if not tasks:
        raise UserError("nothing to play: no split, no mode or no level is left.")
    with locked(out.parent, f".{out.name}.lock"):
        rows = read_rows(out)
        left = [_missing(task, rows, out) for task in tasks]
        n = sum(len(task.levels) for task in left)
        if not n:
            console.print(f"{out} has these rows already.", soft_wrap=True)
        what, kept = f"evaluate {players[0].game} {players[0].method}", 0
        with stoppable() as stop, progress(what, n, "episodes") as advance:
            count = _counter(advance)
            for task in left:
                played = _play(task, config, count, stop) if task.levels else rows[:0]
                if len(played):
                    rows = write_rows(out, pd.concat([rows, played]) if len(rows) else played)
                kept += len(played)
                stop.kept = f"{kept} of {n} episodes are in {out}"
                if stop.asked:
                    break
    asked = pd.concat([task.of(rows) for task in tasks])[COLUMNS].reset_index(drop=True)
    _print_summary(asked, out)
    return asked


def evaluate_agent(
    agent: Actor,
    game: str,
    levels: Sequence[int],
    mode: Mode = "greedy",
    *,
    seed: Seed = 0,
    n_envs: Annotated[int, between(1, 4096)] = 100,
    difficulty: str | None = None,
    threads: int | None = None,
    max_frames: int | None = None,
    count: Callable[[int, int], None] | None = None,
    stop: Stop | None = None,
) -> pd.DataFrame:
    """One episode on each level, in the order given: level, mode, return, length, completed.

    evaluate_agent(load_agent("run"), "coinrun", range(1_000_000, 1_000_100))["return"].mean()

    `agent` is anything with act(obs, mode, uniform); `count` hears of episodes ended and frames.
    Asked to `stop`, it returns the episodes that are over.
    """
    m = len(levels)
    returns, length = np.zeros(m), np.zeros(m, np.int64)
    completed, over = np.zeros(m, bool), np.zeros(m, bool)
    options: dict[str, Any] = {"n_envs": n_envs, "difficulty": difficulty, "threads": threads}
    options["max_frames"] = max_frames
    with contextlib.closing(rollout(agent, game, levels, mode, seed=seed, **options)) as steps:
        for step in steps:
            returns[step.at] += step.reward
            length[step.at] += 1
            completed[step.at], over[step.at] = step.completed, step.ended
            if count is not None:
                count(int(step.ended.sum()), len(step.at))
            if stop is not None and stop.asked:
                break
    result = {"level": levels, "mode": mode, "return": returns, "length": length}
    return pd.DataFrame(result | {"completed": completed})[over].reset_index(drop=True)


def _out(config: EvaluateConfig) -> Path:
    out = config.out
    if out is None:
        if not is_run(config.agent):
            raise UserError(f"give --out: {config.agent} is no run directory to write rows into.")
        return Path(config.agent) / "returns.csv"
    if out.suffix not in (".csv", ".parquet") or out.is_dir():
        raise UserError(f"--out {out} must be a file that ends in .csv or .parquet.")
    if out.suffix == ".parquet":
        try:
            importlib.import_module("pyarrow")  # now, not when everything has been played
        except ImportError as error:
            raise UserError(
                f"Parquet needs pyarrow ({error}): pip install 'gsf-rl[parquet]', or choose .csv."
            ) from None
    return out


def _players(config: EvaluateConfig) -> list[Player]:
    steps: list[int | None] = [None]
    if config.all:
        steps = [*checkpoint_steps(Path(config.agent)), None]
        if len(steps) == 1:
            raise UserError(f"{config.agent} has kept no checkpoints; train it with --keep.")
    players = find_players(
        config.agent,
        game=config.game,
        steps=steps,
        seed=config.seed,
        dataset=config.dataset,
        device=config.device,
        env=config.env,
        level=(parse_levels(config.levels) or [0])[0],
    )
    if config.max_frames:
        players = [replace(x, identity=digest(x.identity, str(config.max_frames))) for x in players]
    return list({player.step: player for player in reversed(players)}.values())[::-1]


def _levels(player: Player, config: EvaluateConfig) -> dict[Split, list[int]]:
    """What to play of each split."""
    if config.levels:
        asked, seen = parse_levels(config.levels), set(player.training or ())
        mine = [level for level in asked if level in seen]
        return {"seen": mine, "unseen": [level for level in asked if level not in seen]}
    found: dict[Split, list[int]] = {}
    for split in config.splits:
        n = config.n_levels(split)
        found[split] = split_levels(player.game, split, n, player.training, player.difficulty)
        if len(found[split]) < n:
            console.print(f"only {len(found[split])} levels are in the training data, not {n}.")
    return found


def _missing(task: Task, rows: pd.DataFrame, out: Path) -> Task:
    """What is left of a task; rows of another agent under the same name are refused."""
    there = task.of(rows)
    if set(there[IDENTITY]) - {task.player.identity}:
        who = task.player
        raise UserError(
            f"{out} has rows of another {who.method} for {who.game}, seed {who.seed}, step "
            f"{who.step}; remove it or choose another --out."
        )
    have = set(there["level"])
    left = [level for level in task.levels if level not in have]
    return Task(task.player, task.split, task.mode, left)


def _play(
    task: Task, config: EvaluateConfig, count: Callable[[int, int], None], stop: Stop
) -> pd.DataFrame:
    who = task.player
    rows = evaluate_agent(
        who.actor,
        who.game,
        task.levels,
        task.mode,
        seed=who.seed,
        n_envs=config.n_envs,
        difficulty=who.difficulty,
        threads=config.threads,
        max_frames=config.max_frames,
        count=count,
        stop=stop,
    )
    return rows.assign(split=task.split, **who.names, **{IDENTITY: who.identity})


def _counter(advance: Callable[..., None]) -> Callable[[int, int], None]:
    episodes, frames, started = 0, 0, time.monotonic()

    def count(ended: int, played: int) -> None:
        nonlocal episodes, frames
        episodes, frames = episodes + ended, frames + played
        speed = frames / max(time.monotonic() - started, 1e-9)
        advance(episodes, frames=f"{speed:,.0f}/s")

    return count


def read_rows(path: Path) -> pd.DataFrame:
    """The rows of a file, none if there is no file."""
    if not path.is_file():
        return pd.DataFrame(columns=list(TYPES)).astype(TYPES)
    raw = read_table(path)
    rows = check_rows(raw, str(path))
    return rows.assign(**{IDENTITY: raw.get(IDENTITY, "unknown")}).astype(TYPES)


def write_rows(path: Path, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows in their one order: the file does not show in which they were played."""
    order = rows["split"].map({split: i for i, split in enumerate(SPLITS)})
    keys = ["game", "method", "seed", "step", "order", "mode", "level"]
    rows = rows.assign(order=order).sort_values(keys, ignore_index=True)
    rows = rows[list(TYPES)].astype(TYPES)
    assert not rows.duplicated(KEYS).any()
    if path.suffix == ".parquet":
        buffer = io.BytesIO()
        rows.to_parquet(buffer, index=False)
        write_atomic(path, buffer.getvalue())
    else:
        write_atomic(path, rows.to_csv(index=False))
    return rows


def _print_summary(rows: pd.DataFrame, out: Path) -> None:
    first = rows.iloc[0]
    table = Table(title=f"{first['game']}, {first['method']}, seed {first['seed']}: {out}")
    for name in ("step", "split", "mode", "levels", "return", "95 % over levels", "completed"):
        table.add_column(name, justify="left" if name in ("split", "mode") else "right")
    for (step, split, mode), part in rows.groupby(["step", "split", "mode"], sort=False):
        found = mean_over_levels(part["return"], part["level"])
        cells = [f"{step:,}", str(split), str(mode), str(len(part)), f"{found['value']:.2f}"]
        table.add_row(
            *cells, f"{found['low']:.2f} to {found['high']:.2f}", f"{part['completed'].mean():.0%}"
        )
    Console().print(table)
