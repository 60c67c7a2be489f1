"""report.html: one file with its pictures, style and script inside, and no way to the network.

Whatever comes out of a file (names of runs, levels, messages) is escaped here, in HTML and in the
JSON that the script reads; a content security policy lets no other script run and nothing load.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

_CELL = re.compile(r"^(-?[\d.]+|nan)( \[.*\])?$")  # tables.wide: "0.31 [0.20, 0.43]"
_POLICY = (
    "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'sha256-{}'"
)


@dataclass
class Page:
    """Sections in order, each with its HTML; `data` is what the script gets."""

    title: str
    lead: list[str] = field(default_factory=list)  # HTML paragraphs under the title
    sections: list[tuple[str, str, str]] = field(default_factory=list)  # anchor, title, HTML
    data: dict[str, Any] = field(default_factory=dict)

    def add(self, anchor: str, title: str, *parts: str) -> None:
        if any(parts):
            self.sections.append((anchor, title, "\n".join(filter(None, parts))))

    def render(self) -> str:
        script = _asset("report.js")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        links = "".join(f'<a href="#{a}">{text(t)}</a>' for a, t, _ in self.sections)
        body = "\n".join(
            f'<section id="{anchor}"><h2>{text(title)}</h2>\n{part}\n</section>'
            for anchor, title, part in self.sections
        )
        parts = {
            "policy": _POLICY.format(digest),
            "title": text(self.title),
            "style": _asset("report.css"),
            "lead": "\n".join(self.lead),
            "links": links,
            "sections": body,
            "data": to_json(self.data),
            "script": script,
        }
        # one pass: what is put in is never searched for further placeholders
        return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("report.html"))


def _asset(name: str) -> str:
    return (files("gsf.reporting") / "assets" / name).read_text()


def text(value: Any) -> str:
    return html.escape(str(value), quote=True)


def to_json(data: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    plain = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def paragraph(words: str, kind: str = "") -> str:
    return f"<p{_class(kind)}>{text(words)}</p>" if words else ""


def bullets(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{text(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def details(summary: str, *parts: str, is_open: bool = False) -> str:
    opened = " open" if is_open else ""
    return f"<details{opened}><summary>{text(summary)}</summary>\n{''.join(parts)}\n</details>"


def code(words: str) -> str:
    return f"<pre><code>{text(words)}</code></pre>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def figure(svg: Path, title: str, caption: str, inches: float = 7.0) -> str:
    """A figure drawn by `plots`; on a narrow screen it scrolls rather than shrinks."""
    source = data_uri("image/svg+xml", svg.read_bytes())
    size = f"min-width:{80 * inches:.0f}px;max-width:{120 * inches:.0f}px"
    image = f'<img alt="{text(title)}" src="{source}" style="{size}">'
    return (
        f'<figure id="fig-{text(svg.stem)}"><h3>{text(title)}</h3><div class="scroll">{image}</div>'
        f"<figcaption>{text(caption)}</figcaption></figure>"
    )


def table(
    wide: pd.DataFrame,
    name: str,
    title: str,
    caption: str = "",
    colours: Mapping[str, str] | None = None,
) -> str:
    """Sortable by a click on a heading; cells "0.31 [0.20, 0.43]" sort by their first number."""
    swatches = colours or {}
    head = "".join(
        f'<th scope="col"><button type="button">{_swatch(c, swatches)}{text(c)}</button></th>'
        for c in wide.columns
    )
    rows = "".join(
        f"<tr>{''.join(_cell(cell, i == 0, swatches) for i, cell in enumerate(row))}</tr>"
        for row in wide.to_numpy().tolist()
    )
    heading = f"<h3>{text(title)}</h3>" if title else ""
    return (
        f'<div class="table" id="table-{text(name)}">{heading}<div class="scroll"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        f"{paragraph(caption, 'note')}</div>"
    )


def _cell(cell: Any, first: bool, swatches: Mapping[str, str]) -> str:
    if first:
        return f'<th scope="row">{_swatch(cell, swatches)}{text(cell)}</th>'
    found = _CELL.match(str(cell))
    if found is None:
        return f"<td>{text(cell)}</td>"
    interval = f" <small>{text(found[2].strip())}</small>" if found[2] else ""
    return f'<td class="number" data-value="{text(found[1])}">{text(found[1])}{interval}</td>'


def _swatch(name: Any, swatches: Mapping[str, str]) -> str:
    colour = swatches.get(str(name))
    return f'<i style="background:{text(colour)}"></i>' if colour else ""


def plain_table(rows: Sequence[Mapping[str, Any]], name: str, title: str = "") -> str:
    """A table of facts, one row each."""
    return table(pd.DataFrame(rows).fillna(""), name, title) if rows else ""
