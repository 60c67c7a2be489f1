"""How methods look: from their own files, without a list of methods anywhere."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import gsf
from gsf.core.registry import facts_in
from gsf.learn import legend
from gsf.learn.legend import colour, in_order, learns_from_labels, marker
from gsf.learn.methods import all_methods

SHIPPED = [*legend.REFERENCES, *legend.BASES, *legend.AUXILIARY]
SOURCE = Path(gsf.__file__).parent


def test_every_method_is_known_without_running_its_file():
    assert sorted(all_methods()) == sorted([*legend.BASES, *legend.AUXILIARY])


def test_each_kind_by_name_and_what_learns_from_labels_last():
    names = "gsf-action new vpn cql+cql.alpha=11 gsf-mine cql+cql.alpha=4 behaviour random"
    names += " gsf-action+curl curl curl+gsf-action gsf-reward cql bc"
    ordered = "random behaviour bc cql cql+cql.alpha=4 cql+cql.alpha=11 curl curl+gsf-action vpn"
    ordered += " new gsf-action gsf-action+curl gsf-mine gsf-reward"
    assert in_order(names.split()) == ordered.split()
    assert [x for x in names.split() if learns_from_labels(x)] == [
        *("gsf-action", "gsf-mine", "gsf-action+curl", "gsf-reward")
    ]


def test_what_says_no_colour_has_one_that_follows_from_its_name():
    names = [f"mine{i}" for i in range(100)]
    assert [*map(colour, names)] == [*map(colour, names)]
    assert len({colour(x) for x in names}) > 5
    assert len({marker(x) for x in names}) > 5
    assert not {colour(x) for x in names} & set(legend.COLOURS.values())


def test_what_a_class_says_is_read_and_not_run(tmp_path):
    code = "raise SystemExit\n\nclass Mine:\n    name = 'mine'\n    needs: set = {'labels'}\n"
    (tmp_path / "mine.py").write_text(code + "    made = print()\n")
    (tmp_path / "plain.py").write_text("X = 1\n")
    said = {"name": "mine", "needs": {"labels"}}
    assert facts_in(tmp_path) == {"mine": said, "plain": {}}


CODE = """
import sys
from gsf.reporting.headline import headline
from gsf.learn.legend import AUXILIARY, colour, in_order
assert "torch" not in sys.modules
assert "curl" not in AUXILIARY
assert {"pull", "rank-reward", "gsf-reward"} <= set(AUXILIARY)
assert colour("pull") == "#123456" != colour("rank-reward")
assert in_order(["rank-reward", "pull", "cql", "curl"]) == ["cql", "pull", "curl", "rank-reward"]
from gsf.learn.methods import find_all
assert {"pull", "rank-action"} <= {x.name for x in find_all(["all"])}
"""


def test_a_file_more_or_less_needs_no_list_to_be_edited(tmp_path):
    home = tmp_path / "gsf"
    shutil.copytree(SOURCE, home, ignore=shutil.ignore_patterns("shipped", "__pycache__"))
    folder = home / "learn" / "losses"
    (folder / "curl.py").unlink()
    vpn, gsf_loss = (folder / "vpn.py").read_text(), (folder / "gsf.py").read_text()
    renamed = vpn.replace('name = "vpn"', 'name = "pull"')
    (folder / "pull.py").write_text(renamed.replace(legend.COLOURS["vpn"], "#123456"))
    (folder / "rank.py").write_text(
        gsf_loss.replace('name = "gsf"', 'name = "rank"').replace("    colour", "    hue")
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", CODE], check=True, env=env, cwd=tmp_path)


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
    colours = [colour(m) for m in SHIPPED]
    assert set(legend.COLOURS) <= {*SHIPPED}
    srgb = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in colours])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    protan = [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]
    deutan = [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]
    for sight in (np.eye(3), np.array(protan), np.array(deutan)):  # Machado et al. 2009
        seen = oklab(np.clip(linear @ sight.T, 0, 1))
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1) + np.eye(len(seen))
        assert apart.min() > 0.08
