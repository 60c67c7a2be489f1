"""`gsf benchmark verify`: plays a random tenth of an entry's levels again, and compares.

A row follows from the agent, its temperature, its seed and the level alone. So on the kind of
machine that made it every return comes out bit for bit; a different processor may round otherwise.
"""

from typing import Any

import numpy as np

from gsf.benchmark.entry import Entry, read_entry
from gsf.benchmark.options import AgainConfig
from gsf.core.errors import FoundWrongError, UserError
from gsf.core.results import find_stages
from gsf.evaluation.episodes import evaluate_agent
from gsf.evaluation.players import Player, find_players
from gsf.evaluation.rows import IDENTITY

COMPARED = ("return", "length", "completed")


def verify(config: AgainConfig) -> None:
    """Prints what was played again; a row that comes out otherwise ends it with exit code 1."""
    entry = read_entry(config.entry)
    runs = _find_runs(config, entry)
    rng = np.random.default_rng(config.seed)
    played, wrong, missing = 0, list[str](), list[str]()
    for run, rows in entry.rows.groupby(["game", "seed"]):
        name = f"{run[0]}/{entry.method}/seed{run[1]}"
        player = runs.get(run)
        if player is None:
            missing.append(name)
            continue
        if set(rows[IDENTITY]) != {player.identity}:
            wrong.append(f"{name} was played by another agent than the checkpoint here")
            continue
        n = max(1, round(config.share * len(rows)))
        drawn = rows.iloc[np.sort(rng.choice(len(rows), n, replace=False))]
        again = evaluate_agent(
            player.actor,
            player.game,
            drawn["level"].tolist(),
            drawn["temperature"].to_numpy(),
            seed=player.seed,
            difficulty=player.difficulty,
        )
        same = (again[list(COMPARED)].to_numpy() == drawn[list(COMPARED)].to_numpy()).all(axis=1)
        played += n
        wrong += [
            f"{name}, level {level}: {then:g} in the rows, {now:g} when played again"
            for level, then, now, fits in zip(
                drawn["level"], drawn["return"], again["return"], same, strict=True
            )
            if not fits
        ]
    for sentence in wrong[:10]:
        print(sentence)
    if missing:
        print(f"no checkpoint below {config.runs}: {', '.join(missing)}")
    if wrong:
        print(f"{len(wrong)} of {played} episodes or runs came out otherwise.")
        raise FoundWrongError
    if not played:
        raise UserError(f"nothing could be played: {config.runs} has no run of {entry.method}.")
    print(f"{played} episodes were played again: every return, length and end is the same.")


def _find_runs(config: AgainConfig, entry: Entry) -> dict[tuple[Any, ...], Player]:
    """Game and seed -> the agent, of the entry's method, below --runs."""
    found, own = {}, config.runs / entry.protocol.name
    for stage in find_stages([own if own.is_dir() else config.runs]):
        manifest = stage.manifest
        if stage.kind == "run" and manifest.get("method") == entry.method:
            found[manifest["game"], manifest["seed"]] = find_players(str(stage.path))[0]
    return found
