"""Sections "Results" and "Tables": every figure and table of returns."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from gsf.core.errors import UserError
from gsf.evaluation.rows import REFERENCES, SPLITS
from gsf.reporting import figures, stats, tables
from gsf.reporting.page import Page, Part, text
from gsf.reporting.scores import Scores, scores
from gsf.reporting.stats import STATISTICS, Replicates

_OVERALL: Any = {"index": "method", "columns": "statistic"}


@dataclass(frozen=True)
class Returns:
    """Bootstrapped returns: of the headline, of seen levels, and of the other way to act."""

    rows: pd.DataFrame
    main: Replicates  # on unseen levels, unless these were not played or others asked for
    seen: Replicates | None
    other_mode: Replicates | None

    @property
    def all(self) -> list[Replicates]:
        return [x for x in (self.main, self.seen, self.other_mode) if x is not None]


def find_returns(
    rows: pd.DataFrame, split: str, mode: str, replicates: int, page: Page
) -> Returns | None:
    """None while there are no rows; another split or mode where those asked for have none."""

    def find(split: str, mode: str) -> Replicates | None:
        here = rows[(rows["split"] == split) & (rows["mode"] == mode)]
        if here["method"].isin(REFERENCES).all():  # or none at all
            return None
        found = stats.bootstrap(scores(rows, split, mode), n=replicates)
        return found.raw() if len(found.scores.games) == 1 else found

    for way, place in itertools.product(
        dict.fromkeys((mode, "sampled", "greedy")), dict.fromkeys((split, *reversed(SPLITS)))
    ):
        if (main := find(place, way)) is not None:
            seen = find("seen", way) if place != "seen" else None
            other = "sampled" if way == "greedy" else "greedy"
            return Returns(rows, main, seen, find(place, other))
        if len(rows):
            page.problems.append(f"No run has {place} rows with {way} actions.")
    return None


MOST_PANELS = 4  # games whose returns are shown side by side at first


def first_look(returns: Returns, page: Page) -> Part | None:
    """The one figure at the top: returns of up to four games, of more the aggregate scores."""
    main, source = returns.main, returns.main.scores
    by_game = stats.per_game(main, raw=True)
    by_game = by_game[by_game["game"].isin(source.games)]
    with_intervals = f"with {figures.over(by_game)}; {source.actions}. More is better"
    if len(source.games) <= MOST_PANELS:
        caption = f"Mean return of one episode on each of the {source.split} levels: points, "
        caption += f"{with_intervals}."
        inches = figures.first_width(len(source.games))
        return page.figure("first", "", caption, figures.first, lambda: by_game, inches=inches)
    overall = stats.aggregates(main)
    caption = f"IQM {source.unit} over {len(source.games)} games, {source.split} levels, "
    caption += f"{with_intervals}; every game's returns are below."
    only = overall[overall["statistic"] == "iqm"]
    return page.figure("first", "", caption, figures.intervals, lambda: only)


def define_scores(source: Scores) -> Part | None:
    """What a min-max score is; nothing where returns stay as they are."""
    if source.ranges is None:
        return None
    low = [g for g in source.games if _random_return(source, g) < source.ranges[g][0]]
    words = "Scores make games comparable: (return - low) / (high - low), by each game's published "
    words += "range. "
    shown = [f"{g} {source.ranges[g][0]:g} to {source.ranges[g][1]:g}" for g in source.games]
    words += f"Ranges: {', '.join(shown)}. "
    if low:
        words += "Below 0 is below that range: so is random play, which earns less than the range "
        words += f"begins with in {', '.join(low)}."
    return text(words.strip(), "note")


def _random_return(source: Scores, game: str) -> float:
    played = source.returns.get("random", {})
    return float(source.run_means("random", game).mean()) if game in played else math.inf


def results(returns: Returns, baseline: str, page: Page) -> Iterator[Part | None]:
    main, seen, source = returns.main, returns.seen, returns.main.scores
    title = f"Mean return, {source.split} levels"
    yield page.table("mean_returns", title, lambda: stats.per_game(main, raw=True))
    if seen is not None:
        yield page.figure(
            "per_game",
            f"Every game, seen and {source.split} levels",
            f"Mean return on {source.split} levels (filled) and on seen levels (outlined).",
            figures.per_game,
            lambda: stats.per_game(seen, raw=True),
            lambda: stats.per_game(main, raw=True),
        )
    if len(source.games) > 1:  # of one game they are its mean return, thrice
        title = f"Aggregate {source.unit}, {source.split} levels"
        yield page.table("aggregates", title, lambda: stats.aggregates(main), **_OVERALL)
        yield page.figure(
            "intervals",
            f"Aggregate {source.unit}",
            "Interquartile mean, mean and median over runs and games: bars are 95 % intervals, the "
            "line in them the estimate.",
            figures.intervals,
            lambda: stats.aggregates(main),
        )
    yield from _against(returns, baseline, page)
    yield from _by_randomness(returns, baseline, page)
    yield from _by_setting(returns, page)
    yield page.figure(
        "profiles",
        "Performance profiles",
        "Share of runs above each score.",
        figures.profiles,
        lambda: stats.profiles(main),
    )
    yield page.figure(
        "improvement",
        f"Probability of improvement over {baseline}",
        f"That a run of the method beats a run of {baseline} in the same game.",
        figures.improvement,
        lambda: stats.improvement(main, baseline),
        inches=5,
    )


def _against(returns: Returns, baseline: str, page: Page) -> Iterator[Part | None]:
    """Every run, and the gap between seen and other levels, beside the baseline's."""
    main, seen, source = returns.main, returns.seen, returns.main.scores
    of_paper = baseline == "cql" and tables.paper_games() == set(source.games)
    yield page.figure(
        "box",
        f"Every run against {baseline}" + (": the paper's main figure" if of_paper else ""),
        f"Return of each run divided by the median {baseline} run of its game.",
        figures.box,
        lambda: _ratios(main, baseline),
    )
    if seen is not None:
        yield page.figure(
            "gap",
            "Generalization gap",
            f"{source.unit.capitalize()} on seen minus {source.split} levels, of the same runs.",
            figures.intervals,
            lambda: _gap_aggregates(seen, main),
        )
        yield page.figure(
            "gain_by_gap",
            f"Where a method gains on {baseline}",
            f"What each method gains on {baseline} in a game, against what {baseline} loses there "
            f"from seen to {source.split} levels.",
            figures.gain_by_gap,
            lambda: _gains(seen, main, baseline),
        )


def _by_randomness(returns: Returns, baseline: str, page: Page) -> Iterator[Part | None]:
    source = returns.main.scores
    if source.mode != "greedy":
        yield page.figure(
            "by_entropy",
            "How good, and how random",
            f"Return of every run on {source.split} levels against the entropy of its policy. If "
            "return rises with entropy alone, a method gains by playing more randomly, not better.",
            figures.by_entropy,
            lambda: _with_entropy(source),
        )
    if len(stats.tried_temperatures(returns.rows)) > 1:
        yield page.figure(
            "at_equal_temperatures",
            "If all draw at the same temperature",
            f"What each method gains on {baseline} on validation levels, mean over games. Every "
            "run was tried at all of these temperatures there, to choose its own. Where the order "
            "of methods changes with the temperature, it is no property of the methods alone.",
            figures.at_equal_temperatures,
            lambda: stats.at_equal_temperatures(returns.rows, baseline),
        )


def _by_setting(returns: Returns, page: Page) -> Iterator[Part | None]:
    """What changes along training and with a method's options."""
    main, source = returns.main, returns.main.scores
    trained = returns.rows[~returns.rows["method"].isin(REFERENCES)]
    if trained.loc[trained["split"] == source.split, "step"].nunique() > 1:
        yield page.figure(
            "curves",
            "Learning curves",
            f"IQM on {source.split} levels of the checkpoints that were kept.",
            figures.curves,
            lambda: stats.curves(returns.rows, source.split, source.mode),
        )
    if by_option := stats.ablations(main):
        yield page.figure(
            "ablations",
            "One option at a time",
            f"IQM on {source.split} levels of each method as it is (filled) and of its variants "
            "that differ in one option. To choose a setting, use --tune or --split validation.",
            figures.ablations,
            lambda: by_option,
        )


def _ratios(main: Replicates, baseline: str) -> pd.DataFrame:
    ratios = stats.ratios(main, baseline)
    if ratios["value"].isna().all():
        raise UserError(f"the returns of {baseline} are not above 0 in any game.")
    return ratios


def _with_entropy(source: Scores) -> pd.DataFrame:
    runs = stats.by_entropy(source)
    if not len(runs) or runs["method"].isin(REFERENCES).all():
        raise UserError("no run's rows have an entropy; evaluate them again.")
    return runs


def _gains(seen: Replicates, main: Replicates, baseline: str) -> pd.DataFrame:
    gains = stats.gain_by_gap(seen, main, baseline)
    gains = gains[~gains["method"].isin(REFERENCES)]
    if not len(gains):
        raise UserError(f"no game has another method beside {baseline} on seen and unseen levels.")
    return gains


def _gap_aggregates(seen: Replicates, main: Replicates) -> pd.DataFrame:
    gap = stats.gap(seen, main)
    gap = gap[gap["game"].isin(STATISTICS)].rename(columns={"game": "statistic"})
    if not len(gap):
        raise UserError(f"no run has results on both seen and {main.scores.split} levels.")
    return _once(gap, main.scores).assign(n_games=len(main.scores.games))


def _once(tidy: pd.DataFrame, source: Scores) -> pd.DataFrame:
    """Of one game IQM, mean and median say the same: the mean alone, or just the game's own row."""
    if len(source.games) > 1:
        return tidy
    if "statistic" in tidy:
        return tidy[tidy["statistic"] == "mean"]
    return tidy[~tidy["game"].isin(STATISTICS)]


def all_tables(returns: Returns, baseline: str, page: Page) -> Iterator[Part | None]:
    main, seen, other = returns.main, returns.seen, returns.other_mode
    split, unit = main.scores.split, main.scores.unit
    if other is not None:
        title = f"{'Aggregate' if len(main.scores.games) > 1 else 'Mean'} {unit}, "
        title += other.scores.actions
        frame = _once(stats.aggregates(other), other.scores)
        if other.scores.mode == "greedy":
            frame = frame[frame["method"] != "random"]  # it has no best action
        yield page.table("aggregates_other_mode", title, lambda: frame, **_OVERALL)
    if unit != "return":
        title = f"Min-max score, {split} levels"
        yield page.table("scores", title, lambda: stats.per_game(main))
    if seen is not None:
        title = "Mean return, seen levels"
        yield page.table("mean_returns_seen", title, lambda: stats.per_game(seen, raw=True))
        title = f"Generalization gap: seen minus {split}, {unit}"
        yield page.table("gap", title, lambda: _once(stats.gap(seen, main), main.scores))
    title, note = f"(x - {baseline}) / {baseline}", "n/a: the baseline's interval is not above 0."
    beside_paper = baseline == "cql" and not tables.paper_games().isdisjoint(main.scores.games)
    if beside_paper:
        title += ", beside the paper's numbers"
        note = "Columns marked (paper) are the paper's table; their mean and median are over the "
        note += "games that ours are over. n/a: the baseline's interval is not above 0."

    def relative() -> pd.DataFrame:
        found = stats.relative(main, baseline)
        found = tables.beside_paper(found, main.scores.weak) if beside_paper else found
        return _once(found, main.scores)

    yield page.table("relative", title, relative, note)
    title = f"{unit.capitalize()} minus {baseline}'s, paired by level"
    paired = partial(stats.differences, main, baseline)
    yield page.table("differences", title, lambda: _once(paired(), main.scores))
    if main.scores.mode != "greedy":
        title = f"How random the play was, {split} levels"
        note = "Mean entropy of the policy over the actions that differ, in nats. A method near to "
        note += "random play hardly chooses, whatever it returns."
        yield page.table("entropy", title, lambda: stats.entropies(main.scores), note)
    if len(stats.tried_temperatures(returns.rows)) > 1:
        title = f"{unit.capitalize()} minus {baseline}'s if all draw at the same temperature"
        axes: Any = {"index": "method", "columns": "temperature"}
        gains = partial(stats.at_equal_temperatures, returns.rows, baseline)
        yield page.table("at_equal_temperatures", title, gains, **axes)
    title = f"Probability of improvement over {baseline}"
    shape: Any = {"index": "method", "columns": "baseline"}
    yield page.table("improvement", title, lambda: stats.improvement(main, baseline), **shape)
