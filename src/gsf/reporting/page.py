"""The page being made: parts in sections, what is missing, and the files beside it.

assets/report.html lays the parts out and escapes whatever comes out of a file (names of runs,
levels, messages); pictures, style and script stand inside it. A content security policy lets no
other script run and nothing load. What cannot be drawn is named and costs only itself.
"""

import base64
import contextlib
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from gsf.core import drawing
from gsf.core.errors import UserError
from gsf.core.files import write_atomic
from gsf.learn.legend import colour
from gsf.reporting import tables
from gsf.reporting.captions import describe
from gsf.reporting.stats import STATISTICS

_CELL = re.compile(r"^(-?[\d.]+|nan)( \[.*\])?$")  # tables.wide: "0.31 [0.20, 0.43]"
_POLICY = (
    "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'sha256-{}'"
)
Part = dict[str, Any]


def _said(error: Exception) -> str:
    is_plain = isinstance(error, UserError | ImportError)
    return str(error).rstrip(".") if is_plain else f"{type(error).__name__}: {error}"


def part(kind: str, **facts: Any) -> Part:
    """Something to show; assets/report.html has a macro for every kind."""
    return {"kind": kind, **facts}


def text(words: str, style: str = "") -> Part:
    return part("text", words=words, style=style)


@dataclass(frozen=True)
class Shown:
    """A figure or a table, as a section lists it. {names} in its words are filled in."""

    name: str  # of its files
    title: str
    make: Callable[[Any], Any]  # from the section's data: a frame, or all that `draw` takes
    draw: Callable[..., Figure] | None = None  # None: a table
    words: str = ""  # a figure's caption, a table's note
    when: Callable[[Any], Any] = lambda data: True
    inches: float = drawing.WIDTH
    index: str = "game"  # of a table: its rows and columns
    columns: str = "method"


class Page:
    def __init__(self, out: Path, roots: Iterable[Path]) -> None:
        self.out, self.roots = out, [root.resolve() for root in roots]
        self.title = "gsf report"
        self.lead: list[Part] = []
        self.sections: list[dict[str, Any]] = []
        self.data: dict[str, Any] = {}  # what the script gets
        self.files: list[str] = []  # relative to `out`
        self.problems: list[str] = []

    def add(self, anchor: str, title: str, parts: Iterable[Part | None]) -> None:
        if shown := [part for part in parts if part is not None]:
            self.sections.append({"anchor": anchor, "title": title, "parts": shown})

    def show(self, listed: Iterable[Shown], data: Any, /, **names: str) -> Iterator[Part | None]:
        """Every figure and table that there is something for, made of the section's data."""
        for shown in listed:
            if shown.when(data):
                filled = {x: getattr(shown, x).format(**names) for x in ("title", "words")}
                one = replace(shown, **filled)
                yield self._drawn(one, data) if one.draw else self._tabulated(one, data)

    def _drawn(self, shown: Shown, data: Any) -> Part | None:
        """Also figures/<name>.png and .svg; and drawn once more for phones."""
        assert shown.draw is not None
        try:
            made = shown.make(data)
            frames = made if isinstance(made, tuple) else (made,)
            paths = drawing.save(shown.draw(*frames), self.out / "figures" / shown.name)
            with drawing.narrow():
                narrow = drawing.rendered(shown.draw(*frames), "svg")
        except Exception as error:  # matplotlib refuses some names, such as "$_"
            self.problems.append(f"Figure left out, {shown.title}: {_said(error)}")
            return None
        source = data_uri("image/svg+xml", narrow)
        return self._figure(paths, shown.title, shown.words, shown.inches, source)

    def copy(self, source: Path, name: str, title: str, caption: str) -> Part | None:
        """A figure that another stage has drawn, source.png and source.svg."""
        paths = [self.out / "figures" / f"{name}.{kind}" for kind in ("png", "svg")]
        try:
            for path in paths:
                write_atomic(path, source.with_suffix(path.suffix).read_bytes())
        except OSError:
            self.problems.append(f"{source.parent} has no figure; make it again.")
            return None
        return self._figure(paths, title, caption, drawing.WIDTH)

    def _figure(
        self, paths: list[Path], title: str, caption: str, inches: float, narrow: str = ""
    ) -> Part:
        self._note(paths)
        name, source = paths[1].stem, data_uri("image/svg+xml", paths[1].read_bytes())
        caption = f"{caption} (figures/{name}.png, .svg)"
        facts = {"name": name, "title": title, "caption": caption}
        return part("figure", **facts, source=source, narrow=narrow, inches=inches)

    def _tabulated(self, shown: Shown, data: Any) -> Part | None:
        """Also tables/<name>.csv, .md and .tex; nothing if there are no numbers."""
        try:
            tidy = shown.make(data)
        except UserError as error:
            self.problems.append(f"Table left out, {shown.title}: {error}")
            return None
        if not len(tidy):
            return None
        shape = shown.index, shown.columns
        self._note(tables.write_table(tidy, self.out / "tables" / shown.name, *shape))
        described = tidy if "n_games" in tidy else tidy[~tidy["game"].isin(STATISTICS)]
        note = shown.words
        if "split" in described:
            source = describe(described.dropna(subset=["split"]))
            note = f"{source[0].upper()}{source[1:]}. {note}"
        note = f"{note} (tables/{shown.name}.csv, .md, .tex)".strip()
        methods = [m for m in set(tidy.get("method", ())) if not m.endswith(tables.PAPER)]
        swatches = {m: colour(m) for m in methods if m not in ("chance", "pixels")}
        return table(tables.wide(tidy, *shape), shown.name, shown.title, note, swatches)

    def _note(self, paths: Iterable[Path]) -> None:
        self.files += [str(path.relative_to(self.out)) for path in paths]

    @contextlib.contextmanager
    def attempt(self, failure: str) -> Iterator[None]:
        """What goes wrong inside is named on the page; the report goes on."""
        try:
            yield
        except Exception as error:  # one bad run never ends the report
            self.problems.append(f"{failure} ({_said(error)}).")

    def brief(self, words: str) -> str:
        """The words with paths from the results on: what stands before is of one machine."""
        for root in self.roots:
            words = words.replace(f"{root}/", "").replace(str(root), root.name)
        return words

    def render(self) -> str:
        loader = jinja2.PackageLoader("gsf.reporting", "assets")
        environment = jinja2.Environment(
            loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
        )
        environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
        style, script = (
            loader.get_source(environment, name)[0] for name in ("report.css", "report.js")
        )
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        own = {"style": Markup(style), "script": Markup(script), "policy": _POLICY.format(digest)}
        return environment.get_template("report.html").render(page=self, **own)


def data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def table(
    wide: pd.DataFrame,
    name: str,
    title: str = "",
    note: str = "",
    swatches: dict[str, str] | None = None,
) -> Part:
    """Sortable by a click on a heading; cells "0.31 [0.20, 0.43]" sort by their first number."""
    rows = [[_cell(str(cell)) for cell in row] for row in wide.to_numpy().tolist()]
    facts = {"name": name, "title": title, "note": note, "swatches": swatches or {}}
    return part("table", **facts, columns=list(wide.columns), rows=rows)


def _cell(words: str) -> dict[str, Any]:
    found = _CELL.match(words)
    interval = (found[2] or "").strip() if found else ""
    return {"words": found[1] if found else words, "is_number": bool(found), "interval": interval}
