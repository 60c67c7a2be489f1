from pathlib import Path

import numpy as np
import pytest

import manifests
from gsf.core.drawing import save
from gsf.core.results import Results
from gsf.core.sealed import to_line
from gsf.reporting.page import Page
from gsf.reporting.sections import method
from gsf.suites.procgen import GAMES

FIGURES = {
    "draw_learning": (
        {"maze": [{"step": 0}, {"step": 4, "ppo/return": 5.0, "ppo/seconds": 9.0}], "miner": []},
    ),
    "draw_entropy": ({"maze": [{"step": 0, "ppo/entropy": 2.7}, {"step": 5}, {"step": 9}]},),
    "draw_labels": (
        {
            "maze": {"histogram": [5, 5, 4], "share_ignored": 0.1},
            "miner": {"histogram": [1, 2, 3], "share_ignored": 0.0},
        },
    ),
    "draw_cost": ({"cql": [0.1, 0.12], "gsf-reward": [0.15]}, "cql"),
}


@pytest.mark.parametrize("name", list(FIGURES))
def test_figures_of_the_data(name, tmp_path: Path):
    save(getattr(method, name)(*FIGURES[name]), tmp_path / name)
    assert (tmp_path / f"{name}.png").stat().st_size > 5000


def test_learning_is_drawn_against_minutes_between_random_and_published_returns():
    (ax,) = method.draw_learning(
        {"maze": [{"ppo/return": 5.0, "ppo/seconds": 3600.0}, {"ppo/return": 6.0}]}
    ).axes
    curve, *dotted = ax.lines
    assert curve.get_xydata().tolist() == [[60.0, 5.0]]
    assert [line.get_ydata()[0] for line in dotted] == [
        GAMES["maze"].random,
        GAMES["maze"].published[0],
    ]


def test_entropy_marks_the_maximum():
    among_five = {"maze": [{"step": 0, "ppo/entropy": 1.6}]}
    for policies, most in ((FIGURES["draw_entropy"][0], 15), (among_five, 5)):
        (ax,) = method.draw_entropy(policies).axes
        heights = [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == ":"]
        assert heights == pytest.approx([np.log(most)])
    (ax,) = method.draw_entropy(*FIGURES["draw_entropy"]).axes
    assert ax.lines[0].get_xydata().tolist() == [[0, 2.7]]


def test_cost_is_relative_to_cql():
    (ax,) = method.draw_cost(*FIGURES["draw_cost"]).axes
    assert [text.get_text() for text in ax.texts] == ["1.36x", "1.00x"]  # 0.15 / 0.11


def test_the_cost_is_that_of_the_last_whole_row(tmp_path: Path):
    manifests.write("run", tmp_path)
    lines = [to_line({"step": i, "train/seconds": 2.0 * i * i}) for i in (1, 2, 3)]
    lines += [to_line({"step": 4, "other": 1.0}), '{"step": 5, "train/sec']
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    page = Page(tmp_path / "page", [tmp_path])
    assert method._seconds_per_step(Results([tmp_path]), page) == {"cql": [6.0]}
    (tmp_path / "metrics.jsonl").write_bytes(b"\xff\xfe not UTF-8\n")
    assert method._seconds_per_step(Results([tmp_path]), page) == {}
    assert "metrics.jsonl is damaged: line 1 fails its checksum" in page.problems[0]


def test_a_policy_that_has_only_begun_has_a_panel_all_the_same():
    figure = method.draw_entropy({"maze": []})
    assert len(figure.axes) == 1
