"""Section "What could be seen": the smallest effect against seeds and levels (`--power`)."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from gsf.core.drawing import BLUE, is_narrow, panels, styled
from gsf.core.errors import UserError
from gsf.reporting.page import Page, Part, Shown
from gsf.reporting.power import LEVELS, smallest_effects
from gsf.reporting.returns import Returns

_DESIGNS = [(n_seeds, n_levels) for n_seeds in (1, 3, 5, 10) for n_levels in (200, 500)]
_WORDS = (
    "The smallest true difference to {baseline} that a 95 % interval excludes from 0 in 80 % of "
    "comparisons, by the noise of these rows, mean over methods; {actions}, {unit}. Noise of few "
    "seeds is itself known roughly"
)


def power(returns: Returns, page: Page) -> Iterator[Part | None]:
    try:
        effects = smallest_effects(returns.main, returns.baseline)
    except UserError as error:
        page.problems.append(f"No power: {error}")
        return
    print_mean(effects)
    yield from page.show(SHOWN, effects, **returns.names | {"unit": effects["unit"].iloc[0]})


@styled
def draw(effects: pd.DataFrame) -> Figure:
    """A panel for the mean and for each game: effect against seeds, a line for each n_levels."""
    games = list(dict.fromkeys(["mean", *effects.dropna(subset=["value"])["game"]]))
    x, y = "seeds", str(effects["unit"].iloc[0])
    figure, axes, *_ = panels(games, 1.5, x=x, y="" if is_narrow() else y)
    for ax, game in zip(axes, games, strict=True):
        here = effects[effects["game"] == game]
        for i, (n_levels, line) in enumerate(here.groupby("n_levels")):
            shade: Any = {"color": BLUE, "alpha": (i + 1) / len(LEVELS)}
            ax.plot(line["n_seeds"], line["value"], label=f"{n_levels} levels", **shade)
        ax.set_ylim(0)
        ax.set_xticks([1, 3, 5, 10])
    names = axes[0].get_legend_handles_labels()
    figure.legend(*names, loc="outside upper left", ncols=3 if is_narrow() else 5, fontsize=7.5)
    return figure


def of_mean(effects: pd.DataFrame) -> pd.DataFrame:
    """Seeds x levels, of the mean over games."""
    mean = effects[effects["game"] == "mean"]
    return mean.rename(columns={"n_seeds": "seeds", "n_levels": "levels"})


def of_games(effects: pd.DataFrame) -> pd.DataFrame:
    """Games x the designs that most comparisons have."""
    designs = pd.Series(list(zip(effects["n_seeds"], effects["n_levels"], strict=True)))
    shown = effects[designs.isin(_DESIGNS).to_numpy()]
    names = [f"{s} x {n}" for s, n in zip(shown["n_seeds"], shown["n_levels"], strict=True)]
    return shown.assign(design=names)


def print_mean(effects: pd.DataFrame) -> None:
    mean = of_mean(effects)
    n_games, unit = mean["n_games"].iloc[0], mean["unit"].iloc[0]
    title = f"smallest effect, {unit}, mean over {n_games} game{'s' if n_games > 1 else ''}"
    table = Table(title=title, caption="seen with 80 % power by a 95 % interval")
    for heading in ("seeds", *(f"{n} levels" for n in LEVELS)):
        table.add_column(heading, justify="right")
    for n_seeds, row in mean.groupby("seeds"):
        table.add_row(str(n_seeds), *(f"{x:.3f}" for x in row["value"]))
    Console().print(table)


# fmt: off
SHOWN = (
    Shown("power", "The smallest effect that could be seen", lambda effects: effects, draw,
          f"{_WORDS}."),
    Shown("power", "The smallest effect, mean over games: seeds x levels", of_mean,
          words=f"{_WORDS}.", index="seeds", columns="levels"),
    Shown("power_per_game", "The smallest effect: seeds x levels", of_games,
          words=f"{_WORDS}.", columns="design"),
)
# fmt: on
