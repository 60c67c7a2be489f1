"""Figures and tables of a report: written to files and put on the page, or named as missing.

A figure that cannot be drawn (no baseline yet, no labels) must not cost the rest of the report.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from gsf.core.errors import UserError
from gsf.core.files import write_atomic
from gsf.reporting import page, plots, tables
from gsf.reporting.returns import in_order
from gsf.reporting.stats import STATISTICS


class Artifacts:
    def __init__(self, out: Path, roots: Iterable[Path]) -> None:
        self.out, self.roots = out, [root.resolve() for root in roots]
        self.files: list[str] = []  # relative to `out`
        self.problems: list[str] = []

    def figure(
        self,
        name: str,
        title: str,
        caption: str,
        draw: Callable[[], Figure],
        inches: float = plots.WIDTH,
    ) -> str:
        """figures/<name>.png and .svg; returns its HTML, nothing if it could not be drawn."""
        try:
            paths = plots.save(draw(), self.out / "figures" / name)
        except (UserError, ValueError) as error:  # matplotlib refuses some names, such as "$_"
            self.problems.append(f"Figure left out, {title}: {error}")
            return ""
        self._note(paths)
        return page.figure(paths[1], title, f"{caption} (figures/{name}.png, .svg)", inches)

    def table(
        self,
        name: str,
        title: str,
        make: Callable[[], pd.DataFrame],
        note: str = "",
        index: str = "game",
        columns: str = "method",
    ) -> str:
        """tables/<name>.csv, .md and .tex; returns its HTML, nothing if there are no numbers."""
        try:
            tidy = make()
        except UserError as error:
            self.problems.append(f"Table left out, {title}: {error}")
            return ""
        if not len(tidy):
            return ""
        self._note(tables.write_table(tidy, self.out / "tables" / name, index, columns))
        wide = tables.wide(tidy, index, columns)
        described = tidy if "n_games" in tidy else tidy[~tidy["game"].isin(STATISTICS)]
        described = described.dropna(subset=[c for c in ("split",) if c in described])
        source = plots.describe(described) if "split" in described else ""
        source = f"{source[0].upper()}{source[1:]}. " if source else ""
        caption = f"{source}{note} (tables/{name}.csv, .md, .tex)".strip()
        methods = set(tidy["method"]) - {"chance", "pixels"}
        colours = {m: plots.colour(m) for m in in_order(methods) if not m.endswith(tables.PAPER)}
        return page.table(wide, name, title, caption, colours)

    def copy(self, source: Path, name: str, title: str, caption: str) -> str:
        """A figure that another stage has drawn, source.png and source.svg."""
        paths = [self.out / "figures" / f"{name}.{kind}" for kind in ("png", "svg")]
        try:
            for path in paths:
                write_atomic(path, source.with_suffix(path.suffix).read_bytes())
        except OSError:
            self.problems.append(f"{source.parent} has no figure; run gsf similar again.")
            return ""
        self._note(paths)
        return page.figure(paths[1], title, f"{caption} (figures/{name}.png, .svg)")

    def _note(self, paths: Iterable[Path]) -> None:
        self.files += [str(path.relative_to(self.out)) for path in paths]

    def brief(self, words: str) -> str:
        """Paths below the roots without their beginning, which means nothing to other readers."""
        for root in self.roots:
            words = words.replace(f"{root}/", "").replace(str(root), root.name)
        return words
