"""The report in a real browser: clicks, sorting, no error, no network. See tests/browser.py."""

from pathlib import Path

import pytest

import reports
from browser import Browser, need_chromium
from gsf.reporting.report import ReportConfig, report


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sweep = reports.make_sweep(tmp_path_factory.mktemp("sweep") / "runs", n_seeds=1)
    return report(ReportConfig((sweep,), sweep / "report", replicates=100))


@pytest.fixture
def browser(tmp_path: Path):
    with Browser(need_chromium(), tmp_path / "profile") as opened:
        yield opened


def column(browser: Browser, table: str, number: int) -> list[str]:
    rows = f"[...document.querySelectorAll('#table-{table} tbody tr')]"
    return browser.run(f"{rows}.map(r => r.cells[{number}].firstChild.textContent.trim())")


def names(browser: Browser, table: str) -> list[str]:
    rows = f"[...document.querySelectorAll('#table-{table} tbody tr')]"
    return browser.run(f"{rows}.map(r => r.cells[0].textContent.trim())")


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_the_report_works_in_a_browser(page: Path, browser: Browser, tmp_path: Path, width, height):
    browser.size(width, height, phone=width < 600)
    browser.open(page)
    assert browser.run("document.documentElement.scrollWidth") == width  # nothing sticks out

    figures = "[...document.querySelectorAll('figure img')].map(i => i.getBoundingClientRect())"
    assert browser.run(f"{figures}.every(box => box.width > 200 && box.right <= innerWidth)")
    # Each is the one drawn for this width: a phone's is 230 points wide, or 307 pixels.
    own = "[...document.querySelectorAll('picture img')].map(i => i.naturalWidth)"
    assert all((w == 307) == (width < 600) for w in browser.run(own))
    boxes = "[...document.querySelectorAll('.table .scroll')]"
    wide = f"{boxes}.map(box => box.scrollWidth > box.clientWidth + 1)"
    hinted = f"{boxes}.map(box => !box.previousElementSibling.hidden)"
    assert browser.run(wide) == browser.run(hinted)  # what is cut says that it can be scrolled
    assert any(browser.run(wide)) == (width < 600)

    tiles = browser.run("document.querySelectorAll('.grid .tile').length")
    assert tiles > 20
    before = browser.run("document.querySelector('.chosen').textContent")
    other = browser.run(
        "data.explorer[0].queries.findIndex(q => data.explorer[0].items[q][0] !=="
        " data.explorer[0].items[data.explorer[0].queries[0]][0])"
    )
    browser.click(".grid .tile", other)
    chosen = browser.run("document.querySelector('.chosen').textContent")
    assert chosen != before
    pressed = (
        "[...document.querySelectorAll('.grid .tile')].map(t => t.ariaPressed).indexOf('true')"
    )
    assert browser.run(pressed) == other
    assert browser.run("document.querySelectorAll('.card').length") == 4
    assert browser.run("document.querySelectorAll('.card .neighbours .tile').length") == 20
    level = browser.run(f"data.explorer[0].items[data.explorer[0].queries[{other}]][0]")
    captions = browser.run(
        "[...document.querySelectorAll('.card figcaption')].map(c => c.textContent)"
    )
    assert chosen.startswith(f"level {level}")
    assert all(not caption.startswith(f"level {level}q") for caption in captions)
    browser.wait(
        "new Promise(done => { const i = new Image(); i.onload = () => done(i.width > 0);"
        " i.onerror = () => done(false); i.src = spriteOf(data.explorer[0]); })"
    )
    shot = browser.screenshot(tmp_path / f"report-{width}.png")
    assert shot.stat().st_size > 10_000

    # Greedy actions, of which random play has none.
    table = "aggregates_other_mode"
    assert names(browser, table) == ["bc", "cql", "gsf-reward"]
    browser.click(f"#table-{table} thead button", 1)
    assert names(browser, table) == ["gsf-reward", "cql", "bc"]
    assert column(browser, table, 1) == ["5.80", "4.80", "3.80"]
    browser.click(f"#table-{table} thead button", 1)
    assert names(browser, table) == ["bc", "cql", "gsf-reward"]
    browser.click(f"#table-{table} thead button", 0)
    browser.click(f"#table-{table} thead button", 0)
    assert names(browser, table) == ["gsf-reward", "cql", "bc"]

    assert browser.errors == []
    loaded = {request.split(":", 1)[0] for request in browser.requests}
    assert loaded <= {"file", "data", "blob"}
    assert [r for r in browser.requests if r.startswith("file:")] == [page.resolve().as_uri()]


def test_the_browser_would_notice_a_request_and_an_error(browser: Browser, tmp_path: Path):
    """The assertions above can fail."""
    bad = tmp_path / "bad.html"
    bad.write_text("<img src='http://127.0.0.1:9/x.png'><script>nothing()</script>")
    browser.open(bad)
    assert any("http://127.0.0.1:9" in request for request in browser.requests)
    assert any("nothing is not defined" in error for error in browser.errors)


def test_what_a_file_says_cannot_run_in_the_page(browser: Browser, page: Path, tmp_path: Path):
    """Even markup that got through would not run: the policy names the one script that may."""
    html = page.read_text().replace("<main>", "<main><script>window.owned = 1</script>", 1)
    bad = tmp_path / "bad.html"
    bad.write_text(html)
    browser.open(bad)
    assert browser.run("window.owned") is None
    assert browser.run("document.querySelectorAll('.grid .tile').length") > 20
