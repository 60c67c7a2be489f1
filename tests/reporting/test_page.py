import base64
import json
import re
from pathlib import Path

import pytest

from gsf.core import drawing
from gsf.core.errors import UserError
from gsf.reporting.page import Page, Shown, part, text


def test_a_figure_that_fails_costs_only_itself(tmp_path: Path):
    page = Page(tmp_path, [tmp_path])

    def fail():
        raise UserError("no labels.")

    assert [*page.show([Shown("x", "Labels", lambda _: (), fail)], None)] == [None]
    assert page.problems == ["Figure left out, Labels: no labels"]
    assert page.brief(f"{tmp_path}/a/b is gone") == "a/b is gone"


def test_a_figure_is_drawn_for_a_page_and_for_a_phone(tmp_path: Path):
    page, made, widths = Page(tmp_path, [tmp_path]), [], []

    def draw(frame):
        assert frame == "frame"
        figure = drawing.new_figure(1.0)
        widths.append(figure.get_figwidth())
        return figure

    shown = Shown("x", "{what}", lambda data: made.append(data) or "frame", draw)
    nothing = Shown("y", "", lambda data: 1 / 0, draw, when=lambda data: data > 7)
    (found,) = page.show([shown, nothing], 7, what="X {y}")
    assert (made, found["title"]) == ([7], "X {y}")
    assert widths == [drawing.WIDTH, drawing.NARROW]
    page.add("one", "One", [found])
    html = page.render()
    wide, narrow = re.findall(r'(?:src|srcset)="(data:image/svg[^"]*)"', html)[::-1]
    assert (tmp_path / "figures" / "x.svg").read_bytes() == base64.b64decode(wide.split(",")[1])
    assert b'width="230.4pt"' in base64.b64decode(narrow.split(",")[1])  # 3.2 inches
    assert f'<source media="(max-width: 34rem)" srcset="{narrow}">' in html
    assert drawing.new_figure(1.0).get_figwidth() == drawing.WIDTH


def test_what_fails_is_named_and_the_rest_goes_on(tmp_path: Path):
    page = Page(tmp_path, [tmp_path])
    with page.attempt("no film"):
        raise UserError("no weights.")
    with page.attempt("no film"):
        raise KeyError("x")
    with page.attempt("a bug"):
        _ = 1 / 0
    assert page.problems == [
        "no film (no weights).",
        "no film (KeyError: 'x').",
        "a bug (ZeroDivisionError: division by zero).",
    ]


def test_text_and_data_are_escaped_and_never_a_template(tmp_path: Path):
    page = Page(tmp_path, [tmp_path])
    page.title = page.data["name"] = "</script><!-- & {{ style }} {% raw %}"
    page.lead = [text("<b> {{ policy }}", 'x" onclick="y')]
    page.add("one", "<i>", [part("bullets", lines=["<u>"]), part("code", words="<s>"), None])
    html = page.render()
    assert html.count("<script") == html.count("</script") == 2
    assert not re.search("<[bius]>", html)
    assert 'onclick="' not in html
    assert "{{ policy }}" in html
    found = re.search(r'id="data">(.*?)</script>', html, re.S)[1]
    assert "<" not in found
    assert json.loads(found) == {"name": page.title}


def test_a_part_that_lacks_a_fact_is_a_bug(tmp_path: Path):
    page = Page(tmp_path, [tmp_path])
    page.add("one", "One", [part("text", words="no style")])
    with pytest.raises(Exception, match="style"):
        page.render()
