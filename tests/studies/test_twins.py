"""How near two looks of one state are put: by hand, and of a run on a small world."""

import numpy as np
import pandas as pd
import pytest

from gsf.core.errors import UserError
from gsf.data.dataset import Dataset
from gsf.data.materialise import MaterialiseConfig, materialise
from gsf.learn.train import TrainConfig, train
from gsf.studies.probe import ProbeConfig, probe
from gsf.studies.twins import distance, draw_twins, nearness
from recordings import record_grid

RIGHT, UP, LEFT = (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)


def test_distance_is_one_minus_cosine():
    x, y = np.array([RIGHT, RIGHT, RIGHT]), np.array([(3.0, 0.0), UP, LEFT])
    assert distance(x, y).tolist() == [0, 1, 2]


def test_nearness_by_hand():
    """Two looks, two states in each: twins are 0 or 1 apart, strangers 1 or 2."""
    first = np.array([RIGHT, UP, RIGHT, LEFT])
    second = np.array([RIGHT, UP, UP, UP])
    found = nearness(first, second, np.array([0, 0, 7, 7]))
    assert found["closer"]["value"] == 1  # 0 < 1 twice, 1 < 2 twice
    assert found["distance"]["value"] == pytest.approx((0 + 0 + 1 + 1) / (1 + 1 + 2 + 2))
    assert found["distance"]["low"] == 0
    assert found["distance"]["high"] == pytest.approx(0.5)
    blind = nearness(np.array([UP] * 4), np.array([UP] * 4), np.array([0, 0, 7, 7]))
    assert blind["closer"]["value"] == 0.5


def test_a_state_alone_in_its_look_is_compared_with_nobody():
    first, second = np.array([RIGHT, UP, LEFT]), np.array([UP, UP, LEFT])
    found = nearness(first, second, np.array([0, 0, 1]))
    assert found["distance"]["value"] == pytest.approx((1 + 0) / (1 + 1))
    with pytest.raises(UserError, match="no two states are seen in one look"):
        nearness(first[:2], second[:2], np.array([0, 1]))


def test_runs_are_probed_with_a_dataset_of_two_views(tmp_path):
    recording = record_grid(tmp_path)
    plain = materialise(MaterialiseConfig(recording, out=tmp_path / "plain"))
    options = {"encoder": "patches", "grad_steps": 2, "batch": 16}
    run = train(TrainConfig(dataset=plain, out=tmp_path / "run", method="cql", **options))
    looked = MaterialiseConfig(
        recording, out=tmp_path / "two", looks=4, views=2, first_look=1_000_000
    )
    data = Dataset.open(materialise(looked))
    assert data.levels == [1_000_000, 1_000_001, 1_000_002, 1_000_003]
    twins = draw_twins(data, 100)
    assert len(twins.first) == 100
    assert (twins.first != twins.second).reshape(100, -1).any(1).all()
    probe(ProbeConfig((run,), looks=data.path, out=tmp_path / "probe", sample=300))
    rows = pd.read_csv(tmp_path / "probe" / "looks.csv")
    measures = rows.groupby("method")["measure"].apply(list).to_dict()
    assert measures == {
        "pixels": ["closer", "distance"],
        "labels": ["labels"],
        "cql": ["closer", "distance", "action"],
    }
    assert set(rows["game"]) == {"grid5_looks"}
    assert (rows["low"] <= rows["value"]).all()
    assert (rows["value"] <= rows["high"]).all()
    with pytest.raises(UserError, match="shows each state in one look"):
        probe(ProbeConfig((run,), looks=plain, out=tmp_path / "probe"))
    with pytest.raises(UserError, match="Give --held-out datasets, or --looks one"):
        ProbeConfig((run,))
