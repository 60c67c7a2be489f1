"""Several games: aggregates over those that all have, ranks, a table for each."""

import pytest

from gsf.benchmark import catalogue
from gsf.benchmark.compare import compare
from gsf.benchmark.judge import CLOSED, OPEN, TRACK
from gsf.benchmark.report import as_markdown
from synthetic import evaluation_rows

METHODS = ("random", "behaviour", "bc", "cql", "gsf-reward", "mine")


@pytest.fixture(scope="module")
def rows():
    made = evaluation_rows(("coinrun", "jumper"), METHODS, n_seeds=3, modes=("sampled",))
    return made.astype({"game": str, "method": str}).assign(**{TRACK: CLOSED})


def test_ranks_and_differences_are_over_games(rows):
    lite = catalogue.find("lite-1")
    found = compare(rows, lite, ["mine"], n=100)
    assert (found.n_games, found.n_seeds, found.unit) == (2, 3, "min-max score")
    by = {row["method"]: row for row in found.table}
    assert set(by) == set(METHODS)
    assert by["behaviour"]["rank"] is None
    trained = ("bc", "cql", "gsf-reward", "mine")
    assert sum(by[m]["rank"][0] for m in trained) == pytest.approx(1 + 2 + 3 + 4)
    assert found.best == max(trained[:3], key=lambda m: by[m]["mean"][0])
    gain = by["mine"]["minus cql"]
    assert gain[0] == pytest.approx(by["mine"]["mean"][0] - by["cql"]["mean"][0])
    assert gain[1] < gain[0] < gain[2]
    games = [row["minus cql"][0] for row in found.games if row["method"] == "mine"]
    assert sum(games) / 2 == pytest.approx(gain[0])
    assert 0 < found.effect < 0.5
    said = as_markdown(found, lite, ["mine"])
    assert "A first look: 2 of 8 games, 3 of 5 seeds" in said
    assert said.count("## ") == 2
    assert "a draft" in said


def test_a_first_look_is_over_its_own_games(rows):
    lite = catalogue.find("lite-1")
    some = rows[(rows["method"] != "mine") | ((rows["game"] == "coinrun") & (rows["seed"] == 0))]
    found = compare(some.assign(**{TRACK: OPEN}), lite, ["mine"], n=100)
    assert (found.n_games, found.n_seeds, found.unit) == (1, 1, "return")
    assert {row["track"] for row in found.table} == {OPEN}
    assert found.effect > compare(rows[rows["game"] == "coinrun"], lite, ["mine"], n=100).effect
