"""Statistics of evaluation rows: a run is a seed, never an episode.

`bootstrap` redraws the seeds and levels of `scores.scores`; every other function returns a tidy
frame: keys, value, low, high (95 % interval), n_seeds, split, mode, unit. Point estimates are
rliable's. Same rows, same `seed`: same bytes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy.stats
from rliable import metrics  # not rliable.library: it needs arch, which breaks under pandas 3

from gsf.core.errors import UserError
from gsf.core.files import digest
from gsf.core.variants import by_number, split_variant
from gsf.evaluation.intervals import REPLICATES, estimate, redraw
from gsf.evaluation.rows import REFERENCES
from gsf.nets.acting import TEMPERATURES, mode_at
from gsf.reporting.scores import Array, Scores, scores

Statistic = Literal["iqm", "mean", "median"]
STATISTICS: tuple[Statistic, ...] = ("iqm", "mean", "median")
DEFAULT = "default"  # what figures call the setting of a method that is no variant
FEW_SEEDS = 3  # with fewer seeds no interval over them means much, and figures say so


@dataclass(frozen=True)
class Replicates:
    """Bootstrap replicates of every run mean, in raw returns: method -> game -> [n, seeds]."""

    scores: Scores
    draws: dict[str, dict[str, Array]]

    def raw(self) -> "Replicates":
        """The same, but in returns where these are scores."""
        return replace(self, scores=replace(self.scores, is_raw=True))

    def means(self, method: str, games: Iterable[str]) -> list[Array]:
        """Normalised run means, not redrawn: one [seeds] per game."""
        return [self.scores.normalise(g, self.scores.run_means(method, g)) for g in games]

    def redrawn(self, method: str, games: Iterable[str]) -> list[Array]:
        """Normalised replicates: one [n, seeds] per game."""
        return [self.scores.normalise(g, self.draws[method][g]) for g in games]

    def estimate(self, statistic: Statistic, method: str, games: Iterable[str]) -> dict[str, float]:
        games = list(games)
        value = aggregate(statistic, self.means(method, games))
        return estimate(value, aggregate_draws(statistic, self.redrawn(method, games)))


def bootstrap(source: Scores, seed: int = 0, n: int = REPLICATES) -> Replicates:
    """Redraw the levels of each game, alike for all methods, and each method's seeds in each game.

    Streams are named after what they draw: a method's interval does not depend on which others
    are compared, and seen, unseen, greedy and sampled redraw the same seeds of a run.
    """
    draws: dict[str, dict[str, Array]] = {method: {} for method in source.returns}
    for game in sorted({game for by_game in source.returns.values() for game in by_game}):
        here = [method for method in source.returns if game in source.returns[method]]
        n_levels = source.returns[here[0]][game].shape[1]
        rng = _stream(seed, "levels", game, source.split)
        weights = redraw(n_levels, rng, n)
        for method in here:
            means = weights @ source.returns[method][game].T  # [n, seeds]
            rng = _stream(seed, "seeds", game, method)
            drawn = rng.integers(means.shape[1], size=means.shape)
            draws[method][game] = np.take_along_axis(means, drawn, axis=1)
    return Replicates(source, draws)


def _stream(seed: int, *names: str) -> np.random.Generator:
    return np.random.default_rng([seed, int(digest("/".join(names)), 16)])


def aggregate(statistic: Statistic, runs: Sequence[Array]) -> float:
    """rliable's aggregate of run means [seeds], one array per game (games may lack seeds)."""
    if statistic == "iqm":
        return float(metrics.aggregate_iqm(np.concatenate(runs)))
    function = {"mean": metrics.aggregate_mean, "median": metrics.aggregate_median}[statistic]
    return float(function(np.array([[game.mean() for game in runs]])))


def aggregate_draws(statistic: Statistic, runs: Sequence[Array]) -> Array:
    """`aggregate` of every replicate: a list of [n, seeds] -> [n]."""
    if statistic == "iqm":
        pooled: Array = scipy.stats.trim_mean(np.concatenate(runs, axis=1), 0.25, axis=1)
        return pooled
    by_game = np.stack([game.mean(axis=1) for game in runs])
    function = np.mean if statistic == "mean" else np.median
    overall: Array = function(by_game, axis=0)
    return overall


_NOT_APPLICABLE = {"value": np.nan, "low": np.nan, "high": np.nan}


def _frame(records: list[dict[str, Any]], source: Scores, unit: str | None = None) -> pd.DataFrame:
    keys = ["method", "game", "value", "low", "high", "n_seeds"]
    frame = pd.DataFrame(records, columns=None if records else keys)
    facts = {"split": source.split, "mode": source.mode, "actions": source.actions}
    return frame.assign(**facts, unit=unit or source.unit)


def aggregates(replicates: Replicates) -> pd.DataFrame:
    """method x statistic (iqm, mean, median) over runs and games."""
    source = replicates.scores
    records = [
        {
            "method": method,
            "statistic": statistic,
            **replicates.estimate(statistic, method, source.games),
            "n_seeds": source.n_seeds(method),
        }
        for method in source.methods
        for statistic in STATISTICS
    ]
    return _frame(records, source).assign(n_games=len(source.games))


def per_game(replicates: Replicates, raw: bool = False) -> pd.DataFrame:
    """method x game: mean over seeds and levels, as min-max score or raw return."""
    source = replicates.scores
    records = []
    for method, by_game in source.returns.items():
        for game in by_game:
            value, draws = source.run_means(method, game), replicates.draws[method][game]
            if not raw:
                value, draws = source.normalise(game, value), source.normalise(game, draws)
            found = estimate(value.mean(), draws.mean(axis=1))
            n_seeds = len(source.seeds[method][game])
            records.append({"method": method, "game": game, **found, "n_seeds": n_seeds})
    return _frame(records, source, "return" if raw else None)


def profiles(replicates: Replicates, thresholds: Array | None = None) -> pd.DataFrame:
    """method x threshold: share of runs with a score above it (rliable's score distribution)."""
    source = replicates.scores
    point = {m: np.concatenate(replicates.means(m, source.games)) for m in source.methods}
    if thresholds is None:
        pooled = np.concatenate(list(point.values()))
        thresholds = np.linspace(min(0.0, pooled.min()), max(pooled.max(), 0.01) * 1.02, 101)
    records = []
    for method in source.methods:
        draws = np.concatenate(replicates.redrawn(method, source.games), axis=1)  # [n, runs]
        for threshold in thresholds:
            found = estimate((point[method] > threshold).mean(), (draws > threshold).mean(1))
            records.append({"method": method, "threshold": threshold, **found})
            records[-1]["n_seeds"] = source.n_seeds(method)
    return _frame(records, source).assign(n_games=len(source.games))


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
    return _frame(records, source, "probability").assign(n_games=len(source.games))


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
    return _frame(records, source)


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
    return _frame(records, seen.scores).assign(split=split)


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
    return _frame(records, source, f"(x - {baseline}) / {baseline}")


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
    draws = replicates.draws[baseline]
    return [game for game in draws if np.quantile(draws[game].mean(axis=1), 0.025) > 0]


def entropies(source: Scores) -> pd.DataFrame:
    """method x game: how random the play was, in nats. No interval: it is not compared."""
    by_run = by_entropy(source)
    records = [
        {"method": method, "game": game, "value": runs["entropy"].mean(), "n_seeds": len(runs)}
        for (method, game), runs in by_run.groupby(["method", "game"], sort=False)
    ]
    return _frame(records, source, "nats")


def by_entropy(source: Scores) -> pd.DataFrame:
    """method x game x seed: raw return, and how random the play was that earned it."""
    records = []
    for method, by_game in source.returns.items():
        for game in by_game:
            seeds = source.seeds[method][game]
            runs = zip(
                seeds, source.run_means(method, game), source.entropy[method][game], strict=True
            )
            keys = {"method": method, "game": game, "n_seeds": len(seeds)}
            records += [
                {**keys, "seed": seed, "value": value, "entropy": nats}
                for seed, value, nats in runs
                if not np.isnan(nats)  # older rows have none
            ]
    return _frame(records, source, "return")


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
    return _frame(records, source, f"return / median {baseline}")


def curves(
    rows: pd.DataFrame,
    split: str = "unseen",
    mode: str = "greedy",
    statistic: Statistic = "iqm",
    seed: int = 0,
    n: int = 500,
) -> pd.DataFrame:
    """Learning curves: method x step over the games of `scores`; references at every step."""
    last = scores(rows, split, mode)
    last = replace(last, is_raw=len(last.games) == 1)
    trained = rows[(rows["split"] == split) & ~rows["method"].isin(REFERENCES)]
    records = []
    for step in sorted(set(trained["step"])):
        found_here = replace(scores(rows, split, mode, int(step)), is_raw=last.is_raw)
        at_step = bootstrap(found_here, seed, n)
        for method, by_game in at_step.scores.returns.items():
            if set(last.games) <= set(by_game):
                found = at_step.estimate(statistic, method, last.games)
                records.append({"method": method, "step": int(step), **found})
                records[-1]["n_seeds"] = at_step.scores.n_seeds(method, last.games)
    return _frame(records, last).assign(statistic=statistic, n_games=len(last.games))


def ablations(replicates: Replicates, statistic: Statistic = "iqm") -> dict[str, pd.DataFrame]:
    """Method and option -> the method as it is and its variants that differ in this option alone.

    A column `setting` has the option's values.
    """
    found = aggregates(replicates)
    found = found[found["statistic"] == statistic].set_index("method")
    variants: dict[tuple[str, str], dict[str, str]] = {}  # setting -> name
    for name in found.index:
        method, settings = split_variant(name)
        if len(settings) == 1:
            option, _, setting = settings[0].partition("=")
            plain = {DEFAULT: method} if method in found.index else {}
            variants.setdefault((method, option), plain)[setting] = name
    frames = {}
    for (method, option), by_setting in variants.items():
        order = sorted(by_setting, key=lambda x: (x != DEFAULT, by_number(x)))
        frame = found.loc[[by_setting[setting] for setting in order]]
        frames[f"{method}\n{option}"] = frame.assign(setting=order, method=method)
    return frames
