from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gsf.core.errors import UserError
from gsf.evaluation.ensemble import Ensemble
from gsf.evaluation.evaluate import EvaluateConfig, evaluate
from gsf.evaluation.players import find_players
from gsf.reporting.gather import gather
from players import HashAgent, train_run, write_dataset

FEW = {"splits": ("validation", "unseen"), "n_validation": 2, "n_unseen": 2, "device": "cpu"}
FEW |= {"modes": ("sampled",), "max_frames": 20}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    home = tmp_path_factory.mktemp("runs")
    dataset = write_dataset(home / "dataset")
    return [train_run(dataset, home / f"seed{seed}", seed) for seed in range(3)]


def test_it_acts_by_the_mean_of_its_members_policies(runs: list[Path]) -> None:
    members = [find_players(str(run), device="cpu")[0].actor for run in runs]
    obs = np.random.default_rng(0).integers(0, 256, (5, 64, 64, 3), np.uint8)
    for temperature in (0.0, 0.5, 1.0):
        each = [member.policy(obs, np.full(5, temperature)) for member in members]
        found = Ensemble(members).policy(obs, np.full(5, temperature))
        np.testing.assert_allclose(found, sum(each) / 3)
        np.testing.assert_allclose(found.sum(1), 1)
    alone = HashAgent()
    np.testing.assert_array_equal(
        Ensemble([alone]).policy(obs, [1.0] * 5), alone.policy(obs, [1.0] * 5)
    )


def test_its_rows_are_of_a_variant_and_beside_those_of_its_members(runs: list[Path]) -> None:
    config = EvaluateConfig(str(runs[0]), ensemble=tuple(runs[1:]), **FEW)
    rows = evaluate(config)
    assert set(rows["method"]) == {"cql+evaluate.ensemble=3"}
    assert len(rows) == 2 + 2
    assert not (runs[0] / "temperature.json").exists()  # that is the run's own
    assert not (runs[0] / "returns.csv").exists()
    written = (runs[0] / "ensemble.csv").read_bytes()
    pd.testing.assert_frame_equal(rows, evaluate(config))
    assert written == (runs[0] / "ensemble.csv").read_bytes()
    evaluate(EvaluateConfig(str(runs[0]), **FEW))
    found, problems = gather([runs[0], runs[0] / "ensemble.csv"])
    assert set(found["method"]) == {"cql", "cql+evaluate.ensemble=3"}
    assert problems == []


def test_runs_that_do_not_belong_together_are_refused(runs: list[Path], tmp_path: Path) -> None:
    other = train_run(write_dataset(tmp_path / "data"), tmp_path / "bc", method="bc")
    for ensemble, why in (
        ((other,), "one method, not cql and bc"),
        ((runs[0],), "twice"),
        ((tmp_path / "none",), "is no run"),
    ):
        with pytest.raises(UserError, match=why):
            evaluate(EvaluateConfig(str(runs[0]), ensemble=ensemble, **FEW))
    with pytest.raises(UserError, match="plays alone"):
        EvaluateConfig(str(runs[0]), ensemble=(runs[1],), all=True)
