"""Statistics of evaluation rows: a run is a seed, never an episode.

`bootstrap` redraws the seeds and levels of `scores.scores`; every other function returns a tidy
frame: keys, value, low, high (95 % interval), n_seeds, split, mode, unit. Point estimates are
rliable's. Same rows, same `seed`: same bytes. What compares methods is in contrasts.py.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy.stats
from rliable import metrics  # not rliable.library: it needs arch, which breaks under pandas 3

from gsf.core.files import digest
from gsf.core.naming import by_number, split_variant
from gsf.evaluation.intervals import REPLICATES, estimate, redraw
from gsf.evaluation.rows import REFERENCES
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
        """The same replicates, to be given in returns instead of scores."""
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


def tidy(records: list[dict[str, Any]], source: Scores, unit: str | None = None) -> pd.DataFrame:
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
    return tidy(records, source).assign(n_games=len(source.games))


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
    return tidy(records, source, "return" if raw else None)


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
    return tidy(records, source).assign(n_games=len(source.games))


def entropies(source: Scores) -> pd.DataFrame:
    """method x game: how random the play was, in nats. No interval: it is not compared."""
    by_run = by_entropy(source)
    records = [
        {"method": method, "game": game, "value": runs["entropy"].mean(), "n_seeds": len(runs)}
        for (method, game), runs in by_run.groupby(["method", "game"], sort=False)
    ]
    return tidy(records, source, "nats")


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
    return tidy(records, source, "return")


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
    return tidy(records, last).assign(statistic=statistic, n_games=len(last.games))


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
