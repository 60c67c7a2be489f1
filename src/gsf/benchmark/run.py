"""`gsf benchmark run`: a protocol as `gsf run` takes it, and the rows that come of it.

Nothing is trained or played here: sweep.run does. Rows of all runs are gathered in one file, each
with the protocol's digest and whether its run kept to the protocol (judge.py).
"""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from gsf.benchmark import catalogue
from gsf.benchmark.catalogue import Protocol
from gsf.benchmark.entry import CARD, ROWS, write_card
from gsf.benchmark.judge import gather_rows, temperatures
from gsf.benchmark.options import BesideConfig, EnterConfig
from gsf.benchmark.report import is_entrant
from gsf.benchmark.report import report as beside
from gsf.core.errors import UserError
from gsf.core.logs import console
from gsf.core.sealed import write_table
from gsf.data.materialise import materialise
from gsf.data.recording import Recording
from gsf.nets.acting import mode_at
from gsf.sweep.options import RunConfig
from gsf.sweep.run import run


def enter(config: EnterConfig) -> Path:
    """Trains and plays what is missing; returns the file of rows."""
    protocol = catalogue.find(config.protocol)
    games = config.games or protocol.games
    if unknown := [game for game in games if game not in protocol.games]:
        known = ", ".join(protocol.games)
        raise UserError(f"{protocol.name} has no game {unknown[0]}; its games are {known}.")
    if config.first_seed + (config.seeds or 1) > protocol.seeds:
        raise UserError(f"{protocol.name} has seeds 0 to {protocol.seeds - 1}; take some of these.")
    protocol.check_recordings(games)
    home = config.out / protocol.name
    for sweep in sweeps(protocol, config, games):
        run(sweep)
        if config.cluster:
            bring_datasets(sweep)
    if config.validation:
        _print_validation(gather_rows(home, protocol, False, ("validation",)))
        return home
    rows = gather_rows(home, protocol, config.baselines)
    path = home / ROWS
    write_table(path, rows)
    runs = rows[["game", "method", "seed"]].drop_duplicates()
    console.print(f"{len(runs)} runs of {protocol.name} ({protocol.digest}): {path}")
    if not config.baselines:
        for method in [m for m in pd.unique(runs["method"]) if is_entrant(m, protocol)][:1]:
            write_card(home / CARD, protocol, method)
        beside(BesideConfig((path,)))
    return path


def bring_datasets(sweep: RunConfig) -> None:
    """A cluster's machines keep their datasets; whoever judges the runs needs them here."""
    for name in sweep.recordings:
        out = sweep.out / Recording.load(name).game / "dataset"
        materialise(sweep.stage("materialise", recording=name, out=out))


def _print_validation(rows: pd.DataFrame) -> None:
    """What settings are chosen by: the mean over games of each method, the best first."""
    means = rows.groupby(["method", "game"])["return"].mean().groupby("method").mean()
    for method, mean in means.sort_values(ascending=False).items():
        print(f"{mean:8.3f} mean return on validation levels  {method}")
    print("No test level was played. Choose one, then leave --validation out.")


def sweeps(protocol: Protocol, config: EnterConfig, games: tuple[str, ...]) -> Iterator[RunConfig]:
    """What is to be run; games whose temperature differs are played one after another."""
    known = {} if config.baselines else temperatures(protocol)
    for temperature in sorted({known.get(game, 0.0) for game in games}):
        mine = [game for game in games if known.get(game, 0.0) == temperature]
        played: dict[str, object] = {"evaluate.modes": ["sampled"]}
        if temperature:
            played["evaluate.modes"] = [mode_at(temperature)]
            played["evaluate.splits"] = ["seen", "unseen"]
        if config.validation:
            played["evaluate.splits"] = ["validation"]
        yield RunConfig(
            out=config.out / protocol.name,
            preset=protocol.said["preset"],
            recordings=tuple(protocol.said["recordings"][game]["name"] for game in mine),
            methods=protocol.methods if config.baselines else config.methods,
            seeds=config.seeds or protocol.seeds - config.first_seed,
            first_seed=config.first_seed,
            temperature="own" if temperature or config.validation else "pooled",
            report=False,
            workers=config.workers,
            shard=config.shard,
            merge=tuple(path / protocol.name for path in config.merge),
            cluster=config.cluster,
            cpus=config.cpus,
            gpus=config.gpus,
            storage=config.storage,
            cache_gb=config.cache_gb,
            accept_code_change=config.accept_code_change,
            options=protocol.options | played,
        )
        if config.merge:  # of all games at once
            return
