"""Entrants beside the baselines: means, ranks, paired differences, what could have been seen.

All statistics are those of `gsf report` (reporting/stats.py, contrasts.py, power.py); only the rank
is made here, of the same replicates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from gsf.benchmark.catalogue import Protocol
from gsf.benchmark.judge import CLOSED, OPEN, TRACK
from gsf.evaluation.intervals import REPLICATES, estimate
from gsf.evaluation.rows import REFERENCES
from gsf.reporting.contrasts import differences
from gsf.reporting.power import smallest_effect
from gsf.reporting.scores import Scores, scores
from gsf.reporting.stats import Replicates, bootstrap, per_game

Row = dict[str, Any]
FRAME = ["value", "low", "high"]


@dataclass(frozen=True)
class Comparison:
    """table: method, track, n_seeds; mean, rank and `minus NAME`, each as [value, low, high].

    games: the same of every game, without rank. effect: what could have been seen of an entrant.
    """

    table: list[Row]
    games: list[Row]
    best: str  # the best baseline
    against: tuple[str, ...]
    unit: str
    n_games: int
    n_seeds: int  # of the entrant with fewest, or of the baselines
    effect: float | None


def compare(
    rows: pd.DataFrame, protocol: Protocol, entrants: Sequence[str] = (), n: int = REPLICATES
) -> Comparison:
    """`rows`: of the baselines and the entrants; aggregates are over the games that all have."""
    measure = protocol.measure
    # A benchmark's games are fixed: none is left out because of its player.
    mine = rows[(rows["method"] != "behaviour") | (rows["split"] == measure["split"])]
    step = int(protocol.said["train"]["grad_steps"])
    trained = ~mine["method"].isin(REFERENCES)
    mine = mine.assign(step=mine["step"].where(~trained, step))
    found = scores(mine, measure["split"], measure["mode"])
    found = replace(found, is_raw=len(found.games) == 1)
    drawn = bootstrap(found, n=n)
    methods = found.methods
    plain = [m for m in methods if m in protocol.methods and "+" not in m]
    means = {m: drawn.estimate("mean", m, found.games) for m in methods}
    best = max(plain, key=lambda m: means[m]["value"], default=methods[-1])
    against = tuple(dict.fromkeys([*(x for x in protocol.said["compare"] if x in methods), best]))
    minus = {x: _numbers(differences(drawn, x)) for x in against}
    ranks = _ranks(drawn, [m for m in methods if m not in REFERENCES])
    opened = set(rows[rows[TRACK] == OPEN]["method"])
    everywhere = _numbers(per_game(drawn))

    def gains(method: str, game: str) -> dict[str, list[float] | None]:
        return {f"minus {x}": minus[x].get((method, game)) for x in against}

    table: list[Row] = [
        {
            "method": m,
            "track": OPEN if m in opened else CLOSED,
            "n_seeds": found.n_seeds(m),
            "mean": [means[m][x] for x in FRAME],
            "rank": ranks.get(m),
            **gains(m, "mean"),
        }
        for m in methods
    ]
    games: list[Row] = [
        {"game": g, "method": m, "mean": everywhere[m, g], **gains(m, g)}
        for g in found.games
        for m in methods
    ]
    n_seeds = min(found.n_seeds(m) for m in entrants or plain or methods)
    return Comparison(
        sorted(table, key=lambda row: -means[row["method"]]["value"]),
        games,
        best,
        against,
        found.unit,
        len(found.games),
        n_seeds,
        _effect(found, plain, against[0], n_seeds),
    )


def _numbers(frame: pd.DataFrame) -> dict[tuple[str, str], list[float]]:
    """Method and game -> value, low, high."""
    return {(x["method"], x["game"]): [x[k] for k in FRAME] for x in frame.to_dict("records")}


def _ranks(drawn: Replicates, methods: Sequence[str]) -> dict[str, list[float]]:
    """Mean over games of the place among methods, 1 the best, with its interval."""
    games = drawn.scores.games
    point = np.array([[x.mean() for x in drawn.means(m, games)] for m in methods])
    each = np.stack([[x.mean(axis=1) for x in drawn.redrawn(m, games)] for m in methods])
    value = rankdata(-point, axis=0).mean(axis=1)  # [methods, games] -> [methods]
    places = rankdata(-each, axis=0).mean(axis=1)  # [methods, games, n] -> [methods, n]
    found = (estimate(v, p) for v, p in zip(value, places, strict=True))
    return {m: [x[k] for k in FRAME] for m, x in zip(methods, found, strict=True)}


def _effect(found: Scores, plain: Sequence[str], baseline: str, n_seeds: int) -> float | None:
    """With an entrant's seeds, of a method whose noise is the mean of the baselines'."""
    others = (m for m in plain if m != baseline)
    effects = [smallest_effect(found, m, baseline, n_seeds=n_seeds) for m in others]
    known = [x for x in effects if x is not None]
    return float(np.mean(known)) if known else None
