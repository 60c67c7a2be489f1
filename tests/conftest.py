"""What the tests share: one torch thread each, and a small dataset that can be learnt.

The tests run beside each other, and threads that wait for a core spin.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; children inherit it

import pytest

import tiny
from gsf.core import registry
from gsf.suites import gymnasium


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
