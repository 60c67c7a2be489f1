"""The leaderboard: entries beside baselines, on a page that sorts, wide and narrow."""

import re
import shutil

import pytest

from benchmark.conftest import fill_card
from browser import Browser, need_chromium
from gsf.benchmark.entry import ROWS
from gsf.benchmark.leaderboard import interval, leaderboard
from gsf.benchmark.options import BoardConfig


@pytest.fixture(scope="module")
def page(tiny, entered):
    """With one entry, in a folder called pulled."""
    folder = tiny / "entries" / "pulled"
    folder.mkdir(parents=True)
    shutil.copy(entered / ROWS, folder)
    fill_card(entered, folder, title="Pull <b>")
    return leaderboard(BoardConfig(tiny / "entries", tiny / "board.md", replicates=50))


def test_the_page_has_entries_and_baselines(page):
    text = page.read_text()
    rows = re.findall(r'<tr class="(\w+)">(.*?)</tr>', text)
    assert sorted(kind for kind, _ in rows) == ["baseline"] * 3 + ["entry"]
    (mine,) = (cells for kind, cells in rows if kind == "entry")
    assert 'href="benchmark/entries/pulled/card.toml">Pull &lt;b&gt;</a>' in mine
    assert "first look: 1 of 1 games, 1 of 2 seeds" in mine
    assert mine.endswith('<td data-v="1">1</td><td data-v="3">3</td>')  # seeds, trials
    assert text.count("<svg") == 4
    again = leaderboard(BoardConfig(page.parent / "entries", page.with_name("b.md"), replicates=50))
    assert again.read_bytes() == page.read_bytes()


def test_an_interval_is_drawn_on_the_scale_of_its_table():
    drawn = interval([0.5, 0.0, 1.0], 0.0, 1.0)
    assert 'x1="4.0" x2="116.0"' in drawn
    assert 'cx="60.0"' in drawn


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_the_page_sorts_in_a_browser(page, tmp_path, width, height):
    alone = tmp_path / "board.html"
    head = (
        '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    )
    alone.write_text(head + page.read_text())
    with Browser(need_chromium(), tmp_path / "profile") as browser:
        browser.size(width, height, phone=width < 600)
        browser.open(alone)
        assert browser.run("document.documentElement.scrollWidth") == width
        column = "[...document.querySelectorAll('.board tbody tr')].map(r => r.cells[{}].dataset.v)"
        browser.click(".board th button", 0)
        names = browser.run(column.format(0))
        assert names == sorted(names)
        browser.click(".board th button", 1)
        means = [float(x) for x in browser.run(column.format(1))]
        assert means == sorted(means, reverse=True)
        browser.click(".board th button", 1)
        assert browser.run("document.querySelectorAll('[aria-sort=ascending]').length") == 1
        assert browser.errors == []
