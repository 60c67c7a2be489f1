import pandas as pd

from gsf.reporting.report import ReportConfig, report
from synthetic import evaluation_rows

SMALL = {"replicates": 100, "videos": False, "explorer": False}


def test_power_is_printed_drawn_and_tabulated(tmp_path, capsys):
    rows = evaluation_rows(
        games=["coinrun", "maze"], methods=["random", "bc", "cql"], n_seeds=3, n_levels=20
    )
    rows.to_csv(tmp_path / "rows.csv", index=False)
    out = tmp_path / "report"
    report(ReportConfig((tmp_path / "rows.csv",), out, power=True, **SMALL))
    said = capsys.readouterr().out
    assert "smallest effect, (x - cql) / cql, mean over 2 games" in said
    mean = pd.read_csv(out / "tables" / "power.csv").set_index(["seeds", "levels"])["value"]
    assert len(mean) == 10 * 5
    assert f"{mean[10, 1000]:.3f}" in said
    assert mean[1, 50] > mean[3, 50] > mean[3, 500] > mean[10, 500]
    games = pd.read_csv(out / "tables" / "power_per_game.csv")
    assert set(games["game"]) == {"coinrun", "maze", "mean"}
    page = (out / "report.html").read_text()
    assert "What could be seen" in page
    assert (out / "figures" / "power.png").is_file()


def test_one_seed_says_nothing_of_power_and_the_report_says_that(tmp_path):
    rows = evaluation_rows(games=["maze"], methods=["bc", "cql"], n_seeds=1, n_levels=20)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    page = report(ReportConfig((tmp_path / "rows.csv",), tmp_path / "report", power=True, **SMALL))
    assert "No power: power needs two seeds of cql" in page.read_text()
    assert not (tmp_path / "report" / "figures" / "power.png").exists()
