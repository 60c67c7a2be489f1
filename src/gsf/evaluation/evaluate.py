"""Stage: agent -> returns on seen, validation or unseen levels. Needs the game's suite or --env.

One episode on each of a fixed list of levels, greedy and by sampling, at the temperature that
validation levels choose first (temperature.py). A row is a function of the agent, its temperature,
its seed and the level alone: not of the order of play, nor of who plays beside it. Rows go to a
file on the way; those already there are kept, so the same command goes on.
With --held-out nothing is played: held_out.py.
"""

import contextlib
import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from gsf.core.errors import UserError, did_you_mean
from gsf.core.files import digest, locked
from gsf.core.interrupts import Stop, stoppable
from gsf.core.logs import console, progress
from gsf.core.options import Count, Options, Seed, Some, Threads, between
from gsf.evaluation import temperature as temperatures
from gsf.evaluation.intervals import mean_over_levels
from gsf.evaluation.players import Device, Player, checkpoint_steps, find_players, is_run
from gsf.evaluation.rollout import Actor, Array, rollout
from gsf.evaluation.rows import (
    COLUMNS,
    IDENTITY,
    KEYS,
    MODES,
    RESULTS,
    SPLITS,
    read_rows,
    write_rows,
)
from gsf.evaluation.splits import Split, parse_levels, split_levels
from gsf.nets.acting import Mode, mode_at

BLOCK = 4  # times n_envs: episodes that a kill may lose
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
    modes: Annotated[tuple[Mode, ...], Some()] = ("greedy", "sampled", "sampled-1")
    """The best action; one drawn at the run's own temperature, which the validation levels choose
    before anything else is played; one drawn at temperature 1."""
    n_seen: Levels = 200
    """Levels of the training data to play; 0: none."""
    n_validation: Levels = 50
    """Validation levels to play, and to choose the temperature by; 0: none, and it stays 1."""
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
    held_out: Path | None = None
    """Instead of playing: judge the run by a dataset of contexts (sites, levels) it was not trained
    on, into held_out.csv: agreement, likelihood, calibration, an estimate of the return."""
    logged_by: str | None = None
    """--held-out of a recording: the policy that played it (its file, or a shipped one's name) and
    whose probabilities weighted importance sampling needs. Other data brings its own."""
    fqe: bool = True
    """--held-out: estimate the return by fitted Q evaluation, the slowest of the numbers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for what, chosen, known in (("split", self.splits, SPLITS), ("mode", self.modes, MODES)):
            for name in chosen:
                if name not in known:
                    meant = did_you_mean(name, known)
                    raise UserError(
                        f"unknown {what} {name!r}; {meant}choose from {', '.join(known)}."
                    )
        parse_levels(self.levels)

    def n_levels(self, split: Split) -> int:
        return int(getattr(self, f"n_{split}"))


@dataclass(frozen=True)
class Task:
    """Some modes of one player on the levels of a split."""

    player: Player
    split: Split
    modes: tuple[Mode, ...]
    levels: list[int]

    def of(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Those of the rows that this task would make, were there none."""
        mine = rows["level"].isin(self.levels) & rows["mode"].isin(self.modes)
        return rows[mine & (rows["split"] == self.split) & _of(self.player, rows)]

    def missing(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Modes and levels that no row is of, with their temperatures."""
        there = self.of(rows)
        have = set(zip(there["mode"], there["level"], strict=True))
        asked = [(m, x) for m in self.modes for x in self.levels if (m, x) not in have]
        left = pd.DataFrame(asked, columns=["mode", "level"]).astype({"level": np.int64})
        return left.assign(temperature=[self.player.at(mode) for mode, _ in asked])


def evaluate(config: EvaluateConfig) -> pd.DataFrame:
    """Plays an agent on levels of each split; a row per level and mode, also in returns.csv.

    All rows asked for, as rows.COLUMNS: those played now and those that were there.

    rows = evaluate(EvaluateConfig("run", splits=("unseen",)))
    rows.groupby("mode")["return"].mean()
    """
    if config.held_out is not None:
        from gsf.evaluation.held_out import judge_held_out

        return judge_held_out(config)
    players = _players(config)
    out = find_out(config, "returns.csv")
    levels = _levels(players[0], config)
    modes = tuple(dict.fromkeys(config.modes))
    tasks = [
        Task(player, split, modes, levels[split])
        for player in players
        for split in levels
        if levels[split] and modes
    ]
    if not tasks:
        raise UserError("nothing to play: no split, no mode or no level is left.")
    grids = _grids(players, config)
    with locked(out.parent, f".{out.name}.lock"):
        rows = read_rows(out)
        _require_same(players, rows, out)
        n = sum(len(task.missing(rows)) for task in [*grids, *tasks])
        if not n:
            console.print(f"{out} has these rows already.", soft_wrap=True)
        what = f"evaluate {players[0].game} {players[0].method}"
        with stoppable() as stop, progress(what, n, "episodes") as advance:
            session = _Session(config, out, rows, stop, advance, n)
            for grid in grids:
                session.fill(grid)
                if stop.asked:
                    break
                chosen = _choose(grid, session)
                tasks = [
                    replace(task, player=chosen) if task.player is grid.player else task
                    for task in tasks
                ]
            for task in tasks:
                session.fill(task)
    asked = pd.concat([task.of(session.rows) for task in tasks])[COLUMNS].reset_index(drop=True)
    _print_summary(asked, out)
    return asked


def _grids(players: Sequence[Player], config: EvaluateConfig) -> list[Task]:
    """What has to be played before temperatures can be chosen."""
    if "sampled" not in config.modes or not config.n_validation or config.levels:
        return []
    found = []
    for player in players:
        if len(player.temperatures) > 1:
            modes = tuple(mode_at(t) for t in player.temperatures)
            levels = _split(player, "validation", config.n_validation)
            found.append(Task(player, "validation", modes, levels))
    return found


def _choose(grid: Task, session: "_Session") -> Player:
    """The player with its temperature; `sampled` rows at another are called what they are."""
    player, agent = grid.player, session.config.agent
    means = temperatures.choose(player, grid.of(session.rows))
    best, n = float(next(iter(means))), len(grid.levels)
    if player.temperature is None:
        player = replace(player, temperature=best)
        if is_run(agent):
            temperatures.keep(Path(agent), player.step, means, n)
    elif player.temperature != best:
        console.print(
            f"{n} validation levels would choose temperature {best:g}, but {player.temperature:g} "
            "was chosen before and stays; to choose again remove returns.csv and temperature.json.",
            soft_wrap=True,
        )
    rows = session.rows
    stale = _of(player, rows) & (rows["mode"] == "sampled")
    stale &= rows["temperature"] != player.temperature
    if stale.any():  # played before there was a choice
        renamed = rows[stale].assign(mode=[mode_at(t) for t in rows.loc[stale, "temperature"]])
        session.write(pd.concat([rows[~stale], renamed]).drop_duplicates(KEYS))
    return player


def evaluate_agent(
    agent: Actor,
    game: str,
    levels: Sequence[int],
    temperature: float | Sequence[float] | Array = 0.0,
    *,
    seed: Seed = 0,
    n_envs: Annotated[int, between(1, 4096)] = 100,
    difficulty: str | None = None,
    threads: int | None = None,
    max_frames: int | None = None,
    count: Callable[[int, int], None] | None = None,
    stop: Stop | None = None,
) -> pd.DataFrame:
    """One episode on each level, in the order given: level, temperature, then rows.RESULTS.

    evaluate_agent(load_agent("run"), "coinrun", range(1_000_000, 1_000_100))["return"].mean()

    `agent` is anything with policy(obs, temperature), see `Actor`. `temperature`: 0 is greedy; one,
    or one for each of the levels. `count` hears of episodes ended and frames. Asked to `stop`, it
    returns the episodes that are over.
    """
    m = len(levels)
    returns, length, entropy = np.zeros(m), np.zeros(m, np.int64), np.zeros(m)
    completed, over = np.zeros(m, bool), np.zeros(m, bool)
    options: dict[str, Any] = {"n_envs": n_envs, "difficulty": difficulty, "threads": threads}
    options |= {"max_frames": max_frames, "seed": seed}
    with contextlib.closing(rollout(agent, game, levels, temperature, **options)) as steps:
        for step in steps:
            returns[step.at] += step.reward
            length[step.at] += 1
            entropy[step.at] += step.entropy
            completed[step.at], over[step.at] = step.completed, step.ended
            if count is not None:
                count(int(step.ended.sum()), len(step.at))
            if stop is not None and stop.asked:
                break
    played = {"level": levels, "temperature": np.broadcast_to(temperature, m)}
    results = (returns, length, completed, (entropy / length.clip(1)).round(4))
    found = pd.DataFrame(played | dict(zip(RESULTS, results, strict=True)))
    return found[over].reset_index(drop=True)


def find_out(config: EvaluateConfig, name: str) -> Path:
    """Where rows go: --out, or the file of this name in the run directory."""
    out = config.out
    if out is None:
        if not is_run(config.agent):
            raise UserError(f"give --out: {config.agent} is no run directory to write rows into.")
        return Path(config.agent) / name
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
    players = find_players(
        config.agent,
        game=config.game,
        steps=find_steps(config),
        seed=config.seed,
        dataset=config.dataset,
        device=config.device,
        env=config.env,
        level=(parse_levels(config.levels) or [0])[0],
    )
    if config.max_frames:
        players = [replace(x, identity=digest(x.identity, str(config.max_frames))) for x in players]
    return list({player.step: player for player in reversed(players)}.values())[::-1]


def find_steps(config: EvaluateConfig) -> list[int | None]:
    """Checkpoints to judge; None is the latest."""
    kept = checkpoint_steps(Path(config.agent)) if config.all else []
    if config.all and not kept:
        raise UserError(f"{config.agent} has kept no checkpoints; train it with --keep.")
    return [*kept, None]


def _levels(player: Player, config: EvaluateConfig) -> dict[Split, list[int]]:
    """What to play of each split."""
    if config.levels:
        asked, seen = parse_levels(config.levels), set(player.training or ())
        mine = [level for level in asked if level in seen]
        return {"seen": mine, "unseen": [level for level in asked if level not in seen]}
    return {split: _split(player, split, config.n_levels(split)) for split in config.splits}


def _split(player: Player, split: Split, n: int) -> list[int]:
    levels = split_levels(player.game, split, n, player.training, player.difficulty)
    if len(levels) < n:
        console.print(f"only {len(levels)} levels are in the training data, not {n}.")
    return levels


def _of(player: Player, rows: pd.DataFrame) -> pd.Series:
    mine = pd.Series(data=True, index=rows.index)
    for name, value in player.names.items():
        mine &= rows[name] == value
    return mine


def _require_same(players: Sequence[Player], rows: pd.DataFrame, out: Path) -> None:
    """Rows of another agent under the same name are refused."""
    for who in players:
        if set(rows.loc[_of(who, rows), IDENTITY]) - {who.identity}:
            raise UserError(
                f"{out} has rows of another {who.method} for {who.game}, seed {who.seed}, step "
                f"{who.step}; remove it or choose another --out."
            )


class _Session:
    """The rows as they become more, their file, and the progress bar."""

    def __init__(
        self,
        config: EvaluateConfig,
        out: Path,
        rows: pd.DataFrame,
        stop: Stop,
        advance: Callable[..., None],
        n: int,
    ) -> None:
        self.config, self.out, self.rows = config, out, rows
        self._stop, self._advance, self._n = stop, advance, n
        self._episodes, self._frames, self._kept = 0, 0, 0
        self._started = time.monotonic()

    def write(self, rows: pd.DataFrame) -> None:
        self.rows = write_rows(self.out, rows)

    def fill(self, task: Task) -> None:
        """Makes the rows that the task lacks, block by block."""
        left, size = task.missing(self.rows), BLOCK * self.config.n_envs
        for at in range(0, len(left), size):
            if not self._stop.asked:
                new = self._play(task, left[at : at + size])
                if len(new):
                    self.write(pd.concat([self.rows, new]) if len(self.rows) else new)
                self._kept += len(new)
                self._stop.kept = f"{self._kept} of {self._n} episodes are in {self.out}"

    def _play(self, task: Task, wanted: pd.DataFrame) -> pd.DataFrame:
        """Rows for the modes and levels wanted. An episode that two modes share is played once."""
        who, config, episode = task.player, self.config, ["level", "temperature"]
        there = self.rows[(self.rows["split"] == task.split) & _of(who, self.rows)]
        known = there.drop_duplicates(episode)[[*episode, *RESULTS]]
        new = wanted.drop_duplicates(episode).merge(known, on=episode, how="left", indicator=True)
        new = new[new["_merge"] == "left_only"]
        self._count(len(wanted) - len(new), 0)
        if len(new):
            played = evaluate_agent(
                who.actor,
                who.game,
                new["level"].tolist(),
                new["temperature"].to_numpy(),
                seed=who.seed,
                n_envs=config.n_envs,
                difficulty=who.difficulty,
                threads=config.threads,
                max_frames=config.max_frames,
                count=self._count,
                stop=self._stop,
            )
            known = pd.concat([known, played]) if len(known) else played
        found = wanted.merge(known, on=episode, validate="many_to_one")
        return found.assign(split=task.split, **who.names, **{IDENTITY: who.identity})

    def _count(self, ended: int, played: int) -> None:
        self._episodes, self._frames = self._episodes + ended, self._frames + played
        speed = self._frames / max(time.monotonic() - self._started, 1e-9)
        self._advance(self._episodes, frames=f"{speed:,.0f}/s")


def _print_summary(rows: pd.DataFrame, out: Path) -> None:
    first, steps = rows.iloc[0], rows["step"].nunique()
    who = f"{first['game']}, {first['method']}, seed {first['seed']}"
    who += f", step {first['step']:,}" if steps == 1 else ""
    console.print(f"{who}: {out}", soft_wrap=True, highlight=False)
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))  # a terminal may have 80 columns
    names = ["step"] * (steps > 1) + ["split", "mode", "temp.", "levels", "return [95 %]"]
    for name in (*names, "completed", "entropy"):
        table.add_column(name, justify="left" if name in ("split", "mode") else "right")
    for (step, split, mode), part in rows.groupby(["step", "split", "mode"], sort=False):
        found = mean_over_levels(part["return"], part["level"])
        table.add_row(
            *[f"{step:,}"] * (steps > 1),
            str(split),
            str(mode),
            f"{part['temperature'].iloc[0]:g}",
            str(len(part)),
            f"{found['value']:.2f} [{found['low']:.2f}, {found['high']:.2f}]",
            f"{part['completed'].mean():.0%}",
            f"{part['entropy'].mean():.2f}",
        )
    Console().print(table)
