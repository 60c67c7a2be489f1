from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from gsf.core import drawing
from gsf.reporting import figures
from gsf.reporting.page import Page
from gsf.reporting.returns import find_returns
from gsf.reporting.sections import results as section
from gsf.reporting.sections.results import all_tables, results
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
    monkeypatch.setattr(drawing, "rendered", lambda figure, kind: b"<svg/>")
    rows = table_rows({(g, m): [[6.0, 7.0]] * 3 for g in games for m in ("bc", "cql")})
    page = Page(tmp_path, [tmp_path])
    returns = find_returns(rows, "unseen", "greedy", baseline, 50, page)
    shown = [*results(returns, page), *all_tables(returns, page)]
    titles = [part["title"] for part in shown if part]
    assert any("the paper's main figure" in title for title in titles) == is_main
    assert any("beside the paper's numbers" in title for title in titles) == is_beside
    assert page.problems == []


@pytest.mark.parametrize("games", [["maze"], ["maze", "miner"]])
def test_of_one_game_mean_iqm_and_median_are_not_shown_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, games
):
    drawn: list[pd.DataFrame] = []
    monkeypatch.setattr(drawing, "rendered", lambda figure, kind: b"<svg/>")
    spied = [
        replace(x, draw=lambda frame: drawn.append(frame) or figures.intervals(frame))
        if x.draw is figures.intervals
        else x
        for x in section.RESULTS
    ]
    monkeypatch.setattr(section, "RESULTS", spied)
    methods = ("random", "bc", "cql")
    tables = [
        table_rows({(g, m): [[6.0, 7.0]] for g in games for m in methods}, split=split, mode=mode)
        for split in ("seen", "unseen")
        for mode in ("greedy", "sampled")
    ]
    page = Page(tmp_path, [tmp_path])
    returns = find_returns(pd.concat(tables), "unseen", "sampled", "cql", 9, page)
    shown = [*results(returns, page), *all_tables(returns, page)]
    by_name = {part["name"]: part for part in shown if part}
    many = len(games) > 1
    assert ({"aggregates", "intervals"} <= set(by_name)) == many
    assert {len(set(frame["statistic"])) for frame in drawn} == {3 if many else 1}
    for name in ("gap", "relative", "differences"):
        rows = [row[0]["words"] for row in by_name[name]["rows"]]
        assert ("median" in rows) == many
        assert set(games) <= set(rows)
    greedy = by_name["aggregates_other_mode"]
    assert greedy["columns"] == ["method", *(["iqm", "mean", "median"] if many else ["mean"])]
    # Random play has no best action, so no row among greedy ones.
    assert [row[0]["words"] for row in greedy["rows"]] == ["bc", "cql"]


def test_another_split_stands_in_for_one_without_trained_runs(tmp_path: Path):
    page = Page(tmp_path, [tmp_path])
    rows = table_rows({("maze", "random"): [[5.0]]})
    assert find_returns(rows, "unseen", "greedy", "cql", 9, page) is None
    assert page.problems[0] == "No run has unseen rows with greedy actions."
    seen = table_rows({("maze", "cql"): [[5.0]]}, split="seen")
    returns = find_returns(seen, "unseen", "greedy", "cql", 9, page)
    assert returns.main.scores.split == "seen"
    assert returns.all == [returns.main]
