import subprocess
import sys

from gsf.core.drawing import panels


def test_panels_know_their_edges():
    figure, axes, left, bottom = panels("abcdef", 1.0, x="steps", y="score")
    assert len(axes) == 6
    assert left == [axes[0], axes[4]]
    assert bottom == axes[-4:]
    assert [ax.get_title() for ax in axes] == [*"abcdef"]
    assert [ax.get_ylabel() for ax in axes] == ["score", "", "", "", "score", ""]
    assert [ax.get_xlabel() for ax in axes] == ["", "", *["steps"] * 4]
    assert [ax.get_visible() for ax in figure.axes] == [True] * 6 + [False] * 2


def test_matplotlib_is_imported_by_what_draws():
    code = "import gsf.core.drawing, sys; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
