"""What fitting and labelling rely on in a cumulant, tried on a small made-up dataset."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gsf.core.logs import silence
from gsf.data.dataset import Dataset
from gsf.gvf import cumulants
from gsf.gvf.cumulants import Chunk
from gsf.learn import corridor
from gsf.learn.promises import require


@dataclass(frozen=True)
class Subject:
    spec: str
    dataset: Dataset

    @property
    def kind(self) -> Any:
        return cumulants.find(self.spec).value


def owns(spec: str) -> bool:
    return cumulants.owns(spec)


def values_every_transition(subject: Subject) -> None:
    """It gives every transition a finite number, or as many as every other."""
    cumulants.evaluate(subject.kind, subject.dataset, np.arange(len(subject.dataset)))


def values_each_transition_by_itself(subject: Subject) -> None:
    """A transition's value is the same, again and again, alone and among others."""
    rows = np.arange(20)
    among, again, alone = (
        np.concatenate([np.asarray(subject.kind(Chunk(subject.dataset, x)), float) for x in parts])
        for parts in ([rows], [rows], np.split(rows, 20))
    )
    require(np.array_equal(among, again), "a second call gives other values")
    near = np.allclose(among, alone, 1e-3, 1e-4)
    require(near, "values depend on the transitions they are asked with")


def can_be_ranked(subject: Subject) -> None:
    """A GVF of it can be fitted, ranked and binned into labels."""
    with tempfile.TemporaryDirectory(prefix="gsf-check-") as directory, silence():
        labels = corridor.write_labels(Path(directory) / "labels", subject.dataset, subject.spec)
        known = np.load(labels / "label.npy") >= 0
    require(bool(known.any()), "no level has two different values: every label is unknown")


OF_CUMULANTS: tuple[Callable[[Subject], None], ...] = (
    values_every_transition,
    values_each_transition_by_itself,
    can_be_ranked,
)
