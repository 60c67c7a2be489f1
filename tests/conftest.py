"""What the tests share: one torch thread each, and a small dataset that can be learnt.

The tests run beside each other, and threads that wait for a core spin. Where Procgen is not
installed (`make test-numpy2`), a test that reaches for it is skipped; one that does so in another
process says so by the marker `procgen`.
"""

import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported; children inherit it
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # many processes are started: compile gsf once

import pytest

import tiny
from gsf.core import registry
from gsf.suites import gymnasium


class NoProcgen(ModuleType):
    """What is imported in Procgen's place."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python's own questions
            raise AttributeError(name)
        pytest.skip("needs Procgen")


HAS_PROCGEN = importlib.util.find_spec("procgen") is not None
if not HAS_PROCGEN:
    sys.modules["procgen"] = NoProcgen("procgen")


def pytest_collection_modifyitems(items):
    for item in items:
        if not HAS_PROCGEN and item.get_closest_marker("procgen"):
            item.add_marker(pytest.mark.skip("needs Procgen"))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return tiny.write_dataset(tmp_path_factory.mktemp("tiny") / "dataset")


@pytest.fixture(scope="module")
def labels(dataset):
    return tiny.write_labels(dataset.path.with_name("labels"), dataset)


@pytest.fixture
def forget(monkeypatch):
    """What other tests have named is not known here, nor what is named here to them."""
    monkeypatch.setattr(registry, "_named", {})
    gymnasium.games.clear()
    yield
    gymnasium.games.clear()
