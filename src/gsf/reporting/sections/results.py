"""Sections "Results" and "Tables": the list of every figure and table of returns."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from gsf.core.errors import UserError
from gsf.evaluation.rows import REFERENCES
from gsf.reporting import contrasts, figures, stats, tables
from gsf.reporting.captions import over
from gsf.reporting.page import Page, Part, Shown
from gsf.reporting.returns import Returns
from gsf.reporting.scores import Scores
from gsf.reporting.stats import STATISTICS

MOST_PANELS = 4  # games whose returns are shown side by side at first
_OVERALL: Any = {"index": "method", "columns": "statistic"}


def first_look(returns: Returns, page: Page) -> Iterator[Part | None]:
    """The one figure at the top: returns of up to four games, of more the aggregate scores."""
    by_game = stats.per_game(returns.main, raw=True)
    by_game = by_game[by_game["game"].isin(returns.source.games)]
    ending = "with {intervals}; {actions}. More is better"
    if len(returns.source.games) <= MOST_PANELS:
        words = f"Mean return of one episode on each of the {{split}} levels: points, {ending}."
        inches = figures.first_width(len(returns.source.games))
        shown = Shown("first", "", lambda r: by_game, figures.first, words, inches=inches)
    else:
        words = f"IQM {{unit}} over {{n}} games, {{split}} levels, {ending}; every game's returns "
        shown = Shown("first", "", _iqm, figures.intervals, f"{words}are below.")
    yield from page.show([shown], returns, intervals=over(by_game), **returns.names)


def results(returns: Returns, page: Page) -> Iterator[Part | None]:
    of_paper = returns.baseline == "cql" and tables.paper_games() == set(returns.source.games)
    own = {"whose": ": the paper's main figure" if of_paper else ""}
    return page.show(RESULTS, returns, **own, **returns.names)


def all_tables(returns: Returns, page: Page) -> Iterator[Part | None]:
    other, about = returns.other_mode, {"beside": "", "of_paper": ""}
    if _beside_paper(returns):
        about["beside"] = ", beside the paper's numbers"
        about["of_paper"] = "Columns marked (paper) are the paper's table; their mean and median "
        about["of_paper"] += "are over the games that ours are over. "
    about["other"] = other.scores.actions if other else ""
    return page.show(TABLES, returns, **about, **returns.names)


def _iqm(r: Returns) -> pd.DataFrame:
    overall = stats.aggregates(r.main)
    return overall[overall["statistic"] == "iqm"]


def _is_sampled(r: Returns) -> bool:
    return r.source.mode != "greedy"


def _has_several_temperatures(r: Returns) -> bool:
    return len(contrasts.tried_temperatures(r.rows)) > 1


def _at_equal_temperatures(r: Returns) -> pd.DataFrame:
    return contrasts.at_equal_temperatures(r.rows, r.baseline)


def _has_checkpoints(r: Returns) -> bool:
    trained = r.rows[~r.rows["method"].isin(REFERENCES) & (r.rows["split"] == r.source.split)]
    return trained["step"].nunique() > 1


def _beside_paper(r: Returns) -> bool:
    return r.baseline == "cql" and not tables.paper_games().isdisjoint(r.source.games)


def _ratios(r: Returns) -> pd.DataFrame:
    ratios = contrasts.ratios(r.main, r.baseline)
    if ratios["value"].isna().all():
        raise UserError(f"the returns of {r.baseline} are not above 0 in any game.")
    return ratios


def _with_entropy(r: Returns) -> pd.DataFrame:
    runs = stats.by_entropy(r.source)
    if not len(runs) or runs["method"].isin(REFERENCES).all():
        raise UserError("no run's rows have an entropy; evaluate them again.")
    return runs


def _gains(r: Any) -> pd.DataFrame:
    gains = contrasts.gain_by_gap(r.seen, r.main, r.baseline)
    gains = gains[~gains["method"].isin(REFERENCES)]
    if not len(gains):
        raise UserError(
            f"no game has another method beside {r.baseline} on seen and unseen levels."
        )
    return gains


def _gap_aggregates(r: Any) -> pd.DataFrame:
    gap = contrasts.gap(r.seen, r.main)
    gap = gap[gap["game"].isin(STATISTICS)].rename(columns={"game": "statistic"})
    if not len(gap):
        raise UserError(f"no run has results on both seen and {r.source.split} levels.")
    return _once(gap, r.source).assign(n_games=len(r.source.games))


def _other_mode(r: Any) -> pd.DataFrame:
    frame = _once(stats.aggregates(r.other_mode), r.other_mode.scores)
    is_greedy = r.other_mode.scores.mode == "greedy"  # random play has no best action
    return frame[frame["method"] != "random"] if is_greedy else frame


def _relative(r: Returns) -> pd.DataFrame:
    found = contrasts.relative(r.main, r.baseline)
    found = tables.beside_paper(found, r.source.weak) if _beside_paper(r) else found
    return _once(found, r.source)


def _once(tidy: pd.DataFrame, source: Scores) -> pd.DataFrame:
    """Of one game IQM, mean and median are one number: it is shown once."""
    if len(source.games) > 1:
        return tidy
    if "statistic" in tidy:
        return tidy[tidy["statistic"] == "mean"]
    return tidy[~tidy["game"].isin(STATISTICS)]


# Name, title, what of the returns is shown, what draws it (a table: nothing), words.
# fmt: off
RESULTS = (
    Shown("mean_returns", "Mean return, {split} levels",
          lambda r: stats.per_game(r.main, raw=True)),
    Shown("per_game", "Every game, seen and {split} levels",
          lambda r: (stats.per_game(r.seen, raw=True), stats.per_game(r.main, raw=True)),
          figures.per_game, "Mean return on {split} levels (filled) and on seen levels (outlined).",
          when=lambda r: r.seen),
    Shown("aggregates", "Aggregate {unit}, {split} levels", lambda r: stats.aggregates(r.main),
          when=lambda r: r.several, **_OVERALL),
    Shown("intervals", "Aggregate {unit}", lambda r: stats.aggregates(r.main), figures.intervals,
          "Interquartile mean, mean and median over runs and games: bars are 95 % intervals, the "
          "line in them the estimate.", when=lambda r: r.several),
    Shown("box", "Every run against {baseline}{whose}", _ratios, figures.box,
          "Return of each run divided by the median {baseline} run of its game."),
    Shown("gap", "Generalization gap", _gap_aggregates, figures.intervals,
          "{Unit} on seen minus {split} levels, of the same runs.", when=lambda r: r.seen),
    Shown("gain_by_gap", "Where a method gains on {baseline}", _gains, figures.gain_by_gap,
          "What each method gains on {baseline} in a game, against what {baseline} loses there "
          "from seen to {split} levels.", when=lambda r: r.seen),
    Shown("by_entropy", "How good, and how random", _with_entropy, figures.by_entropy,
          "Return of every run on {split} levels against the entropy of its policy. If return "
          "rises with entropy alone, a method gains by playing more randomly, not better.",
          when=_is_sampled),
    Shown("at_equal_temperatures", "If all draw at the same temperature",
          _at_equal_temperatures, figures.at_equal_temperatures,
          "What each method gains on {baseline} on validation levels, mean over games. Every run "
          "was tried at all of these temperatures there, to choose its own. Where the order of "
          "methods changes with the temperature, it is no property of the methods alone.",
          when=_has_several_temperatures),
    Shown("curves", "Learning curves",
          lambda r: stats.curves(r.rows, r.source.split, r.source.mode), figures.curves,
          "IQM on {split} levels of the checkpoints that were kept.", when=_has_checkpoints),
    Shown("ablations", "One option at a time", lambda r: stats.ablations(r.main), figures.ablations,
          "IQM on {split} levels of each method as it is (filled) and of its variants that differ "
          "in one option. To choose a setting, use --tune or --split validation.",
          when=lambda r: stats.ablations(r.main)),
    Shown("profiles", "Performance profiles", lambda r: stats.profiles(r.main), figures.profiles,
          "Share of runs above each score."),
    Shown("improvement", "Probability of improvement over {baseline}",
          lambda r: contrasts.improvement(r.main, r.baseline), figures.improvement,
          "That a run of the method beats a run of {baseline} in the same game.", inches=5),
)

TABLES = (
    Shown("aggregates_other_mode", "{Aggregate} {unit}, {other}", _other_mode,
          when=lambda r: r.other_mode, **_OVERALL),
    Shown("scores", "Min-max score, {split} levels", lambda r: stats.per_game(r.main),
          when=lambda r: r.source.unit != "return"),
    Shown("mean_returns_seen", "Mean return, seen levels",
          lambda r: stats.per_game(r.seen, raw=True), when=lambda r: r.seen),
    Shown("gap", "Generalization gap: seen minus {split}, {unit}",
          lambda r: _once(contrasts.gap(r.seen, r.main), r.source), when=lambda r: r.seen),
    Shown("relative", "(x - {baseline}) / {baseline}{beside}", _relative,
          words="{of_paper}n/a: the baseline's interval is not above 0."),
    Shown("differences", "{Unit} minus {baseline}'s, paired by level",
          lambda r: _once(contrasts.differences(r.main, r.baseline), r.source)),
    Shown("entropy", "How random the play was, {split} levels", lambda r: stats.entropies(r.source),
          words="Mean entropy of the policy over the actions that differ, in nats. A method near "
          "to random play hardly chooses, whatever it returns.", when=_is_sampled),
    Shown("at_equal_temperatures", "{Unit} minus {baseline}'s if all draw at the same temperature",
          _at_equal_temperatures, when=_has_several_temperatures,
          index="method", columns="temperature"),
    Shown("improvement", "Probability of improvement over {baseline}",
          lambda r: contrasts.improvement(r.main, r.baseline), index="method", columns="baseline"),
)
# fmt: on
