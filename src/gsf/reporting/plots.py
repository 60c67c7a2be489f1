"""Figures of the report: tidy frames of `stats` in, a matplotlib Figure out, `save` writes it.

Every method has one colour and marker in all figures, told apart by colour-blind readers too.
Every figure of returns says its split, action mode and seeds, and warns of too few seeds.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from gsf.core.files import digest
from gsf.reporting.returns import REFERENCES, in_order
from gsf.reporting.scores import Array
from gsf.reporting.stats import FEW_SEEDS

STYLE: Any = {
    "font.size": 8.5,
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same bytes everywhere
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "savefig.dpi": 200,
    "svg.hashsalt": "gsf",
}
styled = mpl.rc_context(STYLE)  # decorates every function that makes a figure
WIDTH = 7.0  # inches, a printed page's text

# Smallest difference of two under deutan and protan vision: 0.107 in OKLab (see the test).
_COLOURS = {
    "random": "#9a9a9a",
    "behaviour": "#000000",
    "bc": "#36aae8",
    "cql": "#3e2c8b",
    "curl": "#5cd9dd",
    "ctrl": "#93e08e",
    "deepmdp": "#c5aa16",
    "vpn": "#8268ed",
    "cssc": "#4d114b",
    "pse": "#a240aa",
    "gsf-reward": "#d55e00",
    "gsf-successor": "#513a12",
    "gsf-action": "#a14056",
}
_SPARE = ("#2e7d5b", "#e8a0b8", "#6b7f1e", "#1f5f8b", "#f0b27a")
_MARKERS = "os^vDPX*<>phd8H"
_WARNING = "#b00020"
_HALO = [withStroke(linewidth=2.2, foreground="white")]  # black lines stay visible on dark bars


def colour(method: str) -> str:
    """A new method's colour follows from its name, whatever else is in the figure."""
    return _COLOURS.get(method) or _SPARE[_number(method) % len(_SPARE)]


def marker(method: str) -> str:
    known = list(_COLOURS)
    place = known.index(method) if method in _COLOURS else _number(method) // len(_SPARE)
    return _MARKERS[place % len(_MARKERS)]


def _number(name: str) -> int:
    return int(digest(name), 16)


def caveat(frame: pd.DataFrame) -> str:
    """The warning that belongs to numbers from fewer than three seeds, else nothing."""
    n_seeds = _seeds(frame)
    if not n_seeds or min(n_seeds) >= FEW_SEEDS:
        return ""
    if min(n_seeds) == 1:
        return "Only 1 seed: intervals are over levels, they do not show how training runs differ."
    return f"Only {min(n_seeds)} seeds: intervals are too narrow to rank methods by."


def describe(frame: pd.DataFrame) -> str:
    """Where the numbers of a frame are from: split, mode, seeds, games."""
    if not len(frame):
        return "no results yet"
    seeds = sorted({min(_seeds(frame), default=0), max(_seeds(frame), default=0)})
    parts = [f"{frame['split'].iloc[0]} levels", f"{frame['mode'].iloc[0]} actions"]
    parts.append(f"{'-'.join(map(str, seeds))} seed{'s' if seeds != [1] else ''}")
    n_games = frame["n_games"].max() if "n_games" in frame else frame["game"].nunique()
    parts.append(f"{n_games} game{'s' if n_games != 1 else ''}")
    return ", ".join(parts)


def _seeds(frame: pd.DataFrame) -> list[int]:
    if "method" in frame and not frame["method"].isin(REFERENCES).all():
        frame = frame[~frame["method"].isin(REFERENCES)]
    return [int(n) for n in frame["n_seeds"]]


def new_figure(
    height: float, *frames: pd.DataFrame, note: str = "", width: float = WIDTH
) -> Figure:
    """An empty figure with where its numbers are from below, and any warning above."""
    figure = Figure(figsize=(width, height), layout="constrained")
    notes = list(dict.fromkeys(describe(frame) for frame in frames)) + ([note] if note else [])
    if notes:
        text = textwrap.fill("; ".join(notes), int(19 * width))
        figure.supxlabel(text, x=0.01, ha="left", fontsize=6.5, color="#555555")
    warnings = [caveat(frame) for frame in frames if caveat(frame)]
    if warnings:
        figure.suptitle(warnings[0], x=0.01, ha="left", fontsize=7.5, color=_WARNING)
    return figure


_NAMES = {"iqm": "IQM"}
_INTERVALS = "95 % intervals over seeds and levels"


def save(figure: Figure, stem: Path) -> list[Path]:
    """stem.png and stem.svg; the same figure gives the same bytes."""
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    with mpl.rc_context(STYLE):
        figure.savefig(paths[0], metadata={"Software": None})
        figure.savefig(paths[1], metadata={"Date": None, "Creator": None})
    return paths


def _errors(frame: pd.DataFrame) -> Array:
    """[2, n] lengths down and up; a percentile interval need not hold its point estimate."""
    return np.maximum([frame["value"] - frame["low"], frame["high"] - frame["value"]], 0)


def panels(figure: Figure, n: int, columns: int, **options: Any) -> tuple[list[Axes], list[Axes]]:
    """n panels, unused ones hidden; and those in the left column, which carry the labels."""
    axes = figure.subplots(math.ceil(n / columns), columns, squeeze=False, **options)
    for ax in axes.flat[n:]:
        ax.set_visible(False)
    return list(axes.flat[:n]), list(axes[:, 0])


def _methods_on(axis: Any, methods: Sequence[str], **options: Any) -> None:
    axis.set_ticks(range(len(methods)), methods, **options)


@styled
def intervals(aggregates: pd.DataFrame) -> Figure:
    """Headline: IQM, mean and median of every method with their intervals."""
    methods = in_order(aggregates["method"])[::-1]
    figure = new_figure(0.9 + 0.24 * len(methods), aggregates, note=_INTERVALS)
    statistics = list(dict.fromkeys(aggregates["statistic"]))
    axes = figure.subplots(1, len(statistics), sharey=True, squeeze=False)[0]
    for ax, statistic in zip(axes, statistics, strict=True):
        frame = aggregates[aggregates["statistic"] == statistic].set_index("method").loc[methods]
        for y, (method, row) in enumerate(frame.iterrows()):
            ax.barh(y, row["high"] - row["low"], 0.62, row["low"], color=colour(str(method)))
            line: Any = {"color": "black", "linewidth": 1.2, "path_effects": _HALO}
            ax.plot([row["value"]] * 2, [y - 0.38, y + 0.38], **line)
        ax.use_sticky_edges = False
        ax.set_title(_NAMES.get(statistic, statistic))
        ax.grid(axis="y", visible=False)
        ax.set_xlabel(aggregates["unit"].iloc[0])
    _methods_on(axes[0].yaxis, methods)
    return figure


@styled
def box(ratios: pd.DataFrame) -> Figure:
    """The paper's main figure: every run over the per-game median CQL run; white dots are means."""
    usable = ratios.dropna(subset=["value"])
    methods = in_order(usable["method"])
    dropped = sorted(set(ratios["game"]) - set(usable["game"]))
    note = "one point per run (game and seed), boxes are quartiles, white dots means"
    note += f"; n/a as the baseline is not above 0: {', '.join(dropped)}" if dropped else ""
    figure = new_figure(3.3, usable, note=note)
    ax = figure.subplots()
    values = [usable.loc[usable["method"] == m, "value"].to_numpy() for m in methods]
    if values:
        black: Any = {"medianprops": {"color": "black"}, "showfliers": False, "manage_ticks": False}
        place: Any = {"positions": range(len(methods)), "widths": 0.6}
        drawn = ax.boxplot(values, patch_artist=True, **place, **black)
        for patch, method in zip(drawn["boxes"], methods, strict=True):
            patch.set(facecolor=colour(method), alpha=0.6)
    for x, (method, runs) in enumerate(zip(methods, values, strict=True)):
        aside = (np.arange(len(runs)) * 0.618 % 1 - 0.5) * 0.4  # even, and not in order of games
        ax.plot(x + aside, runs, ".", color="black", alpha=0.35, markersize=2.5)
        face = "white" if len(runs) > 1 else colour(method)
        ax.plot(x, runs.mean(), "o", color="black", mfc=face, markersize=6, zorder=4)
    ax.axhline(1, color="black", linestyle=":", linewidth=1)
    ax.grid(axis="x", visible=False)
    ax.set_ylabel(ratios["unit"].iloc[0] if len(ratios) else "")
    _methods_on(ax.xaxis, methods, rotation=35, ha="right", rotation_mode="anchor")
    return figure


def _lines(ax: Axes, frame: pd.DataFrame, x: str, rank: str, **options: Any) -> None:
    """One line with its band per method; the legend goes from the best down (by `rank`)."""
    best = frame.groupby("method", observed=True)["value"].agg(rank).sort_values(ascending=False)
    for method in best.index:
        line = frame[frame["method"] == method].sort_values(x)
        style = {"color": colour(method), "label": method, **options}
        if method in REFERENCES:
            style |= {"linestyle": "--", "linewidth": 1.2, "marker": ""}
        elif "marker" in options:
            style["marker"] = marker(method)
        ax.plot(line[x], line["value"], **style)
        if method not in REFERENCES:
            band = ax.fill_between(line[x], line["low"], line["high"], linewidth=0)
            band.set(color=colour(method), alpha=0.13)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7.5)


@styled
def curves(frame: pd.DataFrame) -> Figure:
    """Learning curves: aggregate score against gradient steps; dashed lines are references."""
    figure = new_figure(3.4, frame, note=_INTERVALS)
    ax = figure.subplots()
    if len(frame):
        _lines(ax, frame, "step", "last", marker="o")
        statistic = str(frame["statistic"].iloc[0])
        ax.set_ylabel(f"{_NAMES.get(statistic, statistic)} {frame['unit'].iloc[0]}")
    ax.set_xlabel("gradient steps")
    return figure


@styled
def profiles(frame: pd.DataFrame) -> Figure:
    """Performance profiles: share of runs above each score."""
    figure = new_figure(3.4, frame, note=_INTERVALS)
    ax = figure.subplots()
    _lines(ax, frame, "threshold", "sum")
    ax.set_xlabel(frame["unit"].iloc[0])
    ax.set_ylabel("share of runs above it")
    ax.set_ylim(0, 1.02)
    return figure


@styled
def per_game(seen: pd.DataFrame, unseen: pd.DataFrame) -> Figure:
    """One panel per game: returns on seen levels (outlined) behind unseen ones (filled)."""
    games = sorted(set(seen["game"]) | set(unseen["game"]))
    methods = in_order([*seen["method"], *unseen["method"]])[::-1]
    columns = min(4, len(games))
    rows = math.ceil(len(games) / columns)
    height = 0.7 + rows * (0.45 + 0.15 * len(methods))
    note = "filled: unseen, outlined: seen; " + _INTERVALS
    figure = new_figure(height, unseen, seen, note=note)
    axes, left = panels(figure, len(games), columns, sharey=True)
    for ax, game in zip(axes, games, strict=True):
        ax.set_title(game)
        ax.grid(axis="y", visible=False)
        for frame, is_seen in ((seen, True), (unseen, False)):
            here = frame[frame["game"] == game]
            y = [methods.index(m) for m in here["method"]]
            colours = [colour(m) for m in here["method"]]
            face = {"color": "none", "edgecolor": colours} if is_seen else {"color": colours}
            ax.barh(y, here["value"], 0.78 if is_seen else 0.62, **face)
            if not is_seen:
                bars = ax.errorbar(here["value"], y, xerr=_errors(here), fmt="none", ecolor="black")
                for whisker in bars[2]:
                    whisker.set(linewidth=1, path_effects=_HALO)
        ax.axvline(0, color="black", linewidth=0.8)
    for ax in left:
        _methods_on(ax.yaxis, methods, fontsize=6.5)
    for ax in axes[-columns:]:
        ax.set_xlabel(unseen["unit"].iloc[0])
    return figure


@styled
def improvement(frame: pd.DataFrame) -> Figure:
    """Probability that a run of each method beats a run of the baseline."""
    methods = in_order(frame["method"])[::-1]
    figure = new_figure(0.9 + 0.24 * len(methods), frame, note=_INTERVALS, width=5)
    ax = figure.subplots()
    for y, (method, row) in enumerate(frame.set_index("method").loc[methods].iterrows()):
        ax.plot([row["low"], row["high"]], [y, y], color=colour(str(method)), linewidth=3)
        point: Any = {"color": colour(str(method)), "markersize": 6, "clip_on": False}
        ax.plot(row["value"], y, marker(str(method)), **point)
    ax.axvline(0.5, color="black", linestyle=":", linewidth=1)
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(-0.6, len(methods) - 0.4)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"P(method > {frame['baseline'].iloc[0]})" if len(frame) else "")
    _methods_on(ax.yaxis, methods)
    return figure


@styled
def ablation(by_option: Mapping[str, pd.DataFrame], default: Mapping[str, str]) -> Figure:
    """A panel per option (K, tau, head, loss): `stats.ablation` of each; the default is filled."""
    frames = list(by_option.values())
    figure = new_figure(2.5 if len(frames) <= 4 else 4.6, *frames, note=_INTERVALS)
    axes, left = panels(figure, len(frames), min(4, len(frames)), sharey=True)
    for ax, (option, frame) in zip(axes, by_option.items(), strict=True):
        for x, row in enumerate(frame.to_dict("records")):
            hue = colour(row["method"])
            is_default = row["setting"] == default.get(option)
            ax.plot([x, x], [row["low"], row["high"]], color=hue)
            face = hue if is_default else "white"
            ax.plot(x, row["value"], marker(row["method"]), color=hue, mfc=face, markersize=6)
        ax.set_title(option)
        ax.set_xlim(-0.6, len(frame) - 0.4)
        ax.grid(axis="x", visible=False)
        crowded = max(map(len, frame["setting"])) * len(frame) > 22
        turn = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
        _methods_on(ax.xaxis, list(frame["setting"]), **turn)
    for ax in left:
        statistic = str(frames[0]["statistic"].iloc[0])
        ax.set_ylabel(f"{_NAMES.get(statistic, statistic)} {frames[0]['unit'].iloc[0]}")
    return figure
