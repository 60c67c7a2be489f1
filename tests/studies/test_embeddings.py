from pathlib import Path

import numpy as np
import pytest

import reports
from gsf.core.errors import UserError
from gsf.core.results import Results
from gsf.studies import embeddings


def test_neighbours_are_the_nearest_of_other_levels():
    level = np.array([0, 0, 1, 1, 2])
    z = np.array([[1, 0], [1, 0.1], [0, 1], [1, 0.2], [1, 1]], np.float32)
    similar = embeddings.similarity(z, level)
    assert embeddings.nearest(similar, 2).tolist() == [[3, 4], [3, 4], [4, 1], [1, 0], [3, 1]]
    label = np.array([0, 1, 0, 0, 1])
    sample = embeddings.Sample(
        np.zeros((5, 1, 1, 3), np.uint8), level, label, np.array([]), [], 2, 0.0
    )
    # nearest one: 0 ~ 3 same, 1 ~ 3 not, 2 ~ 4 not, 3 ~ 1 not, 4 ~ 3 not
    assert embeddings.agree(similar, sample, 1)["value"] == pytest.approx(0.2)
    # of other levels: 2 of 3, 1 of 3, 1 of 3, 1 of 3, 1 of 4
    expected = np.mean([2 / 3, 1 / 3, 1 / 3, 1 / 3, 1 / 4])
    assert embeddings._chance(level, label) == pytest.approx(expected)
    with pytest.raises(UserError, match="not finite"):
        embeddings.similarity(z * np.nan, level)


def test_labels_are_made_where_there_are_none(tmp_path: Path):
    results = Results([reports.make_sweep(tmp_path / "runs", n_seeds=1)])
    dataset = results.of_kind("dataset")[0]
    given = embeddings.draw_sample(dataset, results.labels_of(dataset, "reward"), 50)
    assert given.n_bins == 3
    computed = embeddings.draw_sample(dataset, None, 50)
    assert computed.n_bins == 7
    assert computed.label.min() >= 0
    assert results.labels_of(dataset, "action") is None
