import subprocess
import sys

import numpy as np

from gsf.core.drawing import colour, in_order, panels
from synthetic import METHODS


def test_order_of_methods():
    names = ["gsf-action", "pse", "new", "gsf-reward", "cql", "behaviour", "random", "gsf-mine"]
    ordered = ["random", "behaviour", "cql", "pse", "new", "gsf-reward", "gsf-action", "gsf-mine"]
    assert in_order(names) == ordered


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
    colours = [colour(m) for m in METHODS]
    srgb = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in colours])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    protan = [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]
    deutan = [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]
    for sight in (np.eye(3), np.array(protan), np.array(deutan)):  # Machado et al. 2009
        seen = oklab(np.clip(linear @ sight.T, 0, 1))
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1) + np.eye(len(seen))
        assert apart.min() > 0.1


def test_panels_know_their_edges():
    figure, axes, left, bottom = panels(6, 1.0)
    assert len(axes) == 6
    assert left == [axes[0], axes[4]]
    assert bottom == axes[-4:]
    assert [ax.get_visible() for ax in figure.axes] == [True] * 6 + [False] * 2


def test_matplotlib_is_imported_by_what_draws():
    code = "import gsf.core.drawing, sys; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
