"""How every figure looks: style, width, panels, files.

How a method looks is in learn/legend.py. Matplotlib is imported by what draws.
"""

import contextlib
import functools
import io
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from gsf.core.files import write_atomic

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
NARROW = 3.2  # inches, a phone's screen, so that letters keep their size
_widest = ContextVar("widest", default=WIDTH)
DOTTED: Any = {"color": "black", "linestyle": ":", "linewidth": 1}  # no difference, or chance
BLUE, ORANGE, GREY = "#3e2c8b", "#d55e00", "#9a9a9a"

P = ParamSpec("P")


def styled(draw: Callable[P, "Figure"]) -> Callable[P, "Figure"]:
    """Decorates every function that makes a figure."""

    @functools.wraps(draw)
    def in_style(*args: P.args, **options: P.kwargs) -> "Figure":
        from matplotlib import rc_context

        with rc_context(STYLE):
            return draw(*args, **options)

    return in_style


@contextlib.contextmanager
def narrow() -> Iterator[None]:
    """Figures made inside are for a phone: as wide as its screen, panels below each other."""
    before = _widest.set(NARROW)
    try:
        yield
    finally:
        _widest.reset(before)


def is_narrow() -> bool:
    return _widest.get() < WIDTH


def new_figure(height: float, note: str = "", width: float = WIDTH) -> "Figure":
    """An empty figure. Below it stands the note: where its numbers are from."""
    from matplotlib.figure import Figure

    width = min(width, _widest.get())
    text = textwrap.fill(note, int(19 * width))
    height += 0.1 * text.count("\n")
    figure = Figure(figsize=(width, height), layout="constrained")
    if note:
        figure.supxlabel(text, x=0.01, ha="left", fontsize=6.5, color="#555555")
    return figure


def wrapped(words: str) -> str:
    """The words in lines that fit into the figure's width."""
    return textwrap.fill(words, int(11 * _widest.get()))


def in_a_row(
    n: int, height: float, note: str = "", **options: Any
) -> tuple["Figure", list["Axes"]]:
    """n panels beside each other; on a phone below each other, each of that height."""
    shape = (n, 1) if is_narrow() else (1, n)
    figure = new_figure(height * shape[0], note)
    return figure, list(figure.subplots(*shape, squeeze=False, **options).flat)


def panels(
    titles: Sequence[str],
    row_height: float,
    columns: int = 4,
    note: str = "",
    x: str = "",
    y: str = "",
    **options: Any,
) -> tuple["Figure", list["Axes"], list["Axes"], list["Axes"]]:
    """A panel per title. Returns the figure, all panels, those at its left edge, and those with no
    panel below. `x` and `y` are written along the left edge and at the bottom alone."""
    n = len(titles)
    columns = min(2 if is_narrow() else columns, max(n, 1))
    rows = math.ceil(n / columns)
    figure = new_figure(0.9 + row_height * rows, note)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for ax in axes.flat[n:]:
        ax.set_visible(False)
    shown = list(axes.flat[:n])
    for ax, title in zip(shown, titles, strict=True):
        ax.set_title(title)
    left, bottom = list(axes[:, 0]), shown[-columns:]
    for ax in left:
        ax.set_ylabel(y)
    for ax in bottom:
        ax.set_xlabel(x)
    return figure, shown, left, bottom


# What matplotlib would write into a file that differs from one drawing to the next.
_UNSAID: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
}


def rendered(figure: "Figure", kind: str) -> bytes:
    """As png or svg; the same figure gives the same bytes."""
    from matplotlib import rc_context

    drawn = io.BytesIO()
    with rc_context(STYLE):
        figure.savefig(drawn, format=kind, metadata=_UNSAID[kind])
    return drawn.getvalue()


def save(figure: "Figure", stem: Path) -> list[Path]:
    """stem.png and stem.svg."""
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in _UNSAID]
    for path, kind in zip(paths, _UNSAID, strict=True):
        write_atomic(path, rendered(figure, kind))
    return paths
