"""A protocol that takes seconds, with rows of its baselines, in folders of its own."""

import shutil

import pytest

from gsf.benchmark import catalogue
from gsf.benchmark.options import EnterConfig
from gsf.benchmark.run import enter
from own_code import LOSS

TEXT = (catalogue.PROTOCOLS / "grid-1.toml").read_text()
TINY = {
    'name = "grid-1"': 'name = "tiny-1"',
    "seeds = 10": "seeds = 2",
    "grad_steps = 2000": "grad_steps = 4",
    "batch = 128": "batch = 16",
    "n_seen = 16": "n_seen = 4",
    "n_validation = 50": "n_validation = 2",
    "n_unseen = 200": "n_unseen = 12",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The protocol tiny-1, whose baselines are bc and cql, and the folder of their runs."""
    home = tmp_path_factory.mktemp("benchmark")
    text = TEXT
    for old, new in TINY.items():
        assert old in text
        text = text.replace(old, new)
    first, last = text.index("methods = ["), text.index("compare = ")
    text = text[:first] + 'methods = ["bc", "cql"]\n' + text[last:]
    (home / "protocols").mkdir()
    (home / "rows").mkdir()
    (home / "protocols" / "tiny-1.toml").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "PROTOCOLS", home / "protocols")
        patch.setattr(catalogue, "ROWS", home / "rows")
        rows = enter(EnterConfig("tiny-1", baselines=True, workers=1, out=home / "baselines"))
        shutil.copy(rows, home / "rows" / "tiny-1.csv.gz")
        yield home


@pytest.fixture(scope="module")
def entered(tiny):
    """One seed of a loss in a file, entered as a stranger would: the folder of its results."""
    (tiny / "mine.py").write_text(LOSS)
    name = f"{tiny / 'mine.py'}:Pull"
    rows = enter(EnterConfig("tiny-1", methods=(name,), seeds=1, workers=1, out=tiny / "out"))
    return rows.parent
