"""A protocol that takes seconds, with rows of its baselines, in folders of its own."""

import contextlib
import shutil

import pytest

from gsf.benchmark import catalogue
from gsf.benchmark.entry import CARD, EXPLAINED
from gsf.benchmark.options import EnterConfig
from gsf.benchmark.run import enter
from own_code import LOSS

TEXT = (catalogue.PROTOCOLS / "grid-1.toml").read_text()
TINY = {
    'name = "grid-1"': 'name = "tiny-1"',
    "seeds = 5": "seeds = 2",
    "grad_steps = 2000": "grad_steps = 4",
    "batch = 128": "batch = 16",
    "n_seen = 16": "n_seen = 4",
    "n_validation = 50": "n_validation = 2",
    "n_unseen = 200": "n_unseen = 12",
}


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """The folder of the protocol tiny-1 (bc and cql), its rows, and one seed of a loss in a file,
    entered as a stranger would."""
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
    (home / "mine.py").write_text(LOSS)
    methods = (f"{home / 'mine.py'}:Pull",)
    with known(home):
        rows = enter(EnterConfig("tiny-1", baselines=True, workers=1, out=home / "baselines"))
        shutil.copy(rows, home / "rows" / "tiny-1.csv.gz")
        enter(EnterConfig("tiny-1", methods=methods, seeds=1, workers=1, out=home / "out"))
    return home


@contextlib.contextmanager
def known(home):
    """Inside, tiny-1 is the only protocol."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "PROTOCOLS", home / "protocols")
        patch.setattr(catalogue, "ROWS", home / "rows")
        yield


@pytest.fixture(scope="module")
def tiny(made):
    with known(made):
        yield made


@pytest.fixture(scope="module")
def entered(tiny):
    """The folder of the entrant's results."""
    return tiny / "out" / "tiny-1"


def fill_card(results, folder, **more) -> None:
    """The card that `gsf benchmark run` has left, filled in."""
    text = (results / CARD).read_text().replace("trials = 0", "trials = 3")
    said = dict.fromkeys(EXPLAINED, "said") | more
    for key, value in said.items():
        text = text.replace(f'{key} = "?"', f'{key} = "{value}"')
    (folder / CARD).write_text(text)
