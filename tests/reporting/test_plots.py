import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from gsf.reporting import plots, plots_data, stats
from gsf.reporting.scores import scores
from gsf.suites.procgen import GAMES
from synthetic import METHODS, evaluation_rows, table_rows

SMALL = {"games": ["coinrun", "maze"], "n_levels": 6, "modes": ["greedy"]}
NAMES = ["random", "behaviour", "cql", "gsf-reward", "my-loss"]


def frames(n_seeds: int, methods: list[str] = NAMES) -> dict[str, tuple]:
    rows = evaluation_rows(**SMALL, methods=methods, n_seeds=n_seeds, steps=[10, 20])
    seen, test = (stats.bootstrap(scores(rows, s), n=50) for s in ("seen", "unseen"))
    validation = evaluation_rows(
        **SMALL, methods=["gsf-reward"], splits=["validation"], n_seeds=n_seeds
    )
    sizes = stats.ablation({"3": validation, "7": validation}, n=50)
    return {
        "intervals": (stats.aggregates(test),),
        "box": (stats.ratios(test),),
        "curves": (stats.curves(rows, n=50),),
        "profiles": (stats.profiles(test),),
        "per_game": (stats.per_game(seen, raw=True), stats.per_game(test, raw=True)),
        "improvement": (stats.improvement(test),),
        "ablation": ({"K": sizes, "tau": sizes}, {"K": "7"}),
    }


DATA = {
    "learning": (
        {"maze": {"a": [{"step": 0}, {"step": 4, "ppo/return": 5.0, "ppo/seconds": 9.0}], "b": []}},
    ),
    "entropy": ({"maze": [{"step": 0, "ppo/entropy": 2.7}, {"step": 5}, {"step": 9}]},),
    "theorem1": (
        {k: {"estimation": 0.1, "width": 1 / k, "delta": 0.0} for k in (2, 4, 8)},
        {k: {"width": 1 / k, "flip": k / 20} for k in (2, 4, 8)},
        4,
        0.1,
    ),
    "visits": ([[5, 3, 1], [6, 3, 2]], {"printed": [1, 2, 3], "proof": [3, 2, 1]}),
    "label_histogram": ({"maze": [5, 5, 4], "miner": [1, 2, 3]}, {"maze": 0.1}),
    "cost": ({"cql": [0.1, 0.12], "gsf-reward": [0.15]},),
}


def words(figure: Figure) -> str:
    return " ".join(text.get_text() for text in figure.findobj(lambda a: hasattr(a, "get_text")))


@pytest.fixture(scope="module")
def five():
    return frames(5)


@pytest.fixture(scope="module")
def one():
    return frames(1)


RETURNS = ["intervals", "box", "curves", "profiles", "per_game", "improvement", "ablation"]


@pytest.mark.parametrize("name", RETURNS)
def test_figures_of_returns_say_where_they_are_from(five, one, name, tmp_path: Path):
    figure = getattr(plots, name)(*five[name])
    split = "validation levels" if name == "ablation" else "test levels"
    assert f"{split}, greedy actions, 5 seeds, 2 games" in words(figure)
    assert "Only" not in words(figure)
    few = getattr(plots, name)(*one[name])
    assert "Only 1 seed" in words(few)
    paths = plots.save(few, tmp_path / name)
    assert [path.suffix for path in paths] == [".png", ".svg"]
    assert all(path.stat().st_size > 5000 for path in paths)


@pytest.mark.parametrize("name", list(DATA))
def test_figures_of_the_data(name, tmp_path: Path):
    figure = getattr(plots_data, name)(*DATA[name])
    plots.save(figure, tmp_path / name)
    assert (tmp_path / f"{name}.png").stat().st_size > 5000


def test_the_same_figure_is_the_same_bytes(five, tmp_path: Path):
    for name in ("a", "b"):
        plots.save(plots.curves(*five["curves"]), tmp_path / name)
    for kind in ("png", "svg"):
        a, b = (tmp_path / f"{name}.{kind}" for name in ("a", "b"))
        assert a.read_bytes() == b.read_bytes()
    svg = (tmp_path / "a.svg").read_text()
    assert "<dc:date>" not in svg
    assert not re.search(r"20\d\d-\d\d-\d\d", svg)


def test_two_seeds_are_few():
    frame = stats.aggregates(
        stats.bootstrap(scores(table_rows({("maze", "cql"): [[1], [2]]})), n=9)
    )
    assert "Only 2 seeds" in plots.caveat(frame)
    assert plots.caveat(frame.assign(n_seeds=3)) == ""
    assert plots.describe(frame) == "test levels, greedy actions, 2 seeds, 1 game"


def test_random_play_has_no_seeds_to_warn_of(five):
    frame = five["intervals"][0]
    assert set(frame[frame["method"] == "random"]["n_seeds"]) == {1}
    assert plots.caveat(frame) == ""


def test_the_box_plot_names_games_without_a_ratio():
    rows = table_rows({("a", "cql"): [[1.0, 2.0]], ("b", "cql"): [[-1.0, 1.0]]})
    figure = plots.box(stats.ratios(stats.bootstrap(scores(rows))))
    assert "n/a as the baseline is not above 0: b" in " ".join(words(figure).split())


def test_learning_is_drawn_against_minutes_between_random_and_published_returns():
    (ax,) = plots_data.learning(
        {"maze": {"": [{"ppo/return": 5.0, "ppo/seconds": 3600.0}, {"ppo/return": 6.0}]}}
    ).axes
    curve, *dotted = ax.lines
    assert curve.get_xydata().tolist() == [[60.0, 5.0]]
    assert [line.get_ydata()[0] for line in dotted] == [
        GAMES["maze"].random,
        GAMES["maze"].published[0],
    ]


def test_entropy_marks_the_maximum():
    (ax,) = plots_data.entropy(*DATA["entropy"]).axes
    heights = [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == ":"]
    assert heights == pytest.approx([np.log(15)])
    assert ax.lines[0].get_xydata().tolist() == [[0, 2.7]]


def test_cost_is_relative_to_cql():
    text = words(plots_data.cost(*DATA["cost"]))
    assert "1.36x" in text  # 0.15 / 0.11
    assert "1.00x" in text


def oklab(linear: np.ndarray) -> np.ndarray:
    """Bjorn Ottosson's perceptual space of linear sRGB [n, 3]."""
    to_cone = [
        [0.41222, 0.53633, 0.05145],
        [0.21190, 0.68070, 0.10740],
        [0.08830, 0.28172, 0.62998],
    ]
    to_lab = [
        [0.21045, 0.79362, -0.00407],
        [1.97800, -2.42859, 0.45059],
        [0.02590, 0.78277, -0.80868],
    ]
    return np.cbrt(linear @ np.array(to_cone).T) @ np.array(to_lab).T


def test_methods_can_be_told_apart_by_colour_blind_readers():
    colours = [plots.colour(m) for m in METHODS]
    srgb = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in colours])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    protan = [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]
    deutan = [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]
    for sight in (np.eye(3), np.array(protan), np.array(deutan)):  # Machado et al. 2009
        seen = oklab(np.clip(linear @ sight.T, 0, 1))
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1) + np.eye(len(seen))
        assert apart.min() > 0.1


def test_a_method_keeps_its_colour_in_any_company(five):
    marks = [(plots.colour(m), plots.marker(m)) for m in METHODS]
    assert len(set(marks)) == len(METHODS)
    assert plots.colour("my-loss") == plots.colour("my-loss") not in {c for c, _ in marks}
    figures = [plots.curves(*five["curves"]), plots.profiles(*five["profiles"])]
    for figure in figures:
        lines = {line.get_label(): line.get_color() for line in figure.axes[0].lines}
        assert lines == {m: plots.colour(m) for m in NAMES}
