from pathlib import Path

import pytest

from gsf.core import drawing
from gsf.reporting.page import Page
from gsf.reporting.sections.results import all_tables, find_returns, results
from gsf.reporting.tables import paper_games
from synthetic import table_rows


@pytest.mark.parametrize(
    ("games", "baseline", "is_main", "is_beside"),
    [
        (sorted(paper_games()), "cql", True, True),
        (["maze"], "cql", False, True),  # one of them
        (["my-robot"], "cql", False, False),
        (["maze"], "bc", False, False),
    ],
)
def test_only_the_papers_games_are_the_papers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, games, baseline, is_main, is_beside
):
    svg = tmp_path / "x.svg"
    svg.write_text("<svg/>")
    monkeypatch.setattr(drawing, "save", lambda figure, stem: [tmp_path / "x.png", svg])
    rows = table_rows({(g, m): [[6.0, 7.0]] * 3 for g in games for m in ("bc", "cql")})
    page = Page(tmp_path, [tmp_path])
    returns = find_returns(rows, "unseen", "greedy", 50, page)
    shown = [*results(returns, baseline, page), *all_tables(returns, baseline, page)]
    titles = [part["title"] for part in shown if part]
    assert any("the paper's main figure" in title for title in titles) == is_main
    assert any("beside the paper's numbers" in title for title in titles) == is_beside
    assert page.problems == []


def test_another_split_stands_in_for_one_without_trained_runs(tmp_path: Path):
    page = Page(tmp_path, [tmp_path])
    rows = table_rows({("maze", "random"): [[5.0]]})
    assert find_returns(rows, "unseen", "greedy", 9, page) is None
    assert page.problems[0] == "No run has unseen rows with greedy actions."
    seen = table_rows({("maze", "cql"): [[5.0]]}, split="seen")
    returns = find_returns(seen, "unseen", "greedy", 9, page)
    assert returns.main.scores.split == "seen"
    assert returns.all == [returns.main]
