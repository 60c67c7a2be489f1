"""How every figure looks: style, the methods' order, colours and markers, files.

Methods have the same place, colour and marker in all figures, told apart by colour-blind readers
too. Matplotlib is imported by what draws.
"""

import functools
import io
import math
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from gsf.core.files import digest, write_atomic
from gsf.core.variants import by_number, split_variant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
WIDTH = 7.0  # inches, a printed page's text
BLUE, ORANGE, GREY = "#3e2c8b", "#d55e00", "#9a9a9a"

# In the order of every result. Smallest difference of two under deutan and protan vision: 0.107
# in OKLab (see the test).
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
_SPARE = (
    *("#2e7d5b", "#e8a0b8", "#6b7f1e", "#1f5f8b", "#f0b27a", "#b3273b"),
    *("#7fb2a8", "#8c6d46", "#5b6bb5", "#c77fd6", "#404b52"),
)
_MARKERS = "os^vDPX*<>phd8H"
P = ParamSpec("P")


def in_order(methods: Iterable[str]) -> list[str]:
    """References, baselines in the paper's order, new methods, GSF; variants behind their own."""
    known = {name: i for i, name in enumerate(_COLOURS)}

    def place(method: str) -> tuple[object, ...]:
        plain, _ = split_variant(method)
        return plain.startswith("gsf"), known.get(plain, len(known)), by_number(method)

    return sorted(set(methods), key=place)


def colour(method: str) -> str:
    """A new method's colour follows from its name, whatever else is in the figure."""
    return _COLOURS.get(method) or _SPARE[_number(method) % len(_SPARE)]


def marker(method: str) -> str:
    known = list(_COLOURS)
    place = known.index(method) if method in _COLOURS else _number(method) // len(_SPARE)
    return _MARKERS[place % len(_MARKERS)]


def _number(name: str) -> int:
    return int(digest(name), 16)


def styled(draw: Callable[P, "Figure"]) -> Callable[P, "Figure"]:
    """Decorates every function that makes a figure."""

    @functools.wraps(draw)
    def in_style(*args: P.args, **options: P.kwargs) -> "Figure":
        from matplotlib import rc_context

        with rc_context(STYLE):
            return draw(*args, **options)

    return in_style


def new_figure(height: float, note: str = "", warning: str = "", width: float = WIDTH) -> "Figure":
    """An empty figure with where its numbers are from below, and any warning above."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    if note:
        text = textwrap.fill(note, int(19 * width))
        figure.supxlabel(text, x=0.01, ha="left", fontsize=6.5, color="#555555")
    if warning:
        figure.suptitle(warning, x=0.01, ha="left", fontsize=7.5, color="#b00020")
    return figure


def panels(
    n: int, row_height: float, columns: int = 4, note: str = "", warning: str = "", **options: Any
) -> tuple["Figure", list["Axes"], list["Axes"], list["Axes"]]:
    """A figure with n panels; these, those in the left column and the last ones of each column."""
    columns = min(columns, max(n, 1))
    rows = math.ceil(n / columns)
    figure = new_figure(0.9 + row_height * rows, note, warning)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for ax in axes.flat[n:]:
        ax.set_visible(False)
    shown = list(axes.flat[:n])
    return figure, shown, list(axes[:, 0]), shown[-columns:]


def save(figure: "Figure", stem: Path) -> list[Path]:
    """stem.png and stem.svg; the same figure gives the same bytes."""
    from matplotlib import rc_context

    unsaid: dict[str, dict[str, Any]] = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None},
    }
    paths = []
    for kind, metadata in unsaid.items():
        drawn = io.BytesIO()
        with rc_context(STYLE):
            figure.savefig(drawn, format=kind, metadata=metadata)
        paths.append(stem.with_name(f"{stem.name}.{kind}"))
        write_atomic(paths[-1], drawn.getvalue())
    return paths
