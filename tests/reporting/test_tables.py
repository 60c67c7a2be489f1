from pathlib import Path

import pandas as pd
import pytest

from gsf.reporting import contrasts, stats, tables
from gsf.reporting.scores import scores
from gsf.suites.procgen import GAMES
from synthetic import evaluation_rows, table_rows


def test_the_papers_table_is_whole():
    paper = tables.paper_table().pivot(index="game", columns="method", values="value")
    assert set(paper.index) == {*GAMES, "iqm", "mean", "median"}
    averages = {  # over its 16 games
        "bc": (-0.058, -0.047),
        "deepmdp": (-0.575, -0.662),
        "vpn": (-0.455, -0.621),
        "cssc": (-0.477, -0.632),
        "pse": (-0.075, -0.133),
        "gsf-reward": (0.261, 0.123),
    }
    for method, (mean, median) in averages.items():
        assert paper.loc["mean", method] == pytest.approx(mean, abs=6e-4)
        assert paper.loc["median", method] == pytest.approx(median, abs=6e-4)
    assert paper.loc["climber", "gsf-reward"] == 1.894737
    middle = paper.loc[list(GAMES), "bc"].sort_values()[4:12]  # half of the 16 games
    assert paper.loc["iqm", "bc"] == pytest.approx(middle.mean())


def test_ours_stands_beside_the_papers_on_the_same_games():
    methods = ["random", "behaviour", "cql", "bc", "gsf-reward"]
    rows = evaluation_rows(["coinrun", "maze"], methods, n_levels=5, modes=["greedy"])
    frame = tables.beside_paper(contrasts.relative(stats.bootstrap(scores(rows), n=50)))
    table = tables.wide(frame)
    assert list(table["game"]) == ["coinrun", "maze", "iqm", "mean", "median"]
    assert list(table.columns[:5]) == ["game", "random", "behaviour", "bc", "bc (paper)"]
    assert list(table.columns[-2:]) == ["gsf-reward", "gsf-reward (paper)"]
    # the mean of the paper's coinrun and maze, not of its 16 games
    assert table.set_index("game").loc["mean", "bc (paper)"] == f"{(0.070671 - 0.368421) / 2:.2f}"
    assert table.set_index("game").loc["iqm", "bc (paper)"] == f"{(0.070671 - 0.368421) / 2:.2f}"
    without = tables.beside_paper(contrasts.relative(stats.bootstrap(scores(rows), n=50)), {"maze"})
    assert tables.wide(without).set_index("game").loc["mean", "bc (paper)"] == "0.07"


def test_cells():
    tidy = pd.DataFrame(
        {
            "game": ["a", "b", "a"],
            "method": ["cql", "cql", "bc"],
            "value": [0.314, float("nan"), 1.0],
            "low": [0.2, float("nan"), float("nan")],
            "high": [0.456, float("nan"), float("nan")],
        }
    )
    table = tables.wide(tidy)
    assert table.to_numpy().tolist() == [["a", "1.00", "0.31 [0.20, 0.46]"], ["b", "", "n/a"]]
    assert tables.to_markdown(table) == (
        "| game | bc | cql |\n| --- | ---: | ---: |\n"
        "| a | 1.00 | 0.31 [0.20, 0.46] |\n| b |  | n/a |\n"
    )
    latex = tables.to_latex(table.rename(columns={"bc": "a_b & 5%"}))
    assert "game & a\\_b \\& 5\\% & cql \\\\\n\\midrule\n" in latex
    assert latex.startswith("\\begin{tabular}{lrr}\n\\toprule\n")


def test_tables_are_written_thrice_and_identically(tmp_path: Path):
    rows = table_rows(
        {("coinrun", "cql"): [[6.0, 7.0], [8.0, 9.0]], ("coinrun", "random"): [[5, 5]]}
    )
    texts = []
    for name in ("x.1", "y.1"):
        frame = stats.aggregates(stats.bootstrap(scores(rows), n=50))
        paths = tables.write_table(frame, tmp_path / name, index="method", columns="statistic")
        assert [path.name for path in paths] == [f"{name}.csv", f"{name}.md", f"{name}.tex"]
        texts.append([path.read_bytes() for path in paths])
    assert texts[0] == texts[1]
    back = pd.read_csv(tmp_path / "x.1.csv")
    assert back[back["statistic"] == "iqm"]["value"].tolist() == [0.0, 0.5]
    assert list(back["method"].unique()) == ["random", "cql"]


def test_a_name_cannot_become_a_spreadsheets_formula(tmp_path: Path):
    rows = table_rows({("coinrun", "=HYPERLINK(1)"): [[6.0]], ("coinrun", "cql"): [[-1.0]]})
    frame = stats.per_game(stats.bootstrap(scores(rows), n=20), raw=True)
    tables.write_table(frame, tmp_path / "x")
    text = (tmp_path / "x.csv").read_text()
    assert "'=HYPERLINK(1)" in text
    assert "\n=" not in text
    assert ",=" not in text
    assert "'-1" not in text  # a number stays one
