"""Statistics that compare: methods with a baseline, returns on seen levels with those on unseen.

Frames as in stats.py. Two sides share the levels and seeds that were redrawn, so that a difference
is between the same levels and runs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats
from rliable import metrics

from gsf.core.errors import UserError
from gsf.evaluation.intervals import estimate
from gsf.evaluation.rows import REFERENCES
from gsf.nets.acting import TEMPERATURES, mode_at
from gsf.reporting.scores import Array, scores
from gsf.reporting.stats import (
    STATISTICS,
    Replicates,
    Statistic,
    aggregate,
    aggregate_draws,
    bootstrap,
    tidy,
)

_NOT_APPLICABLE = {"value": np.nan, "low": np.nan, "high": np.nan}


def improvement(replicates: Replicates, baseline: str = "cql") -> pd.DataFrame:
    """Probability that a run of the method beats a run of the baseline in the same game."""
    source = replicates.scores
    _require(baseline, source.methods)
    records = []
    for method in source.methods:
        if method == baseline:
            continue
        point, draws = (
            list(zip(of(method, source.games), of(baseline, source.games), strict=True))
            for of in (replicates.means, replicates.redrawn)
        )
        value = [metrics.probability_of_improvement(x[:, None], y[:, None]) for x, y in point]
        found = estimate(np.mean(value), np.mean([_beats(x, y) for x, y in draws], axis=0))
        n_seeds = min(source.n_seeds(method), source.n_seeds(baseline))
        records.append({"method": method, "baseline": baseline, **found, "n_seeds": n_seeds})
    return tidy(records, source, "probability").assign(n_games=len(source.games))


def _beats(x: Array, y: Array) -> Array:
    """Share of pairs of runs with x > y, ties counted half.  [n, seeds], [n, seeds'] -> [n]."""
    share: Array = (np.sign(x[:, :, None] - y[:, None, :]).mean(axis=(1, 2)) + 1) / 2
    return share


def _require(baseline: str, methods: Iterable[str]) -> None:
    if baseline not in methods:
        raise UserError(f"no runs of the baseline {baseline!r} to compare with; add some.")


def differences(replicates: Replicates, baseline: str = "cql") -> pd.DataFrame:
    """Method minus baseline on the same levels: per game, then each aggregate as game "iqm"..."""
    source = replicates.scores
    _require(baseline, source.returns)
    records = []
    for method in source.returns:
        if method != baseline:
            games = [g for g in source.returns[method] if g in source.returns[baseline]]
            for record in _contrast(replicates, method, replicates, baseline, games):
                records.append({"method": method, "baseline": baseline, **record})
    return tidy(records, source)


def tried_temperatures(rows: pd.DataFrame) -> list[float]:
    """At which trained runs played the validation levels, to choose their own among them."""
    tried = rows[(rows["split"] == "validation") & ~rows["method"].isin(REFERENCES)]
    return [t for t in TEMPERATURES if (tried["mode"] == mode_at(t)).any()]


def at_equal_temperatures(
    rows: pd.DataFrame, baseline: str = "cql", seed: int = 0, n: int = 500
) -> pd.DataFrame:
    """method x temperature: mean of `differences` on validation levels, all drawing alike.

    Over the games that were played at every temperature. Not of `relative`: on so few levels a
    baseline that earns little at one temperature would decide the mean of ratios.
    """
    at = {t: scores(rows, "validation", mode_at(t)) for t in tried_temperatures(rows)}
    games = tuple(sorted(set.intersection(*({*found.games} for found in at.values()))))
    frames = []
    for temperature, found in at.items():
        shared = replace(found, games=games, is_raw=len(games) == 1)
        frame = differences(bootstrap(shared, seed, n), baseline)
        overall = frame[(frame["game"] == "mean") & ~frame["method"].isin(REFERENCES)]
        frames.append(overall.assign(temperature=temperature, n_games=len(games)))
    gains = pd.concat(frames)
    if not len(gains):
        raise UserError(f"no method was played beside {baseline} at all of the temperatures.")
    gains = gains.assign(unit=gains["unit"] + f" - {baseline}'s").drop(columns=["game", "baseline"])
    return gains.assign(actions="all at the same temperature")


def gap(seen: Replicates, unseen: Replicates) -> pd.DataFrame:
    """The generalization gap, seen minus unseen, of runs in both: per game, then each aggregate."""
    records = []
    same_step = [g for g, step in seen.scores.steps.items() if step == unseen.scores.steps.get(g)]
    for method in seen.scores.returns:
        first, second = seen.scores.seeds[method], unseen.scores.seeds.get(method, {})
        games = [g for g in first if first[g] == second.get(g) and g in same_step]
        for record in _contrast(seen, method, unseen, method, games):
            records.append({"method": method, **record})
    split = f"{seen.scores.split} - {unseen.scores.split}"
    return tidy(records, seen.scores).assign(split=split)


def _contrast(
    a: Replicates, method_a: str, b: Replicates, method_b: str, games: Sequence[str]
) -> list[dict[str, Any]]:
    """a minus b. Replicates share the levels and seeds that both have: that is the pairing."""
    sides = ((a, method_a), (b, method_b))
    records: list[dict[str, Any]] = []

    def add(game: str, statistic: Statistic, among: Sequence[str]) -> None:
        value, subtracted = (aggregate(statistic, r.means(m, among)) for r, m in sides)
        draws, baseline = (aggregate_draws(statistic, r.redrawn(m, among)) for r, m in sides)
        n_seeds = min(r.scores.n_seeds(m, among) for r, m in sides)
        found = estimate(value - subtracted, draws - baseline)
        records.append({"game": game, **found, "n_seeds": n_seeds})

    for game in games:
        add(game, "mean", [game])
    common = [game for game in a.scores.games if game in b.scores.games]
    if common and set(common) <= set(games):
        for statistic in STATISTICS:
            add(statistic, statistic, common)
    return records


def relative(replicates: Replicates, baseline: str = "cql") -> pd.DataFrame:
    """The paper's (x - CQL)/CQL of raw returns: per game, and mean, median and IQM over games.

    The baseline is redrawn with the rest. Where its interval is not above 0 there is no ratio: NaN.
    """
    source = replicates.scores
    _require(baseline, source.returns)
    usable = positive_games(replicates, baseline)
    records = []
    for method in source.returns:
        if method == baseline:
            continue
        point, draws = {}, {}
        for game in [g for g in source.returns[method] if g in source.returns[baseline]]:
            n_seeds = min(len(source.seeds[m][game]) for m in (method, baseline))
            record = {"method": method, "game": game, **_NOT_APPLICABLE, "n_seeds": n_seeds}
            if game in usable:
                means = (source.run_means(m, game).mean() for m in (method, baseline))
                redrawn = (replicates.draws[m][game].mean(axis=1) for m in (method, baseline))
                point[game], draws[game] = _ratio(*means), _ratio(*redrawn)
                record |= estimate(point[game], draws[game])
            records.append(record)
        among = [g for g in source.games if g in usable]
        if among and method in source.methods:
            for name, average in _OVER_GAMES.items():
                value = average(np.array([point[g] for g in among]))
                overall = average(np.stack([draws[g] for g in among]))
                n_seeds = min(source.n_seeds(m, among) for m in (method, baseline))
                found = estimate(value, overall)
                records.append({"method": method, "game": name, **found, "n_seeds": n_seeds})
    return tidy(records, source, f"(x - {baseline}) / {baseline}")


def _ratio(x: Any, baseline: Any) -> Any:
    return (x - baseline) / baseline


_OVER_GAMES: Mapping[str, Callable[[Array], Any]] = {
    "mean": partial(np.mean, axis=0),
    "median": partial(np.median, axis=0),
    "iqm": lambda ratios: scipy.stats.trim_mean(ratios, 0.25, axis=0),
}


def gain_by_gap(seen: Replicates, unseen: Replicates, baseline: str = "cql") -> pd.DataFrame:
    """`relative` per game beside the baseline's own gap: does a method help where that is large?

    gap: (seen - unseen) / unseen of the baseline's raw return, with `gap_low` and `gap_high`.
    """
    gains = relative(unseen, baseline).dropna(subset=["value"])
    found = {}
    for game in set(gains["game"]) & set(seen.scores.returns.get(baseline, {})):
        both = (seen, unseen)
        point = _ratio(*(r.scores.run_means(baseline, game).mean() for r in both))
        draws = _ratio(*(r.draws[baseline][game].mean(axis=1) for r in both))
        found[game] = estimate(point, draws)
    gains = gains[gains["game"].isin(list(found))]
    names = {"gap": "value", "gap_low": "low", "gap_high": "high"}
    columns = {new: [found[g][old] for g in gains["game"]] for new, old in names.items()}
    return gains.assign(**columns)


def positive_games(replicates: Replicates, baseline: str) -> list[str]:
    """Games in which the whole interval of the baseline's return is above 0."""
    _require(baseline, replicates.draws)
    draws = replicates.draws[baseline]
    return [game for game in draws if np.quantile(draws[game].mean(axis=1), 0.025) > 0]


def ratios(replicates: Replicates, baseline: str = "cql") -> pd.DataFrame:
    """method x game x seed: raw return over the baseline's median run (the paper's box plot)."""
    source = replicates.scores
    _require(baseline, source.returns)
    usable = positive_games(replicates, baseline)
    records = []
    for method, by_game in source.returns.items():
        for game in [g for g in by_game if g in source.returns[baseline] and g not in source.weak]:
            middle = np.median(source.run_means(baseline, game)) if game in usable else np.nan
            runs = zip(source.seeds[method][game], source.run_means(method, game), strict=True)
            n_seeds = len(source.seeds[method][game])
            records += [
                {"method": method, "game": game, "seed": s, "value": x / middle, "n_seeds": n_seeds}
                for s, x in runs
            ]
    return tidy(records, source, f"return / median {baseline}")
