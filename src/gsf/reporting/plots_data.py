"""Figures of the data and the method rather than of returns: entropy, labels, theorems, cost.

In the style of `plots`; numbers come in as plain mappings, straight from metrics and manifests.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gsf.reporting.plots import colour, new_figure, panels, styled
from gsf.reporting.returns import in_order
from gsf.suites import known_facts

_BLUE, _ORANGE, _GREY = "#3e2c8b", "#d55e00", "#9a9a9a"


@styled
def entropy(
    by_game: Mapping[str, Sequence[Mapping[str, Any]]],
    key: str = "ppo/entropy",
) -> Figure:
    """PPO's policy entropy over training, from `runs.read_metrics` rows of every game."""
    columns = min(4, max(len(by_game), 1))
    rows = math.ceil(len(by_game) / columns)
    note = "training levels; dotted: the entropy of uniform random play"
    figure = new_figure(1.0 + 1.25 * rows if rows > 1 else 2.6, note=note)
    axes, left = panels(figure, len(by_game), columns, sharex=True, sharey=True)
    for ax, (game, metrics) in zip(axes, by_game.items(), strict=True):
        points = [(row["step"], row[key]) for row in metrics if key in row]
        ax.plot(*zip(*points, strict=True) if points else ([], []), color=_BLUE)
        if facts := known_facts(game):
            uniform = math.log(len(facts.actions))
            ax.axhline(uniform, color="black", linestyle=":", linewidth=1)
            ax.set_ylim(0, uniform * 1.08)
        ax.set_title(game)
    for ax in left:
        ax.set_ylabel("entropy (nats)")
    for ax in axes[-columns:]:
        ax.set_xlabel("frames")
        ax.xaxis.set_major_formatter(mpl.ticker.EngFormatter(sep=""))
        ax.tick_params(labelbottom=True)
    return figure


@styled
def learning(by_game: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> Figure:
    """PPO's return against minutes of training: game -> run -> `runs.read_metrics` rows."""
    columns = min(4, max(len(by_game), 1))
    rows = math.ceil(len(by_game) / columns)
    names = list(dict.fromkeys(name for runs in by_game.values() for name in runs))
    note = "training levels, mean of the last 100 episodes; dotted: random play and published PPO"
    figure = new_figure(1.0 + 1.6 * rows if rows > 1 else 2.8, note=note)
    axes, left = panels(figure, len(by_game), columns)
    for ax, (game, runs) in zip(axes, by_game.items(), strict=True):
        for name, metrics in runs.items():
            points = [x for x in metrics if "ppo/return" in x and "ppo/seconds" in x]
            minutes = [x["ppo/seconds"] / 60 for x in points]
            smooth = pd.Series([x["ppo/return"] for x in points]).rolling(8, min_periods=1).mean()
            shade = _BLUE if len(names) == 1 else f"C{names.index(name)}"
            ax.plot(minutes, smooth, color=shade, label=name, linewidth=1.2)
        facts = known_facts(game)
        for level in (facts.random, *(facts.published or ())[:1]) if facts else ():
            if level is not None:
                ax.axhline(level, color="black", linestyle=":", linewidth=1)
        ax.set_title(game)
        ax.set_xlabel("minutes")
    for ax in left:
        ax.set_ylabel("return")
    if len(names) > 1:
        lines = {line.get_label(): line for ax in axes for line in ax.lines}
        shown = [lines[name] for name in names]
        figure.legend(shown, names, loc="outside upper left", ncols=3, fontsize=6.5)
    return figure


@styled
def theorem1(
    printed: Mapping[int, Mapping[str, float]],
    criterion: Mapping[int, Mapping[str, float]],
    suggested: int,
    epsilon: float,
) -> Figure:
    """Theorem 1's terms against K (left), and the criterion that does choose K (right).

    `printed` is {K: equations.theorem1_terms(...)}, `suggested, criterion` equations.suggest_bins.
    """
    figure = new_figure(2.8, note="training data; Theorem 1 as printed cannot choose K")
    left, right = figure.subplots(1, 2)
    _terms(left, printed, "bound")
    left.set_title(f"Theorem 1's terms at epsilon = {epsilon:g}")
    left.set_ylabel("probability (bound)")
    _terms(right, criterion, "sum")
    right.set_title("bin width + label flips")
    right.axvline(suggested, color=_ORANGE, linestyle="--", linewidth=1.2)
    at = {"xy": (suggested, 1), "xycoords": ("data", "axes fraction"), "fontsize": 7.5}
    away = {"xytext": (4, -8), "textcoords": "offset points", "color": _ORANGE}
    right.annotate(f"suggested K = {suggested}", **at, **away)
    return figure


def _terms(ax: Axes, by_bins: Mapping[int, Mapping[str, float]], total: str) -> None:
    bins = sorted(by_bins)
    names = list(by_bins[bins[0]])
    for name, hue, line, point in zip(names, (_BLUE, "#36aae8", _GREY), "-:-", "osv", strict=False):
        values = [by_bins[k][name] for k in bins]
        ax.plot(bins, values, color=hue, linestyle=line, marker=point, label=name)
    sums = [sum(by_bins[k].values()) for k in bins]
    ax.plot(bins, sums, color="black", linewidth=2, label=total)
    ax.set_ylim(-0.03 * max(sums), max(sums) * 1.12)
    ax.set_xticks(bins)
    ax.set_xlabel("number of bins K")
    ax.legend(fontsize=7.5, loc="center right")


@styled
def visits(
    counts: npt.ArrayLike, bounds: Mapping[str, npt.ArrayLike] | None = None, what: str = "a chain"
) -> Figure:
    """Theorem 2: visits of the observations in each label bin (counts [levels, bins] or [bins]).

    `bounds` are lower bounds on the GVF at these counts [bins], by form: "printed", "proof".
    """
    table = np.atleast_2d(np.asarray(counts, dtype=float))
    spread = f"; whiskers: 10-90 % of {len(table)} levels" if len(table) > 1 else ""
    figure = new_figure(2.8, note=what + spread)
    ax, *rest = figure.subplots(1, 2 if bounds else 1, squeeze=False)[0]
    middle = table.mean(axis=0)
    ends = np.quantile(table, [0.1, 0.9], axis=0)
    bins = np.arange(table.shape[1])
    whiskers = np.maximum([middle - ends[0], ends[1] - middle], 0)
    ax.bar(bins, middle, 0.75, color=_BLUE, yerr=whiskers if len(table) > 1 else None)
    ax.set_ylabel("visits per observation")
    for form, hue, line in zip(bounds or {}, (_ORANGE, _BLUE), ("--", "-"), strict=False):
        rest[0].plot(
            bins, np.asarray((bounds or {})[form]), line, color=hue, marker="o", label=form
        )
        rest[0].set_ylabel("lower bound on ||G(o)||")
        rest[0].legend(fontsize=7.5)
    for panel in (ax, *rest):
        panel.set_xlabel("label (quantile bin)")
        panel.set_xticks(bins)
        panel.grid(axis="x", visible=False)
    return figure


@styled
def label_histogram(
    histograms: Mapping[str, Sequence[float]], ignored: Mapping[str, float] | None = None
) -> Figure:
    """Share of transitions in each label bin, a panel per game or cumulant; ignored: label -1."""
    columns = min(4, max(len(histograms), 1))
    rows = math.ceil(len(histograms) / columns)
    note = "training data; dotted: equal bins; ties and short levels make bins unequal"
    figure = new_figure(0.9 + 1.3 * rows if rows > 1 else 2.4, note=note)
    axes, left = panels(figure, len(histograms), columns, sharey=True)
    for ax, (name, counts) in zip(axes, histograms.items(), strict=True):
        share = np.asarray(counts, dtype=float) / max(float(np.sum(counts)), 1)
        ax.bar(range(len(share)), share, 0.8, color=_BLUE)
        ax.axhline(1 / len(share), color="black", linestyle=":", linewidth=1)
        ax.set_xticks(range(len(share)))
        ax.grid(axis="x", visible=False)
        ax.set_title(name)
        if name in (ignored or {}):
            ax.set_title(f"{(ignored or {})[name]:.1%} ignored", loc="right", fontsize=6.5)
    for ax in left:
        ax.set_ylabel("share")
    for ax in axes[-columns:]:
        ax.set_xlabel("label")
    return figure


@styled
def cost(seconds: Mapping[str, Sequence[float]], baseline: str = "cql", where: str = "") -> Figure:
    """Seconds per gradient step of every method's runs, relative to the baseline's mean."""
    methods = in_order(seconds)[::-1]
    unit = float(np.mean(seconds[baseline]))
    figure = new_figure(0.9 + 0.24 * len(methods), note=where, width=5)
    ax = figure.subplots()
    for y, method in enumerate(methods):
        runs = np.asarray(seconds[method], dtype=float) / unit
        # of equal runs the mean may be rounded past them
        spread = np.maximum([[runs.mean() - runs.min()], [runs.max() - runs.mean()]], 0).tolist()
        ax.barh(y, runs.mean(), 0.7, color=colour(method), xerr=spread if len(runs) > 1 else None)
        ax.text(runs.max() + 0.03, y, f"{runs.mean():.2f}x", va="center", fontsize=7.5)
    ax.axvline(1, color="black", linestyle=":", linewidth=1)
    ax.margins(x=0.12)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"time per gradient step / {baseline}'s ({unit:.3g} s)")
    ax.yaxis.set_ticks(range(len(methods)), methods)
    return figure


@styled
def probes(frame: pd.DataFrame) -> Figure:
    """`gsf probe`: a panel per game and measure, filled dots on seen levels, open on held out."""
    groups = list(frame.groupby(["game", "measure"], sort=True))
    methods = in_order(frame["method"])[::-1]
    note = "mean over runs, lines: range over them; filled: seen levels, open: held out; chance: "
    note += "dotted on seen levels, dashed on held-out ones"
    columns = min(3, len(groups))
    figure = new_figure(
        0.9 + (0.4 + 0.2 * len(methods)) * math.ceil(len(groups) / columns), note=note
    )
    axes, left = panels(figure, len(groups), columns, sharey=True)
    for ax, ((game, measure), group) in zip(axes, groups, strict=True):
        for (name, levels), runs in group.groupby(["method", "levels"]):
            method = str(name)
            y = methods.index(method) + (0.15 if levels == "seen" else -0.15)
            face = colour(method) if levels == "seen" else "white"
            ax.plot([runs["value"].min(), runs["value"].max()], [y, y], color=colour(method))
            ax.plot(runs["value"].mean(), y, "o", color=colour(method), markerfacecolor=face)
        for levels, chance in group.groupby("levels")["chance"].mean().items():
            line = ":" if levels == "seen" else "--"
            ax.axvline(chance, color="black", linestyle=line, linewidth=1)
        ax.set_title(f"{game}: {measure}")
        ax.grid(axis="y", visible=False)
    for ax in left:
        ax.set_yticks(range(len(methods)), methods)
    return figure
