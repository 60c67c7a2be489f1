"""What to install to try other versions than today's, printed for pip (Makefile).

python tests/requirements.py lowest      the lowest version of all that pyproject.toml allows
python tests/requirements.py numpy2      everything but Procgen, with NumPy 2 or later
"""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
LEFT_OUT = {"examples"}  # whose versions are those of `dev`; they bring jax besides


def requirements() -> list[str]:
    extras = PROJECT["optional-dependencies"].items()
    found = [line for extra, lines in extras if extra not in LEFT_OUT for line in lines]
    return [x for x in (*PROJECT["dependencies"], *found) if not x.startswith(PROJECT["name"])]


def lowest() -> set[str]:
    """Torch is that of constraints.txt: other builds for the CPU are not on the package index."""
    bounds = [re.match(r"([\w-]+)(?:\[.*?\])?>=([\w.]+)", line) for line in requirements()]
    return {f"{bound[1]}=={bound[2]}" for bound in bounds if bound and bound[1] != "torch"}


def numpy2() -> set[str]:
    """Without markers: those that are there are Procgen's."""
    others = {x for x in requirements() if not x.startswith("procgen") and ";" not in x}
    return others | {"numpy>=2"}


if __name__ == "__main__":
    print("\n".join(sorted({"lowest": lowest, "numpy2": numpy2}[sys.argv[1]]())))
