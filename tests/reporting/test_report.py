import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

import manifests
import reports
from gsf.core import drawing
from gsf.core.errors import UserError
from gsf.core.results import Results
from gsf.core.sealed import to_line
from gsf.core.stage import read_manifest
from gsf.reporting.gather import gather
from gsf.reporting.report import ReportConfig, _unplayed, report
from synthetic import evaluation_rows, table_rows

SMALL = {"replicates": 100, "explorer_sample": 150}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reports.make_sweep(tmp_path_factory.mktemp("sweep") / "runs")


@pytest.fixture(scope="module")
def made(sweep: Path) -> Path:
    """The whole report, inside the directory it is about, as `gsf run` writes it."""
    return report(ReportConfig((sweep,), sweep / "report", **SMALL))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch):
    """Figures take most of the time; not every test is about them."""
    monkeypatch.setattr(drawing, "rendered", lambda figure, kind: b"<svg/>")


def data_of(html: str):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    return json.loads(found[1])


def without_pictures(html: str) -> str:
    return re.sub(r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=]*", "", html)


def test_the_page_says_who_is_best_and_where_every_number_is_from(made: Path):
    html = without_pictures(made.read_text())
    lead = re.search(r'<p class="headline">(.*?)</p>', html)[1]
    # 4 + mean of 0, 1, 2 + 0.2 * 4 and 0.1 for the second of two seeds
    assert "gsf-reward has the highest mean return on unseen levels of corridor: " in lead
    assert html.index('class="headline"') < html.index('id="fig-first"') < html.index("<nav")
    assert "5.85 [" in lead
    assert "2 seeds per method cannot rank them" in lead
    assert html.count("Only 2 seeds") == 1  # not over every figure
    assert "95 % intervals over seeds and levels; actions sampled" in html
    assert "brackets are 95 % intervals over seeds and levels" in html
    assert "6 levels per game" in html
    for title in ("Results", "Tables", "Explorer", "Data and method", "How it was made"):
        assert f"<h2>{title}</h2>" in html
    for name in set(re.findall(r'id="table-(\w+)"', html)) - {"digests", "agreement"}:
        note = re.search(rf'id="table-{name}".*?<p class="note">(.*?)</p>', html, re.S)[1]
        how = r"(greedy actions|actions sampled at temperature 0\.5)"
        said = rf"(Unseen|Seen|Seen - unseen) levels, {how}, 2 seeds, 1 game\."
        assert re.match(said, note), name
    assert "Mean return minus cql&#39;s on the same levels: gsf-reward +1.00" in html


def test_every_figure_and_table_is_also_a_file(made: Path):
    html, out = made.read_text(), made.parent
    figures = {*re.findall(r'<figure id="fig-(\w+)"', html)}
    assert {"first", "box", "curves", "per_game", "profiles", "improvement"} <= figures
    assert {"gap", "gain_by_gap", "by_entropy", "labels", "theorem1", "visits", "cost"} <= figures
    names = {*re.findall(r'<div class="table" id="table-(\w+)"', html)} - {"digests"}
    assert {"mean_returns", "relative", "gap", "entropy", "agreement"} <= names
    assert html.count('<source media="(max-width: 34rem)" srcset="data:') == len(figures)
    for name in figures:
        with Image.open(out / "figures" / f"{name}.png") as image:
            assert image.width > 500
        assert "<svg" in (out / "figures" / f"{name}.svg").read_text()[:600]
    for name in names:
        rows = pd.read_csv(out / "tables" / f"{name}.csv")
        assert {"method", "value"} <= set(rows)
        assert (out / "tables" / f"{name}.md").read_text().startswith("| ")
        assert "\\toprule" in (out / "tables" / f"{name}.tex").read_text()
    listed = read_manifest(out, "report")["files"]
    found = [
        str(p.relative_to(out)) for kind in ("figures", "tables") for p in (out / kind).iterdir()
    ]
    assert sorted(listed) == sorted([*found, "report.html"])


def test_nothing_is_loaded_and_no_place_of_this_machine_is_named(made: Path, sweep: Path):
    html = without_pictures(made.read_text())
    assert not re.search(r"https?://|//[a-z]+\.[a-z]+/|@import|\bfetch\(|XMLHttp", html)
    assert re.search(r"Content-Security-Policy\" content=\"default-src 'none'", html)
    assert str(sweep) not in html
    assert made.stat().st_size < 2_000_000


def test_the_same_runs_give_the_same_bytes(made: Path, sweep: Path, tmp_path: Path):
    # the first report lies among the runs and is not taken for one
    again = report(ReportConfig((sweep,), tmp_path / "again", **SMALL))
    first, second = made.read_text(), again.read_text()
    assert first == second
    for path in (made.parent / "tables").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / "tables" / path.name).read_bytes()


def test_broken_runs_are_named_and_the_rest_is_reported(sweep: Path, tmp_path: Path, undrawn):
    runs = tmp_path / "runs"
    shutil.copytree(sweep, runs, ignore=shutil.ignore_patterns("report"))
    home = runs / "corridor"
    (home / "bc" / "seed1" / "manifest.json").write_text('{"kind": "run"')
    (home / "cql" / "seed0" / "checkpoint.pt").write_bytes(b"not a checkpoint")
    (home / "cql" / "seed1" / "DONE").unlink()
    (home / "gsf-reward" / "seed1" / "returns.csv").unlink()
    (home / "half").mkdir()
    (home / "half" / "metrics.jsonl").write_text("")
    options = {"games": ("corridor",), "methods": (*reports.METHODS, "pse"), "seeds": 2}
    html = report(ReportConfig((runs,), tmp_path / "out", **options, **SMALL)).read_text()
    missing = re.search(r'<section id="missing">(.*?)</section>', html, re.S)[1]
    assert "corridor/bc/seed1/manifest.json is damaged" in missing
    assert "corridor/half is half-written" in missing
    assert "corridor/gsf-reward/seed1 has not been evaluated" in missing
    assert "corridor/cql/seed1 is still training: used up to step 4" in missing
    assert "cql/seed0: no neighbours under its embedding" in missing
    assert "corridor/pse/seed0, corridor/pse/seed1" in missing
    assert "gsf-reward has the highest" in html
    assert 'href="#missing"' in html
    assert [m["name"] for m in data_of(html)["explorer"][0]["methods"]] == [
        "bc",
        "gsf-reward",
        "pixels",
    ]


def test_kept_networks_that_nobody_played_are_named(sweep: Path):
    rows, _ = gather([sweep])
    assert _unplayed(rows, Results([sweep])) == []
    assert "6 runs keep networks" in _unplayed(rows[rows["step"] != 2], Results([sweep]))[0]


def test_a_report_before_any_evaluation_and_one_of_nothing(sweep: Path, tmp_path: Path, undrawn):
    runs = tmp_path / "runs"
    shutil.copytree(sweep / "corridor" / "cql" / "seed0", runs / "seed0")
    (runs / "seed0" / "returns.csv").unlink()
    html = report(ReportConfig((runs,), tmp_path / "out", **SMALL)).read_text()
    assert "No results yet: play the runs (gsf evaluate RUN) or, where there is no" in html
    assert data_of(html)["explorer"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no run found"):
        report(ReportConfig((tmp_path / "empty",), tmp_path / "out2"))
    with pytest.raises(UserError, match="there is no"):
        ReportConfig((tmp_path / "nowhere",), tmp_path / "out2")
    with pytest.raises(UserError, match="not a report"):
        report(ReportConfig((runs,), runs / "seed0" / "checkpoints", **SMALL))
    with pytest.raises(UserError, match="holds a run, not a report"):
        report(ReportConfig((runs,), runs / "seed0", **SMALL))


def test_names_from_files_cannot_become_code(tmp_path: Path, undrawn):
    evil = "<script>alert(1)</script>"
    rows = table_rows({(g, m): [[1.0, 2.0]] * 3 for g in ("maze", evil) for m in ("cql", evil)})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    config = ReportConfig((tmp_path / "rows.csv",), tmp_path / "out", **SMALL)
    html = report(config).read_text()
    assert evil not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert html.count("<script") == 2


def test_files_of_an_earlier_report_go_when_it_is_made_again(tmp_path: Path, undrawn):
    steps = evaluation_rows(["maze"], ["cql", "bc"], 1, 3, steps=(5, 10))
    steps.to_csv(tmp_path / "rows.csv", index=False)
    config = ReportConfig((tmp_path / "rows.csv",), tmp_path / "out", **SMALL)
    report(config)
    assert (tmp_path / "out" / "figures" / "curves.svg").is_file()
    (tmp_path / "out" / "figures" / "mine.txt").write_text("kept")
    steps[steps["step"] == 10].to_csv(tmp_path / "rows.csv", index=False)
    report(config)
    assert not (tmp_path / "out" / "figures" / "curves.svg").exists()
    assert (tmp_path / "out" / "figures" / "box.svg").exists()
    assert (tmp_path / "out" / "figures" / "mine.txt").exists()


def test_a_method_that_lacks_games_can_be_left_out(tmp_path: Path, undrawn):
    rows = evaluation_rows(["coinrun", "maze"], ["cql", "bc", "pse"], 2, 5)
    lacking = rows[(rows["game"] != "maze") | (rows["method"] != "pse")]
    lacking.to_csv(tmp_path / "rows.csv", index=False)
    out, source = tmp_path / "out", (tmp_path / "rows.csv",)

    def averaged() -> tuple[set[str], str]:
        table = pd.read_csv(out / "tables" / "relative.csv")
        return set(table["method"]), (out / "report.html").read_text()

    report(ReportConfig(source, out, **SMALL))
    assert "aggregates leave out maze: no run of pse" in averaged()[1]
    report(ReportConfig(source, out, **SMALL, leave_out=("pse",)))
    methods, page = averaged()
    assert "pse" not in methods
    assert "aggregates leave out" not in page
    assert "left out, as asked: pse." in page
    with pytest.raises(UserError, match=r"--leave-out psi: there is none; there are .*bc, cql"):
        report(ReportConfig(source, out, **SMALL, leave_out=("psi",)))


def test_a_report_writes_and_removes_nothing_behind_a_link(tmp_path: Path, undrawn):
    steps = evaluation_rows(["maze"], ["cql", "bc"], 1, 3, steps=(5, 10))
    steps.to_csv(tmp_path / "rows.csv", index=False)
    config = ReportConfig((tmp_path / "rows.csv",), tmp_path / "out", **SMALL)
    report(config)
    elsewhere = (tmp_path / "out" / "figures").rename(tmp_path / "elsewhere")
    (tmp_path / "out" / "figures").symlink_to(elsewhere)
    steps[steps["step"] == 10].to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(UserError, match="figures is a link that leads out of"):
        report(config)
    assert (elsewhere / "curves.svg").is_file()


def test_another_split_stands_in_and_is_named(tmp_path: Path, undrawn):
    rows = evaluation_rows(["maze"], ["bc"], 1, 3, splits=["validation"])
    rows.to_csv(tmp_path / "rows.csv", index=False)
    html = report(ReportConfig((tmp_path / "rows.csv",), tmp_path / "out", **SMALL)).read_text()
    assert "bc has a mean return of" in html
    assert "on validation levels of maze" in html
    assert "No run has unseen rows" in html
    assert "no runs of the baseline &#39;cql&#39;" in html


def test_what_was_tried_at_several_temperatures_is_compared_at_each(tmp_path: Path):
    tried = evaluation_rows(
        ["maze"], ["bc", "cql"], 1, 3, splits=["validation"], modes=["sampled-1", "sampled-0.5"]
    )
    pd.concat([tried, evaluation_rows(["maze"], ["bc", "cql"], 1, 3)]).to_csv(
        tmp_path / "rows.csv", index=False
    )
    html = report(ReportConfig((tmp_path / "rows.csv",), tmp_path / "out", **SMALL)).read_text()
    assert 'id="fig-at_equal_temperatures"' in html
    assert "Validation levels, all at the same temperature, 1 seed" in html
    found = pd.read_csv(tmp_path / "out" / "tables" / "at_equal_temperatures.csv")
    assert [*found["temperature"]] == [1, 0.5]


def test_ablations_policies_and_similar_pairs_are_shown(tmp_path: Path, undrawn):
    policy = tmp_path / "more" / "policy"
    manifests.write("policy", policy)
    (policy / "metrics.jsonl").write_text(to_line({"step": 1, "ppo/entropy": 2.5}))
    pair = tmp_path / "more" / "pair"
    manifests.write("similar", pair)
    others = shutil.copytree(pair, tmp_path / "more" / "others")
    manifests.change(others, digest="/../../../outside")  # of a folder someone else made
    for kind in ("png", "svg"):
        (pair / f"similar.{kind}").write_text("<svg/>")
    rows = evaluation_rows(["maze"], ["cql", "cql+cql.alpha=4"], 1, 3)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    runs = (tmp_path / "rows.csv", tmp_path / "more")
    html = report(ReportConfig(runs, tmp_path / "out", **SMALL)).read_text()
    assert 'id="fig-ablations"' in html
    assert 'id="fig-entropy"' in html
    assert 'id="fig-similar_' in html
    assert html.count('<div class="scroll whole">') == 1  # drawn by another stage, for a page
    assert not list(tmp_path.rglob("outside*"))
    assert "no run found" not in html


def test_the_page_holds_neighbours_of_other_levels_with_their_facts(made: Path, sweep: Path):
    found = data_of(made.read_text())["explorer"]
    assert [game["game"] for game in found] == ["corridor"]
    game = found[0]
    assert [m["name"] for m in game["methods"]] == ["bc", "cql", "gsf-reward", "pixels"]
    levels = [item[0] for item in game["items"]]
    assert set(levels) <= {str(x) for x in range(100, 106)}
    assert {item[1] for item in game["items"]} == {0, 1, 2}
    for method in game["methods"]:
        assert len(method["neighbours"]) == len(game["queries"])
        for query, near in zip(game["queries"], method["neighbours"], strict=True):
            assert len(near) == 5
            assert levels[query] not in {levels[i] for i in near}
    # return of an episode: level + 1 at the end, 0.1 at three steps
    whole = [item for item in game["items"] if not item[2].endswith("+")]
    assert whole
    assert all(float(item[2]) == pytest.approx(int(item[0]) - 99 + 0.3) for item in whole)
    rows = pd.read_csv(made.parent / "tables" / "agreement.csv").set_index("method")
    assert set(rows.index) == {"bc", "cql", "gsf-reward", "pixels", "chance"}
    assert rows.loc["chance", "value"] == pytest.approx(1 / 3, abs=0.05)


def test_importing_a_report_needs_neither_torch_nor_procgen():
    code = "import gsf.reporting.report, sys; assert not {'torch', 'procgen'} & set(sys.modules)"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
