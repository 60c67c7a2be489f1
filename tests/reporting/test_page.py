import json
import re
from pathlib import Path

import pytest

from gsf.core.errors import UserError
from gsf.reporting.page import Page, part, text


def test_a_figure_that_fails_costs_only_itself(tmp_path: Path):
    page = Page(tmp_path, [tmp_path])

    def fail():
        raise UserError("no labels.")

    assert page.figure("x", "Labels", "", fail) is None
    assert page.problems == ["Figure left out, Labels: no labels"]
    assert page.brief(f"{tmp_path}/a/b is gone") == "a/b is gone"


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
