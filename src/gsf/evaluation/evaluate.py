"""Stage: agent -> returns on seen, validation or unseen levels. Needs the game's suite or --env.

One episode on each of a fixed list of levels, greedy and by sampling, at the temperature that
validation levels choose first (temperature.py). A row is a function of the agent, its temperature,
its seed and the level alone: not of the order of play, nor of who plays beside it. Rows go to a
file on the way; those already there are kept, so the same command goes on, and one that asks for
more adds it. Only what an earlier --max-frames cut short, and this one does not, is played again.
With --held-out nothing is played: held_out.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from gsf.core.errors import UserError
from gsf.core.files import check_place, clear_locks, locked
from gsf.core.interrupts import stoppable
from gsf.core.logs import console, progress
from gsf.evaluation import temperature as temperatures
from gsf.evaluation.asked import find_file, find_steps
from gsf.evaluation.code_of_rows import Code, check_code, code_of_play
from gsf.evaluation.ensemble import together
from gsf.evaluation.held_out import judge_held_out
from gsf.evaluation.intervals import mean_over_levels
from gsf.evaluation.options import EvaluateConfig as EvaluateConfig
from gsf.evaluation.players import Player, find_players, is_run, under_looks
from gsf.evaluation.rows import COLUMNS, IDENTITY, KEYS, read_rows
from gsf.evaluation.session import Session, Task, made_by
from gsf.evaluation.splits import Split, parse_levels, split_levels
from gsf.nets.acting import explain, mode_at


def evaluate(config: EvaluateConfig) -> pd.DataFrame:
    """Plays an agent on levels of each split; a row per level and mode, also in returns.csv.

    Returns all rows that were asked for (rows.COLUMNS), played now or before.

    rows = evaluate(EvaluateConfig("run", splits=("unseen",)))
    rows.groupby("mode")["return"].mean()
    """
    if config.held_out is not None:
        return judge_held_out(config)
    players = _players(config)
    out = find_file(config, _file_name(config))
    if not out.is_file():
        check_place(out)
    levels = _levels(players[0], config)
    modes = tuple(dict.fromkeys(config.modes))
    if players[0].method == "random":  # it has no best action
        modes = tuple(dict.fromkeys("sampled" if mode == "greedy" else mode for mode in modes))
    tasks = [
        Task(player, split, modes, levels[split])
        for player in players
        for split in levels
        if levels[split] and modes
    ]
    if not tasks:
        raise UserError("nothing to play: no split, no mode or no level is left.")
    grids = _grids(players, config)
    code = {player.identity: code_of_play(player.game, player.code) for player in players}
    rows = _read(out, players, code, config.accept_code_change)
    if _all_there(grids, tasks, rows):
        clear_locks(out)
        console.print(f"{out} has these rows already.", soft_wrap=True)
        return _summed_up(tasks, rows, out)
    check_place(out)
    with locked(out.parent, f".{out.name}.lock"):
        rows = _read(out, players, code, config.accept_code_change)
        n = sum(len(task.missing(rows)) for task in [*grids, *tasks])
        what = f"evaluate {players[0].game} {players[0].method}"
        with stoppable() as stop, progress(what, n, "episodes") as advance:
            session = Session(config, out, rows, code, stop, advance, n)
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
    return _summed_up(tasks, session.rows, out)


def _file_name(config: EvaluateConfig) -> str:
    if config.ensemble:
        return "ensemble.csv"
    return "returns.csv" if config.looks is None else f"looks-{config.looks}.csv"


def _all_there(grids: Sequence[Task], tasks: Sequence[Task], rows: pd.DataFrame) -> bool:
    """Whether nothing has to be played, chosen or written."""
    players = [grid.player for grid in grids]
    chosen = all(x.temperature is not None and not _stale(x, rows).any() for x in players)
    return chosen and not any(len(task.missing(rows)) for task in [*grids, *tasks])


def _summed_up(tasks: Sequence[Task], rows: pd.DataFrame, out: Path) -> pd.DataFrame:
    asked = pd.concat([task.among(rows) for task in tasks])[COLUMNS].reset_index(drop=True)
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


def _choose(grid: Task, session: Session) -> Player:
    """The player at its temperature; rows that were sampled at another are renamed after it."""
    player, agent = grid.player, session.config.agent
    means = temperatures.choose(player, grid.among(session.rows))
    best, n = float(next(iter(means))), len(grid.levels)
    if player.temperature is None:
        player = replace(player, temperature=best)
        if is_run(agent) and not session.config.ensemble:
            temperatures.keep(Path(agent), player.step, means, n)
    elif player.temperature != best and not temperatures.is_pooled(Path(agent), player.step):
        console.print(
            f"{n} validation levels would choose temperature {best:g}, but {player.temperature:g} "
            "was chosen before and stays; to choose again remove returns.csv and temperature.json.",
            soft_wrap=True,
        )
    rows, old = session.rows, _stale(player, session.rows)
    if old.any():
        renamed = rows[old].assign(mode=[mode_at(t) for t in rows.loc[old, "temperature"]])
        session.write(pd.concat([rows[~old], renamed]).drop_duplicates(KEYS))
    return player


def _stale(player: Player, rows: pd.DataFrame) -> pd.Series:
    """Rows that were sampled at another temperature, before this one was chosen."""
    other = rows["temperature"] != player.temperature
    return made_by(player, rows) & (rows["mode"] == "sampled") & other


def _players(config: EvaluateConfig) -> list[Player]:
    level = (parse_levels(config.levels) or [0])[0]
    options: Any = {"game": config.game, "device": config.device, "env": config.env, "level": level}
    alone: Any = {"steps": find_steps(config), "seed": config.seed, "dataset": config.dataset}
    players = find_players(config.agent, **options, **alone)
    if config.ensemble:
        for path in (config.agent, *map(str, config.ensemble)):
            if not is_run(path):
                raise UserError(f"{path} is no run; an ensemble is of directories of `gsf train`.")
        others = [find_players(str(run), **options)[0] for run in config.ensemble]
        players = [together([*players, *others])]
    players = [replace(player, max_frames=config.max_frames) for player in players]
    if config.looks is not None:
        players = [under_looks(player, config.looks) for player in players]
    return list({player.step: player for player in reversed(players)}.values())[::-1]


def _levels(player: Player, config: EvaluateConfig) -> dict[Split, list[int]]:
    """The levels to play of each split."""
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


def _read(
    out: Path, players: Sequence[Player], code: Mapping[str, Code], any_code: bool
) -> pd.DataFrame:
    """The rows in the file; those of another agent under the same name, or of other code, are an
    error."""
    rows = read_rows(out)
    for who in players:
        mine = rows[made_by(who, rows)]
        if len(mine):
            check_code(out, {who.identity: code[who.identity]}, any_code)
        if not mine[IDENTITY].isin([who.identity, *map(who.signature, set(mine["length"]))]).all():
            raise UserError(
                f"{out} has rows of another {who.method} for {who.game}, seed {who.seed}, step "
                f"{who.step}; remove it or choose another --out."
            )
    return rows


def _print_summary(rows: pd.DataFrame, out: Path) -> None:
    first, steps = rows.iloc[0], rows["step"].nunique()
    who = f"{first['game']}, {first['method']}, seed {first['seed']}"
    who += f", step {first['step']:,}" if steps == 1 else ""
    console.print(f"{who}: {out}", soft_wrap=True, highlight=False)
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))  # a terminal may have 80 columns
    table.caption, table.caption_justify = explain(rows["mode"]), "left"
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
