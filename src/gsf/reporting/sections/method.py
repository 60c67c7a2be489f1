"""Section "Data and method": labels, Theorems 1 and 2, the behaviour policy, cost of a step."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gsf.core.drawing import BLUE, DOTTED, new_figure, panels, styled
from gsf.core.files import digest
from gsf.core.logs import read_metrics
from gsf.core.results import Results, Stage
from gsf.core.stage import METRICS, check_files
from gsf.learn.legend import colour, in_order
from gsf.reporting.page import Page, Part, Shown
from gsf.reporting.tables import paper_games
from gsf.suites import known_facts

Metrics = Sequence[Mapping[str, Any]]  # rows of a metrics.jsonl


@dataclass(frozen=True)
class Facts:
    """What the results say of data and method."""

    labels: Mapping[str, Mapping[str, Any]]  # game and cumulant -> a manifest of labels
    policies: Mapping[str, Metrics]  # game -> PPO's log
    seconds: Mapping[str, Sequence[float]]  # method -> seconds per step, of each run
    baseline: str
    reward_labels: Stage | None  # of which the theorems are drawn
    dataset: Stage | None  # of these labels


def method(found: Results, baseline: str, page: Page) -> Iterator[Part | None]:
    facts = _gather(found, baseline, page)
    game = found.game_of(facts.reward_labels) if facts.reward_labels else ""
    yield from page.show(SHOWN, facts, game=game)
    for stage in found.of_kind("similar"):
        with page.attempt("A figure of gsf similar is left out"):
            check_files(stage.path, stage.manifest)
            yield _alike(stage, page)


def _gather(found: Results, baseline: str, page: Page) -> Facts:
    labels: dict[str, Mapping[str, Any]] = {}
    for stage in found.of_kind("labels"):
        if stage.manifest.get("histogram"):
            name = f"{found.game_of(stage)} {stage.manifest.get('cumulant')}"
            labels.setdefault(name, stage.manifest)
    policies: dict[str, Metrics] = {}
    for stage in found.of_kind("policy"):
        with page.attempt(f"{stage.path}: no learning curve"):
            metrics = read_metrics(stage.path / METRICS)
            if any("ppo/entropy" in row for row in metrics):
                policies.setdefault(str(stage.manifest.get("game")), metrics)
    of_reward = [s for s in found.of_kind("labels") if s.manifest.get("cumulant") == "reward"]
    first = min(of_reward, key=lambda s: (found.game_of(s), s.path), default=None)
    dataset = found.dataset_of(first) if first else None
    return Facts(labels, policies, _seconds_per_step(found, page), baseline, first, dataset)


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
    for run in found.of_kind("run"):
        with page.attempt(f"{run.path}: no cost of a step"):
            rows = [x for x in read_metrics(run.path / METRICS) if "train/seconds" in x]
            if rows and rows[-1]["step"]:
                cost = float(rows[-1]["train/seconds"]) / rows[-1]["step"]
                seconds.setdefault(str(run.manifest["method"]), []).append(cost)
    return seconds


@styled
def draw_labels(by_name: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Share of transitions in each bin, from manifests of labels, a panel per game and cumulant."""
    note = "training data; dotted: equal bins; ties and short levels make bins unequal"
    words: Any = {"note": note, "x": "label", "y": "share"}
    figure, axes, *_ = panels([*by_name], 1.4, **words, sharey=True)
    for ax, facts in zip(axes, by_name.values(), strict=True):
        share = np.asarray(facts["histogram"], float) / max(float(np.sum(facts["histogram"])), 1)
        ax.bar(range(len(share)), share, 0.8, color=BLUE)
        ax.axhline(1 / len(share), **DOTTED)
        ax.set_xticks(range(len(share)))
        ax.grid(axis="x", visible=False)
        ax.set_title(f"{facts['share_ignored']:.1%} ignored", loc="right", fontsize=6.5)
    return figure


@styled
def draw_learning(by_game: Mapping[str, Metrics]) -> Figure:
    """PPO's return against minutes of training."""
    note = "training levels, mean of the last 100 episodes; dotted: random play and published PPO"
    words: Any = {"note": note, "x": "minutes", "y": "return"}
    figure, axes, *_ = panels(sorted(by_game), 1.8, **words)
    for ax, (game, metrics) in zip(axes, sorted(by_game.items()), strict=True):
        points = [x for x in metrics if "ppo/return" in x and "ppo/seconds" in x]
        smooth = pd.Series([x["ppo/return"] for x in points]).rolling(8, min_periods=1).mean()
        ax.plot([x["ppo/seconds"] / 60 for x in points], smooth, color=BLUE, linewidth=1.2)
        facts = known_facts(game)
        for level in (facts.random, *(facts.published or ())[:1]) if facts else ():
            if level is not None:
                ax.axhline(level, **DOTTED)
    return figure


@styled
def draw_entropy(by_game: Mapping[str, Metrics]) -> Figure:
    """PPO's policy entropy over training."""
    note = "training levels; dotted: the entropy of uniform random play"
    words: Any = {"note": note, "x": "frames", "y": "entropy (nats)"}
    figure, axes, _, bottom = panels(sorted(by_game), 1.6, **words, sharex=True, sharey=True)
    for ax, (game, metrics) in zip(axes, sorted(by_game.items()), strict=True):
        rows = [row for row in metrics if "ppo/entropy" in row]
        entropy = [row["ppo/entropy"] for row in rows]
        ax.plot([row["step"] for row in rows], entropy, color=BLUE)
        if facts := known_facts(game):
            few, many = (math.log(len(x)) for x in (facts.distinct_actions, facts.actions))
            uniform = few if max(entropy, default=0) <= few + 0.01 else many  # PPO begins near it
            ax.axhline(uniform, **DOTTED)
            ax.set_ylim(0, uniform * 1.08)
    for ax in bottom:
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
        # If runs are equal, their mean may be rounded to just beside them.
        ends = np.maximum([[runs.mean() - runs.min()], [runs.max() - runs.mean()]], 0).tolist()
        ax.barh(y, runs.mean(), 0.7, color=colour(method), xerr=ends if len(runs) > 1 else None)
        ax.text(runs.max() + 0.03, y, f"{runs.mean():.2f}x", va="center", fontsize=7.5)
    ax.axvline(1, **DOTTED)
    ax.margins(x=0.12)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"time per gradient step / {baseline}'s ({unit:.3g} s)")
    ax.yaxis.set_ticks(range(len(methods)), methods)
    return figure


def _draw_bins(labels: Stage, dataset: Stage) -> Figure:
    from gsf.studies.theorems import bins_of, draw_bins  # which needs torch

    return draw_bins(bins_of(labels.path, dataset.path))


def _draw_visits() -> Figure:
    from gsf.studies.theorems import draw_visits  # which needs torch

    return draw_visits()


# fmt: off
SHOWN = (
    Shown("labels", "Labels: the quantile bins that GSF learns to tell apart",
          lambda facts: facts.labels, draw_labels, "Share of training transitions in each bin.",
          when=lambda facts: facts.labels),
    Shown("theorem1", "Choice of K: Theorem 1 on {game}",
          lambda facts: (facts.reward_labels, facts.dataset), _draw_bins,
          "Left, the printed bound: one term does not depend on K, the other falls with it. Right, "
          "the criterion used to suggest K: bin width plus the chance that a label flips.",
          when=lambda facts: facts.dataset),
    Shown("visits", "Theorem 2: visits per label", lambda facts: (), _draw_visits,
          "Random walks on a chain of 10 states, its states binned by the L1 norm of their "
          "successor features; and both forms of the bound at the mean visits.",
          when=lambda facts: facts.reward_labels),
    Shown("behaviour", "How the behaviour policy learnt", lambda facts: facts.policies,
          draw_learning, "PPO's return on training levels against minutes of training.",
          when=lambda facts: facts.policies),
    Shown("entropy", "Entropy of the behaviour policy", lambda facts: facts.policies, draw_entropy,
          "Over PPO's training; where it stays high, many actions are as good.",
          when=lambda facts: facts.policies),
    Shown("cost", "Cost of a gradient step", lambda facts: (facts.seconds, facts.baseline),
          draw_cost,
          "Time per step of training, from the runs' own logs; whiskers: least and most.",
          when=lambda facts: facts.baseline in facts.seconds, inches=5),
)
# fmt: on
