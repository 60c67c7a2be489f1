"""Figures of returns: tidy frames of `stats` in, a matplotlib Figure out.

Every one says its split, action mode and seeds, and what its intervals are over.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

from gsf.core.drawing import DOTTED, WIDTH, in_a_row, is_narrow, new_figure, panels, styled, wrapped
from gsf.core.naming import split_variant
from gsf.evaluation.rows import REFERENCES
from gsf.learn.legend import colour, in_order, marker
from gsf.reporting.captions import source
from gsf.reporting.scores import Array
from gsf.reporting.stats import DEFAULT

_HALO = [withStroke(linewidth=2.2, foreground="white")]  # black lines stay visible on dark bars
NAMES_OF_REFERENCES = {"random": "random play", "behaviour": "recorded player"}


def errors(frame: pd.DataFrame) -> Array:
    """[2, n], how far intervals reach below and above the estimate; 0 where it lies outside."""
    return np.maximum([frame["value"] - frame["low"], frame["high"] - frame["value"]], 0)


def _methods_on(axis: Any, methods: Sequence[str], **options: Any) -> None:
    axis.set_ticks(range(len(methods)), [_shown(m) for m in methods], **options)


def _shown(method: str) -> str:
    return in_lines(method) if is_narrow() else method


def _n_lines(methods: Sequence[str]) -> int:
    """How many lines their names take, one below the other."""
    return sum(1 + _shown(method).count("\n") for method in methods)


def _in_words(statistic: str) -> str:
    return "IQM" if statistic == "iqm" else statistic


def in_lines(method: str) -> str:
    """A variant's settings below each other."""
    plain, settings = split_variant(method)
    return "\n+".join((plain, *settings))


def _legend_beside(figure: Figure, ax: Axes) -> None:
    """The legend of a panel, right of all panels, on a phone above; the figure grows to have room
    for it."""
    handles, names = ax.get_legend_handles_labels()
    lines = sum(0.05 + 0.13 * (1 + name.count("\n")) for name in names)
    if is_narrow():
        figure.set_figheight(figure.get_figheight() + lines)
        figure.legend(handles, names, loc="outside upper left", fontsize=7.5)
    else:
        figure.set_figheight(max(figure.get_figheight(), 0.9 + lines))
        figure.legend(handles, names, loc="outside right center", fontsize=7.5)


def first_width(n_games: int) -> float:
    """Inches; up to two games stand below each other, so that they can be read on a phone."""
    return 4.5 if n_games <= 2 else WIDTH


@styled
def first(returns: pd.DataFrame) -> Figure:
    """The first look: a panel per game, mean returns with intervals; dashed: references."""
    games = sorted(set(returns["game"]))
    trained = returns[~returns["method"].isin(REFERENCES)]
    methods = in_order(trained["method"])[::-1]
    columns = 1 if len(games) <= 2 or is_narrow() else 2
    rows = math.ceil(len(games) / columns)
    names = [in_lines(method) for method in methods]
    n_lines = sum(1 + name.count("\n") for name in names)
    height = 0.5 + rows * (0.6 + 0.11 * len(names) + 0.15 * n_lines)
    figure = new_figure(height, source(returns), first_width(len(games)))
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
    axes = grid.flat[: len(games)]
    for ax in grid.flat[len(games) :]:
        ax.set_visible(False)
    for ax, game in zip(axes, games, strict=True):
        here = returns[returns["game"] == game].set_index("method")
        _points(ax, here, methods, linewidth=5, alpha=0.35)
        for name, words in NAMES_OF_REFERENCES.items():
            if name in here.index:
                x = here.loc[name, "value"]
                ax.axvline(x, color=colour(name), linestyle="--", linewidth=1.2, label=words)
        ax.set_title(game)
        _few_ticks(ax, 6 // columns)
    axes[-1].set_xlabel("mean return")
    axes[0].yaxis.set_ticks(range(len(names)), names)
    handles, labels = axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper right", ncols=2, fontsize=7.5)
    return figure


def _points(ax: Axes, frame: pd.DataFrame, methods: Sequence[str], **line: Any) -> None:
    """A row for each method, also those that are not in the frame: its value on its interval."""
    for y, method in enumerate(methods):
        if method in frame.index:
            row, hue = frame.loc[method], colour(method)
            ax.plot([row["low"], row["high"]], [y, y], color=hue, **line)
            ax.plot(row["value"], y, marker(method), color=hue, markersize=6.5, clip_on=False)
    ax.set_ylim(-0.6, len(methods) - 0.4)
    ax.grid(axis="y", visible=False)


def _few_ticks(ax: Axes, n: int = 3) -> None:
    """So few numbers on the axis of a narrow panel that they touch neither each other nor those of
    the panel beside it."""
    ax.xaxis.set_major_locator(MaxNLocator(max(n, 2), prune="upper" if n <= 3 else None))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:z.4g}"))


@styled
def intervals(aggregates: pd.DataFrame) -> Figure:
    """Headline: IQM, mean and median of every method with their intervals."""
    methods = in_order(aggregates["method"])[::-1]
    statistics = list(dict.fromkeys(aggregates["statistic"]))
    height = 0.9 + 0.24 * _n_lines(methods)
    figure, axes = in_a_row(len(statistics), height, source(aggregates), sharey=True)
    for ax, statistic in zip(axes, statistics, strict=True):
        frame = aggregates[aggregates["statistic"] == statistic].set_index("method").loc[methods]
        for y, (method, row) in enumerate(frame.iterrows()):
            ax.barh(y, row["high"] - row["low"], 0.62, row["low"], color=colour(str(method)))
            line: Any = {"color": "black", "linewidth": 1.2, "path_effects": _HALO}
            ax.plot([row["value"]] * 2, [y - 0.38, y + 0.38], **line)
        ax.use_sticky_edges = False
        ax.set_title(_in_words(statistic))
        ax.grid(axis="y", visible=False)
        ax.set_xlabel(aggregates["unit"].iloc[0])
        _few_ticks(ax)
    _methods_on(axes[0].yaxis, methods)
    return figure


@styled
def box(ratios: pd.DataFrame) -> Figure:
    """Every trained run over the per-game median run of the baseline; white dots are means."""
    ratios = ratios[~ratios["method"].isin(REFERENCES)]
    usable = ratios.dropna(subset=["value"])
    methods = in_order(usable["method"])[::-1]
    dropped = sorted(set(ratios["game"]) - set(usable["game"]))
    note = "one point per run (game and seed), boxes are quartiles, white dots means"
    note += f"; n/a as the baseline is not above 0: {', '.join(dropped)}" if dropped else ""
    figure = new_figure(0.9 + 0.3 * _n_lines(methods), source(usable, note=note))
    ax = figure.subplots()
    values = [usable.loc[usable["method"] == m, "value"].to_numpy() for m in methods]
    if values:
        black: Any = {"medianprops": {"color": "black"}, "showfliers": False, "manage_ticks": False}
        layout: Any = {"positions": range(len(methods)), "widths": 0.6, "orientation": "horizontal"}
        drawn = ax.boxplot(values, patch_artist=True, **layout, **black)
        for patch, method in zip(drawn["boxes"], methods, strict=True):
            patch.set(facecolor=colour(method), alpha=0.6)
    for y, (method, runs) in enumerate(zip(methods, values, strict=True)):
        aside = (np.arange(len(runs)) * 0.618 % 1 - 0.5) * 0.4  # even, and not by game
        ax.plot(runs, y + aside, ".", color="black", alpha=0.35, markersize=2.5)
        face = "white" if len(runs) > 1 else colour(method)
        ax.plot(runs.mean(), y, "o", color="black", mfc=face, markersize=6, zorder=4)
    ax.axvline(1, **DOTTED)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(ratios["unit"].iloc[0] if len(ratios) else "")
    _methods_on(ax.yaxis, methods)
    return figure


@styled
def gain_by_gap(gains: pd.DataFrame) -> Figure:
    """A point for every game and method: its gain on the baseline, against the baseline's gap."""
    columns = ["gap", "gap_low", "gap_high"]
    games = gains.groupby("game", observed=True)[columns].first().sort_values("gap")
    below = 0.15 + 0.13 * len(games)
    figure = new_figure(3.3 + below, source(gains))
    ax, gaps = figure.subplots(2, 1, sharex=True, height_ratios=[2.3, below])
    wide = games["gap_high"].max() - games["gap_low"].min()
    methods = in_order(gains["method"])
    for i, method in enumerate(methods):
        mine, style = gains[gains["method"] == method], {"fmt": marker(method), "elinewidth": 0.8}
        aside = (i - (len(methods) - 1) / 2) * 0.007 * wide  # methods stand beside each other
        style |= {"color": colour(method), "label": in_lines(method)}
        ax.errorbar(mine["gap"] + aside, mine["value"], yerr=errors(mine), **style)
    ax.axhline(0, **DOTTED)
    ax.set_ylabel(gains["unit"].iloc[0] if len(gains) else "")
    rows = range(len(games))
    gaps.hlines(rows, games["gap_low"], games["gap_high"], color="grey", linewidth=1)
    gaps.plot(games["gap"], rows, "|", color="black", markersize=6)
    gaps.set_ylim(len(games) - 0.4, -0.6)
    gaps.set_yticks(rows, games.index, fontsize=7)
    gaps.set_xlabel(wrapped("gap of the baseline: (seen - unseen) / unseen"))
    _legend_beside(figure, ax)
    return figure


@styled
def by_entropy(runs: pd.DataFrame) -> Figure:
    """One panel per game: return of every run against how random its play was."""
    learnt = runs[~runs["method"].isin(REFERENCES)]
    games, methods = sorted(set(learnt["game"])), in_order(learnt["method"])
    note = source(learnt, note="a point is a run; cross: random play, dashed: its return")
    words: Any = {"note": note, "x": "entropy (nats)", "y": "return"}
    figure, axes, *_ = panels(games, 1.9, columns=3, **words)
    for ax, game in zip(axes, games, strict=True):
        here = runs[runs["game"] == game]
        for method in methods:
            mine = here[here["method"] == method]
            style: Any = {"color": colour(method), "label": in_lines(method), "markersize": 5}
            ax.plot(mine["entropy"], mine["value"], marker(method), **style)
        for row in here[here["method"] == "random"].to_dict("records"):
            ax.axhline(row["value"], color="grey", linestyle="--", linewidth=1, zorder=0)
            ax.plot(row["entropy"], row["value"], "x", color="black", markersize=6)
        _few_ticks(ax)
    _legend_beside(figure, axes[0])
    return figure


@styled
def at_equal_temperatures(gains: pd.DataFrame) -> Figure:
    """Gain of every method on the baseline against the temperature that both draw at."""
    figure = new_figure(3.2, source(gains))
    ax = figure.subplots()
    _lines(ax, gains, "temperature", "mean", marker="o")
    _legend_beside(figure, ax)
    ax.axhline(0, **DOTTED)
    ax.set_xticks(sorted(set(gains["temperature"])))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    words = "temperature that all draw their actions at; the higher, the more random"
    ax.set_xlabel(wrapped(words))
    ax.set_ylabel(gains["unit"].iloc[0])
    return figure


def _lines(ax: Axes, frame: pd.DataFrame, x: str, rank: str, **options: Any) -> None:
    """A line and its band for each method, in the legend from the best down (by `rank`)."""
    best = frame.groupby("method", observed=True)["value"].agg(rank).sort_values(ascending=False)
    for method in best.index:
        line = frame[frame["method"] == method].sort_values(x)
        style = {"color": colour(method), "label": in_lines(method), **options}
        if method in REFERENCES:
            style |= {"linestyle": "--", "linewidth": 1.2, "marker": ""}
        elif "marker" in options:
            style["marker"] = marker(method)
        ax.plot(line[x], line["value"], **style)
        if method not in REFERENCES:
            band = ax.fill_between(line[x], line["low"], line["high"], linewidth=0)
            band.set(color=colour(method), alpha=0.13)


@styled
def curves(frame: pd.DataFrame) -> Figure:
    """Learning curves: aggregate score against gradient steps; dashed lines are references."""
    figure = new_figure(3.4, source(frame))
    ax = figure.subplots()
    if len(frame):
        _lines(ax, frame, "step", "last", marker="o")
        _legend_beside(figure, ax)
        ax.set_ylabel(f"{_in_words(frame['statistic'].iloc[0])} {frame['unit'].iloc[0]}")
    ax.set_xlabel("gradient steps")
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    return figure


@styled
def profiles(frame: pd.DataFrame) -> Figure:
    """Performance profiles: share of runs above each score."""
    figure = new_figure(3.4, source(frame))
    ax = figure.subplots()
    _lines(ax, frame, "threshold", "sum")
    _legend_beside(figure, ax)
    ax.set_xlabel(frame["unit"].iloc[0])
    ax.set_ylabel("share of runs above it")
    ax.set_ylim(0, 1.02)
    return figure


@styled
def per_game(seen: pd.DataFrame, unseen: pd.DataFrame) -> Figure:
    """One panel per game: returns on seen levels (outlined) behind those of the other (filled)."""
    learnt = pd.concat([seen, unseen])
    learnt = learnt[~learnt["method"].isin(REFERENCES)] if len(learnt) else learnt
    games = sorted(set(learnt["game"]) or {*seen["game"], *unseen["game"]})
    methods = in_order([*seen["method"], *unseen["method"]])[::-1]
    note = f"filled: {unseen['split'].iloc[0]}, outlined: seen; {source(unseen, seen)}"
    words: Any = {"note": note, "x": unseen["unit"].iloc[0]}
    figure, axes, left, _ = panels(games, 0.45 + 0.15 * _n_lines(methods), **words, sharey=True)
    for ax, game in zip(axes, games, strict=True):
        ax.grid(axis="y", visible=False)
        for frame, is_seen in ((seen, True), (unseen, False)):
            here = frame[frame["game"] == game]
            y = [methods.index(m) for m in here["method"]]
            colours = [colour(m) for m in here["method"]]
            face = {"color": "none", "edgecolor": colours} if is_seen else {"color": colours}
            ax.barh(y, here["value"], 0.78 if is_seen else 0.62, **face)
            if not is_seen:
                bars = ax.errorbar(here["value"], y, xerr=errors(here), fmt="none", ecolor="black")
                for whisker in bars[2]:
                    whisker.set(linewidth=1, path_effects=_HALO)
        ax.axvline(0, color="black", linewidth=0.8)
        _few_ticks(ax)
    for ax in left:
        _methods_on(ax.yaxis, methods, fontsize=6.5)
    return figure


@styled
def improvement(frame: pd.DataFrame) -> Figure:
    """Probability that a run of each method beats a run of the baseline."""
    methods = in_order(frame["method"])[::-1]
    figure = new_figure(0.9 + 0.24 * _n_lines(methods), source(frame), width=5)
    ax = figure.subplots()
    _points(ax, frame.set_index("method"), methods, linewidth=3)
    ax.axvline(0.5, **DOTTED)
    ax.set_xlim(-0.02, 1.02)
    ax.set_xlabel(f"P(method > {frame['baseline'].iloc[0]})" if len(frame) else "")
    _methods_on(ax.yaxis, methods)
    return figure


@styled
def ablations(by_option: Mapping[str, pd.DataFrame]) -> Figure:
    """A panel for each of `stats.ablations`; the method as it is is filled."""
    frames = list(by_option.values())
    score = f"{_in_words(frames[0]['statistic'].iloc[0])} {frames[0]['unit'].iloc[0]}"
    words: Any = {"note": source(*frames), "y": score}
    figure, axes, *_ = panels([*by_option], 1.7, **words, sharey=True)
    for ax, frame in zip(axes, frames, strict=True):
        for x, row in enumerate(frame.to_dict("records")):
            hue = colour(row["method"])
            ax.plot([x, x], [row["low"], row["high"]], color=hue)
            face = hue if row["setting"] == DEFAULT else "white"
            ax.plot(x, row["value"], marker(row["method"]), color=hue, mfc=face, markersize=6)
        ax.set_xlim(-0.6, len(frame) - 0.4)
        ax.grid(axis="x", visible=False)
        crowded = max(map(len, frame["setting"])) * len(frame) > 20
        turn = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
        _methods_on(ax.xaxis, list(frame["setting"]), **turn)
    return figure
