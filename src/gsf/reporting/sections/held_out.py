"""Section "Held-out contexts": what logged data of contexts nobody trained on says of every run."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gsf.core.drawing import is_narrow, new_figure, styled
from gsf.core.results import Results
from gsf.evaluation.held_out_rows import ANY, OVERALL, QUANTITIES, overall, read_held_out
from gsf.learn.legend import colour, in_order, marker
from gsf.nets.acting import explain
from gsf.reporting.figures import errors
from gsf.reporting.page import Page, Part, Shown, text

_RUN = ["game", "method", "seed", "data"]
_BETTER = {1: ", higher is better", -1: ", lower is better", 0: ""}
_OF_CONTEXTS = (("agreement", "greedy"), ("nll", ANY), ("fqe", "greedy"))
MOST_CONTEXTS = 60  # in a figure


def gather_held_out(found: Results, page: Page) -> pd.DataFrame:
    """The rows of every run's last step; what cannot be read is named on the page."""
    parts = []
    for run in found.of_kind("run"):
        with page.attempt(f"{run.path}: its held_out.csv is left out"):
            rows = read_held_out(run.path / "held_out.csv")
            last = rows.groupby(_RUN)["step"].transform("max")
            parts.append(rows[rows["step"] == last])
    parts = [part for part in parts if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def has_held_out(rows: pd.DataFrame) -> set[str]:
    """game/method/seed<k> of the runs that were judged."""
    if not len(rows):
        return set()
    return {f"{game}/{method}/seed{seed}" for game, method, seed, *_ in rows[_RUN].to_numpy()}


def headline(rows: pd.DataFrame) -> str:
    """One sentence: who predicts the logged actions best. Nothing was played."""
    nll = _over_seeds(overall(rows[rows["quantity"] == "nll"]))
    best = nll.sort_values("value").iloc[0]
    return (
        f"On {best['n_contexts']} held-out contexts of {best['game']}, {best['method']} predicts "
        f"the logged actions best: {best['value']:.3f} nats a step (95 % {best['low']:.3f} to "
        f"{best['high']:.3f}). No return was played: those below are estimated from logged data."
    )


def held_out(rows: pd.DataFrame, page: Page) -> Iterator[Part | None]:
    if not len(rows):
        return
    yield text(
        "Runs judged by logged data of contexts (sites, devices, levels) not among their own "
        "training data; nothing was played. Intervals are over contexts and their episodes, values "
        "the mean over seeds. How far each number can be trusted: docs/own-data.md."
    )
    for number, ((game, data), part) in enumerate(rows.groupby(["game", "data"], sort=True)):
        ending, first = f"_{number}" if number else "", part.iloc[0]
        names = {"game": str(game), "data": str(data), "modes": explain(part["mode"])}
        names |= {"n_contexts": str(first["n_contexts"]), "n_episodes": f"{first['n_episodes']:,}"}
        listed = [replace(shown, name=f"{shown.name}{ending}") for shown in SHOWN]
        yield from page.show(listed, part, **names)


def _titles(tidy: pd.DataFrame) -> list[str]:
    return [
        QUANTITIES[quantity].title
        + (f", {mode}" if mode != ANY else "")
        + _BETTER[QUANTITIES[quantity].better]
        for quantity, mode in zip(tidy["quantity"], tidy["mode"], strict=True)
    ]


def _over_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    by = ["game", "method", "quantity", "mode", "context"]
    mean = rows.groupby(by, sort=False)[["value", "low", "high"]].mean()
    facts = rows.groupby(by, sort=False)[["n_contexts", "n_episodes"]].first()
    n_seeds = rows.groupby(by, sort=False)["seed"].nunique().rename("n_seeds")
    return mean.join(facts).join(n_seeds).reset_index()


@styled
def contexts(rows: pd.DataFrame) -> Figure:
    """A panel per quantity, a column per context, a marker per method."""
    shown = [
        part
        for quantity, mode in _OF_CONTEXTS
        if len(part := rows[(rows["quantity"] == quantity) & (rows["mode"] == mode)])
    ]
    note = "95 % intervals over episodes"
    figure = new_figure(0.6 + 1.6 * len(shown), note=note)
    axes = figure.subplots(len(shown), 1, squeeze=False)[:, 0]
    for ax, part in zip(axes, shown, strict=True):
        order = part.groupby("context")["value"].mean().sort_values().index[:MOST_CONTEXTS]
        methods = in_order(part["method"])
        for i, method in enumerate(methods):
            mine = part[part["method"] == method].set_index("context").reindex(order)
            x = np.arange(len(order)) + (i - (len(methods) - 1) / 2) * 0.6 / len(methods)
            style: Any = {"fmt": marker(method), "color": colour(method), "lw": 0.8}
            ax.errorbar(x, mine["value"], errors(mine), label=method, **style)
        ax.set_title(_titles(part.iloc[:1])[0])
        ax.set_xticks(range(len(order)), list(order), rotation=90 if len(order) > 8 else 0)
        ax.tick_params(axis="x", labelsize=6)
    axes[0].legend(ncols=2 if is_narrow() else 4, fontsize=7)
    return figure


@styled
def reliability(rows: pd.DataFrame) -> Figure:
    figure = new_figure(3.2, note="bars: 95 % over contexts and episodes; first seed", width=4.5)
    ax = figure.subplots()
    ax.plot([0, 1], [0, 1], color="#9a9a9a", lw=0.8, ls="--")
    for method in in_order(rows["method"]):
        mine = rows[rows["method"] == method]
        mine = mine[mine["seed"] == mine["seed"].min()].sort_values("at")
        style: Any = {"color": colour(method), "marker": marker(method), "lw": 1.2, "label": method}
        ax.errorbar(mine["at"], mine["value"], errors(mine), elinewidth=0.7, **style)
    ax.set(xlabel="probability of the likeliest action", ylabel="share logged", xlim=(0, 1))
    ax.legend(fontsize=7)
    return figure


# fmt: off
SHOWN = (
    Shown("held_out", "{game}: {n_contexts} contexts, {n_episodes} episodes held out",
          lambda rows: _over_seeds(overall(rows)).assign(quantity=_titles),
          words="Dataset {data}. Returns are discounted; logged: of who logged the data; {modes}.",
          index="quantity"),
    Shown("held_out_contexts", "Every held-out context",
          lambda rows: _over_seeds(rows[rows["context"] != OVERALL]), contexts,
          "Each column is a context, in the order of the mean; methods as in the legend."),
    Shown("reliability", "Reliability", lambda rows: rows[rows["quantity"] == "reliability"],
          reliability,
          "How often the likeliest action was the logged one, by how likely the agent held it at "
          "the fitted temperature. On the diagonal a probability can be taken at its word.",
          inches=4.5),
)
# fmt: on
