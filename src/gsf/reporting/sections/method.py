"""Section "Data and method": labels, Theorems 1 and 2, the behaviour policy, cost of a step."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gsf.core.drawing import BLUE, colour, in_order, new_figure, panels, styled
from gsf.core.files import digest
from gsf.core.logs import read_metrics
from gsf.core.results import Results, Stage
from gsf.core.stage import METRICS, check_files
from gsf.reporting.page import Page, Part
from gsf.reporting.tables import paper_games
from gsf.suites import known_facts

Metrics = Sequence[Mapping[str, Any]]  # rows of a metrics.jsonl


def method(found: Results, baseline: str, page: Page) -> Iterator[Part | None]:
    labels: dict[str, Mapping[str, Any]] = {}
    for stage in found.of("labels"):
        if stage.manifest.get("histogram"):
            name = f"{found.game_of(stage)} {stage.manifest.get('cumulant')}"
            labels.setdefault(name, stage.manifest)
    if labels:
        yield page.figure(
            "labels",
            "Labels: the quantile bins that GSF learns to tell apart",
            "Share of training transitions in each bin.",
            draw_labels,
            lambda: labels,
        )
    yield from _theorems(found, page)
    policies: dict[str, Metrics] = {}
    for stage in found.of("policy"):
        with page.attempt(f"{stage.path}: no learning curve"):
            metrics = read_metrics(stage.path / METRICS)
            if any("ppo/entropy" in row for row in metrics):
                policies.setdefault(str(stage.manifest.get("game")), metrics)
    if policies:
        yield page.figure(
            "behaviour",
            "How the behaviour policy learnt",
            "PPO's return on training levels against minutes of training.",
            draw_learning,
            lambda: policies,
        )
        yield page.figure(
            "entropy",
            "Entropy of the behaviour policy",
            "Over PPO's training; where it stays high, many actions are as good.",
            draw_entropy,
            lambda: policies,
        )
    seconds = _seconds_per_step(found, page)
    if baseline in seconds:
        yield page.figure(
            "cost",
            "Cost of a gradient step",
            "Time per step of training, from the runs' own logs; whiskers: least and most.",
            draw_cost,
            lambda: seconds,
            lambda: baseline,
            inches=5,
        )
    for stage in found.of("similar"):
        with page.attempt("A figure of gsf similar is left out"):
            check_files(stage.path, stage.manifest)
            yield _alike(stage, page)


def _alike(stage: Stage, page: Page) -> Part | None:
    game = str(stage.manifest.get("game"))
    whose = ": the paper's motivating figure" if game in paper_games() else ""
    return page.copy(
        stage.path / "similar",
        f"similar_{digest(stage.digest)}",  # it becomes a file's name
        f"Alike in state and value, unlike in action: {game}",
        f"Two segments of different levels found by gsf similar{whose}.",
    )


def _seconds_per_step(found: Results, page: Page) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {}
    for run in found.of("run"):
        with page.attempt(f"{run.path}: no cost of a step"):
            rows = [x for x in read_metrics(run.path / METRICS) if "train/seconds" in x]
            if rows and rows[-1]["step"]:
                cost = float(rows[-1]["train/seconds"]) / rows[-1]["step"]
                seconds.setdefault(str(run.manifest["method"]), []).append(cost)
    return seconds


def _theorems(found: Results, page: Page) -> Iterator[Part | None]:
    labels = [s for s in found.of("labels") if s.manifest.get("cumulant") == "reward"]
    if not labels:
        return
    try:
        from gsf.studies.theorems import bins_of, draw_bins, draw_visits
    except ImportError as error:
        page.problems.append(f"No figures of Theorems 1 and 2: {error}.")
        return
    first = min(labels, key=lambda s: (found.game_of(s), s.path))
    if (dataset := found.dataset_of(first)) is not None:
        yield page.figure(
            "theorem1",
            f"Choice of K: Theorem 1 on {found.game_of(first)}",
            "Left, the printed bound: one term does not depend on K, the other falls with it. "
            "Right, the criterion used to suggest K: bin width plus the chance that a label flips.",
            draw_bins,
            lambda: bins_of(first.path, dataset.path),
        )
    yield page.figure(
        "visits",
        "Theorem 2: visits per label",
        "Random walks on a chain of 10 states, its states binned by the L1 norm of "
        "their successor features; and both forms of the bound at the mean visits.",
        draw_visits,
    )


@styled
def draw_labels(by_name: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Share of transitions in each bin, from manifests of labels, a panel per game and cumulant."""
    note = "training data; dotted: equal bins; ties and short levels make bins unequal"
    figure, axes, left, bottom = panels(len(by_name), 1.4, note=note, sharey=True)
    for ax, (name, facts) in zip(axes, by_name.items(), strict=True):
        share = np.asarray(facts["histogram"], float) / max(float(np.sum(facts["histogram"])), 1)
        ax.bar(range(len(share)), share, 0.8, color=BLUE)
        ax.axhline(1 / len(share), color="black", linestyle=":", linewidth=1)
        ax.set_xticks(range(len(share)))
        ax.grid(axis="x", visible=False)
        ax.set_title(name)
        ax.set_title(f"{facts['share_ignored']:.1%} ignored", loc="right", fontsize=6.5)
    for ax in left:
        ax.set_ylabel("share")
    for ax in bottom:
        ax.set_xlabel("label")
    return figure


@styled
def draw_learning(by_game: Mapping[str, Metrics]) -> Figure:
    """PPO's return against minutes of training."""
    note = "training levels, mean of the last 100 episodes; dotted: random play and published PPO"
    figure, axes, left, _ = panels(len(by_game), 1.8, note=note)
    for ax, (game, metrics) in zip(axes, sorted(by_game.items()), strict=True):
        points = [x for x in metrics if "ppo/return" in x and "ppo/seconds" in x]
        smooth = pd.Series([x["ppo/return"] for x in points]).rolling(8, min_periods=1).mean()
        ax.plot([x["ppo/seconds"] / 60 for x in points], smooth, color=BLUE, linewidth=1.2)
        facts = known_facts(game)
        for level in (facts.random, *(facts.published or ())[:1]) if facts else ():
            if level is not None:
                ax.axhline(level, color="black", linestyle=":", linewidth=1)
        ax.set_title(game)
        ax.set_xlabel("minutes")
    for ax in left:
        ax.set_ylabel("return")
    return figure


@styled
def draw_entropy(by_game: Mapping[str, Metrics]) -> Figure:
    """PPO's policy entropy over training."""
    note = "training levels; dotted: the entropy of uniform random play"
    figure, axes, left, bottom = panels(len(by_game), 1.6, note=note, sharex=True, sharey=True)
    for ax, (game, metrics) in zip(axes, sorted(by_game.items()), strict=True):
        rows = [row for row in metrics if "ppo/entropy" in row]
        entropy = [row["ppo/entropy"] for row in rows]
        ax.plot([row["step"] for row in rows], entropy, color=BLUE)
        if facts := known_facts(game):
            few, many = (math.log(len(x)) for x in (facts.distinct_actions, facts.actions))
            uniform = few if max(entropy, default=0) <= few + 0.01 else many  # it begins near
            ax.axhline(uniform, color="black", linestyle=":", linewidth=1)
            ax.set_ylim(0, uniform * 1.08)
        ax.set_title(game)
    for ax in left:
        ax.set_ylabel("entropy (nats)")
    for ax in bottom:
        ax.set_xlabel("frames")
        ax.xaxis.set_major_formatter(mpl.ticker.EngFormatter(sep=""))
        ax.tick_params(labelbottom=True)
    return figure


@styled
def draw_cost(seconds: Mapping[str, Sequence[float]], baseline: str) -> Figure:
    """Seconds per gradient step of every method's runs, relative to the baseline's mean."""
    methods = in_order(seconds)[::-1]
    unit = float(np.mean(seconds[baseline]))
    figure = new_figure(0.9 + 0.24 * len(methods), width=5)
    ax = figure.subplots()
    for y, method in enumerate(methods):
        runs = np.asarray(seconds[method], dtype=float) / unit
        # of equal runs the mean may be rounded past them
        ends = np.maximum([[runs.mean() - runs.min()], [runs.max() - runs.mean()]], 0).tolist()
        ax.barh(y, runs.mean(), 0.7, color=colour(method), xerr=ends if len(runs) > 1 else None)
        ax.text(runs.max() + 0.03, y, f"{runs.mean():.2f}x", va="center", fontsize=7.5)
    ax.axvline(1, color="black", linestyle=":", linewidth=1)
    ax.margins(x=0.12)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"time per gradient step / {baseline}'s ({unit:.3g} s)")
    ax.yaxis.set_ticks(range(len(methods)), methods)
    return figure
