"""How every figure looks: style, the methods' order, colours and markers, files.

Methods have the same place, colour and marker in all figures, told apart by colour-blind readers
too. Matplotlib is imported by what draws.
"""

import contextlib
import functools
import io
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
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
NARROW = 3.2  # inches, a phone's screen, so that letters keep their size
_widest = ContextVar("widest", default=WIDTH)
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
    """An empty figure with where its numbers are from below."""
    from matplotlib.figure import Figure

    width = min(width, _widest.get())
    text = textwrap.fill(note, int(19 * width))
    height += 0.1 * text.count("\n")
    figure = Figure(figsize=(width, height), layout="constrained")
    if note:
        figure.supxlabel(text, x=0.01, ha="left", fontsize=6.5, color="#555555")
    return figure


def wrapped(words: str) -> str:
    """In as many lines as the figure's width asks for."""
    return textwrap.fill(words, int(11 * _widest.get()))


def in_a_row(
    n: int, height: float, note: str = "", **options: Any
) -> tuple["Figure", list["Axes"]]:
    """n panels beside each other; on a phone below each other, each of that height."""
    shape = (n, 1) if is_narrow() else (1, n)
    figure = new_figure(height * shape[0], note)
    return figure, list(figure.subplots(*shape, squeeze=False, **options).flat)


def panels(
    n: int, row_height: float, columns: int = 4, note: str = "", **options: Any
) -> tuple["Figure", list["Axes"], list["Axes"], list["Axes"]]:
    """A figure with n panels; these, those in the left column and the last ones of each column."""
    columns = min(2 if is_narrow() else columns, max(n, 1))
    rows = math.ceil(n / columns)
    figure = new_figure(0.9 + row_height * rows, note)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for ax in axes.flat[n:]:
        ax.set_visible(False)
    shown = list(axes.flat[:n])
    return figure, shown, list(axes[:, 0]), shown[-columns:]


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
