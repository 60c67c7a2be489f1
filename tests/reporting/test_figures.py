import itertools
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from gsf.core import drawing
from gsf.learn.legend import colour
from gsf.reporting import captions, contrasts, figures, stats
from gsf.reporting.scores import scores
from synthetic import evaluation_rows, table_rows

SMALL = {"games": ["coinrun", "maze"], "n_levels": 6, "modes": ["greedy"]}
NAMES = ["random", "behaviour", "cql", "gsf-reward", "my-loss"]


def frames(n_seeds: int, methods: list[str] = NAMES) -> dict[str, tuple]:
    rows = evaluation_rows(**SMALL, methods=methods, n_seeds=n_seeds, steps=[10, 20])
    seen, test = (stats.bootstrap(scores(rows, s), n=50) for s in ("seen", "unseen"))
    variants = ["gsf-reward", "gsf-reward+label.n_bins=3", "gsf-reward+train.update=alternating"]
    varied = evaluation_rows(**SMALL, methods=variants, n_seeds=n_seeds)
    return {
        "first": (stats.per_game(test, raw=True),),
        "intervals": (stats.aggregates(test),),
        "box": (contrasts.ratios(test),),
        "curves": (stats.curves(rows, n=50),),
        "profiles": (stats.profiles(test),),
        "per_game": (stats.per_game(seen, raw=True), stats.per_game(test, raw=True)),
        "improvement": (contrasts.improvement(test),),
        "ablations": (stats.ablations(stats.bootstrap(scores(varied), n=50)),),
    }


def words(figure: Figure) -> str:
    return " ".join(text.get_text() for text in figure.findobj(lambda a: hasattr(a, "get_text")))


@pytest.fixture(scope="module")
def five():
    return frames(5)


@pytest.fixture(scope="module")
def one():
    return frames(1)


RETURNS = [
    "first",
    "intervals",
    "box",
    "curves",
    "profiles",
    "per_game",
    "improvement",
    "ablations",
]


@pytest.mark.parametrize("name", RETURNS)
def test_figures_of_returns_say_where_they_are_from(five, one, name, tmp_path: Path):
    figure = getattr(figures, name)(*five[name])
    said = " ".join(words(figure).split())
    assert "unseen levels, greedy actions, 5 seeds, 2 games" in said
    assert ("95 % intervals over seeds and levels" in said) == (name != "box")
    few = getattr(figures, name)(*one[name])
    said = " ".join(words(few).split())
    assert "1 seed, 2 games" in said
    assert "seeds and levels" not in said
    assert ("95 % intervals over levels" in said) == (name != "box")
    assert captions.caveat(one["intervals"][0]) not in said  # the page says it, once
    paths = drawing.save(few, tmp_path / name)
    assert [path.suffix for path in paths] == [".png", ".svg"]
    assert all(path.stat().st_size > 5000 for path in paths)


@pytest.mark.parametrize("name", [*RETURNS, "gain_by_gap"])
def test_on_a_phone_figures_are_drawn_for_its_width(five, name):
    """Not shrunk: on a screen of 360 pixels letters have 10 or more, and no word is cut off."""
    names = ["random", "cql", "gsf-reward", "gsf-reward+label.n_bins=3+train.update=alternating"]
    rows = evaluation_rows(**SMALL, methods=names, n_seeds=1)
    seen, test = (stats.bootstrap(scores(rows, s), n=9) for s in ("seen", "unseen"))
    frames = {
        **five,
        "first": (stats.per_game(test, raw=True),),
        "intervals": (stats.aggregates(test),),
        "improvement": (contrasts.improvement(test),),
        "per_game": (stats.per_game(seen, raw=True), stats.per_game(test, raw=True)),
        "gain_by_gap": (contrasts.gain_by_gap(seen, test),),
    }
    with drawing.narrow():
        figure = getattr(figures, name)(*frames[name])
    assert figure.get_figwidth() == drawing.NARROW
    figure.draw_without_rendering()
    ticks = {label for ax in figure.axes for label in ax.get_xticklabels()}  # some are not drawn
    for text in set(figure.findobj(Text)) - ticks:
        if text.get_text().strip():
            assert text.get_fontsize() / 72 * 360 / drawing.NARROW > 10
            box = text.get_window_extent()
            assert -1 <= box.x0 < box.x1 <= figure.bbox.width + 1, text.get_text()
    for ax in figure.axes:
        boxes = [x.get_window_extent() for x in ax.get_yticklabels() if x.get_text()]
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))
    assert getattr(figures, name)(*frames[name]).get_figwidth() > drawing.NARROW


def numbers(figure: Figure) -> list[list]:
    """Boxes of the tick labels along each row of panels, from left to right."""
    figure.draw_without_rendering()
    rows: dict[int, list] = {}
    for ax in figure.axes:
        shown = [x for x in ax.get_xticklabels() if x.get_text() and x.get_visible()]
        low, high = ax.get_window_extent().extents[[0, 2]]
        boxes = [x.get_window_extent() for x in shown]
        inside = [box for box in boxes if low - 1 <= (box.x0 + box.x1) / 2 <= high + 1]
        rows.setdefault(round(ax.get_position().y0, 2), []).extend(inside)
    return [sorted(row, key=lambda box: box.x0) for row in rows.values()]


@pytest.mark.parametrize("name", ["first", "intervals", "curves", "profiles", "per_game"])
def test_tick_labels_never_touch(five, name):
    wide = evaluation_rows(n_levels=3, modes=["greedy"], methods=["cql", "random"], n_seeds=3)
    wide["return"] *= 1234.5
    seen, test = (stats.bootstrap(scores(wide, s), n=20) for s in ("seen", "unseen"))
    many = {
        "intervals": (stats.aggregates(test),),
        "per_game": (stats.per_game(seen, raw=True), stats.per_game(test, raw=True)),
        "profiles": (stats.profiles(test),),
        "first": (stats.per_game(test, raw=True).query("game < 'chaser'"),),
        "curves": (five["curves"][0].assign(step=lambda x: x["step"] * 100_000),),
    }
    for frames in (five[name], many[name]):
        for row in numbers(getattr(figures, name)(*frames)):
            assert len(row) > 1
            for left, right in itertools.pairwise(row):
                assert left.x1 + 2 < right.x0


def test_the_same_figure_is_the_same_bytes(five, tmp_path: Path):
    for name in ("a", "b"):
        drawing.save(figures.curves(*five["curves"]), tmp_path / name)
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
    assert "Only 2 seeds" in captions.caveat(frame)
    assert captions.caveat(frame.assign(n_seeds=3)) == ""
    mixed = pd.concat([frame.assign(n_seeds=1), frame])
    assert "methods with 1 seed" in captions.caveat(mixed)
    assert captions.over(mixed).endswith("over levels, and over seeds where there are several")
    assert captions.describe(frame) == "unseen levels, greedy actions, 2 seeds, 1 game"


def test_random_play_has_no_seeds_to_warn_of(five):
    frame = five["intervals"][0]
    assert set(frame[frame["method"] == "random"]["n_seeds"]) == {1}
    assert captions.caveat(frame) == ""


def test_a_method_that_lacks_a_game_leaves_its_row_empty():
    returns = {("a", "bc"): [[1.0]], ("a", "cql"): [[2.0]], ("b", "bc"): [[3.0]]}
    found = stats.bootstrap(scores(table_rows(returns)), n=5)
    figure = figures.first(stats.per_game(found, raw=True))
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    points = {
        ax.get_title(loc="left"): {
            names[int(line.get_ydata()[0])]: float(line.get_xdata()[0])
            for line in ax.lines
            if line.get_marker() != "None"
        }
        for ax in figure.axes
    }
    assert points == {"a": {"bc": 1.0, "cql": 2.0}, "b": {"bc": 3.0}}


def test_the_box_plot_names_games_without_a_ratio():
    rows = table_rows({("a", "cql"): [[1.0, 2.0]], ("b", "cql"): [[-1.0, 1.0]]})
    figure = figures.box(contrasts.ratios(stats.bootstrap(scores(rows))))
    assert "n/a as the baseline is not above 0: b" in " ".join(words(figure).split())


def test_a_method_keeps_its_colour_in_any_company(five):
    for figure in (figures.curves(*five["curves"]), figures.profiles(*five["profiles"])):
        lines = {line.get_label(): line.get_color() for line in figure.axes[0].lines}
        assert lines == {m: colour(m) for m in NAMES}


def test_a_variant_is_named_in_lines():
    assert figures.in_lines("cql") == "cql"
    assert figures.in_lines("cql+cql.alpha=4+train.lr=1e-3") == "cql\n+cql.alpha=4\n+train.lr=1e-3"


@pytest.mark.parametrize("name", ["box", "gain_by_gap", "profiles"])
def test_many_variants_have_room(name):
    """Nothing is pressed to nothing (matplotlib would warn) and no name leaves the figure."""
    names = ["cql", *(f"gsf-reward+label.n_bins={k}+train.lr=1e-{k}" for k in range(2, 20))]
    rows = evaluation_rows(**SMALL, methods=names, n_seeds=1)
    seen, test = (stats.bootstrap(scores(rows, s), n=9) for s in ("seen", "unseen"))
    made: dict[str, Any] = {
        "box": lambda: contrasts.ratios(test),
        "gain_by_gap": lambda: contrasts.gain_by_gap(seen, test),
        "profiles": lambda: stats.profiles(test),
    }
    figure = getattr(figures, name)(made[name]())
    figure.draw_without_rendering()
    panel = figure.axes[0]
    assert panel.get_window_extent().height > figure.bbox.height / 2
    assert len(figure.legends) == (name != "box")
    for legend in figure.legends:
        held = legend.get_window_extent()
        assert held.y0 >= 0
        assert held.y1 <= figure.bbox.height
        assert held.x0 >= panel.get_window_extent().x1
    if name == "box":
        assert [label.get_text() for label in panel.get_yticklabels()] == names[::-1]
        places = [label.get_window_extent() for label in panel.get_yticklabels()]
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(places))


def test_runs_are_drawn_by_their_entropy_beside_random_play():
    runs = {("maze", "cql"): [[2.0], [4.0]], ("maze", "random"): [[5.0]]}
    rows = table_rows(runs, mode="sampled").assign(entropy=[0.5, 1.0, 1.6])
    figure = figures.by_entropy(stats.by_entropy(scores(rows, mode="sampled")))
    assert "2 seeds, 1 game; a point is a run" in words(figure)
    points, dashed, cross = figure.axes[0].lines
    assert points.get_xydata().tolist() == [[0.5, 2.0], [1.0, 4.0]]
    assert set(dashed.get_ydata()) == {5.0}
    assert cross.get_xydata().tolist() == [[1.6, 5.0]]
