"""`gsf fit --compare` tells a signal from noise and from a clock."""

import json

import numpy as np
import pandas as pd
import pytest

from chains import write_chain
from gsf.gvf.compare import _whole_levels
from gsf.gvf.fit import FitConfig, fit


def test_compare_ranks_a_real_signal_above_noise_and_a_clock(tmp_path, capsys):
    # The image shows the state; the state decides the reward, which does not follow the time.
    gain = np.array([0.0, 5.0, 1.0, 4.0, 2.0])
    dataset = write_chain(
        tmp_path / "d", (1.0, 30.0) * 4, n_episodes=6, reward=lambda state, action: gain[state]
    )
    mine = tmp_path / "mine.py"
    mine.write_text(
        "import numpy as np\nfrom gsf.gvf.cumulants import cumulant\n\n"
        "@cumulant()\ndef clock(chunk):\n    return np.ones(len(chunk.rows))\n\n"
        "@cumulant(random=True)\ndef noise(chunk):\n"
        "    return np.random.default_rng(chunk.seed).normal(size=len(chunk.rows))\n"
    )
    config = FitConfig(
        dataset.path, tmp_path / "cmp", compare=True, gamma=0.3, n_bins=5,
        cumulants=("reward", f"{mine}:noise", f"{mine}:clock", "successor"),
    )  # fmt: skip
    fit(config)
    rows = json.loads((config.out / "compare.json").read_text())["cumulants"]
    found = {row["cumulant"]: row for row in rows}
    assert found["clock"]["time_left"] == pytest.approx(1)
    assert found["noise"]["kappa"] < 0.2
    assert found["reward"]["kappa"] is None
    assert 0 < found["successor"]["kappa"] <= 1
    assert found["reward"]["skill"] > 0.9
    assert found["reward"]["score"] > 3 * max(found["clock"]["score"], found["noise"]["score"])
    table = pd.read_csv(config.out / "compare.csv")
    assert table["score"].is_monotonic_decreasing
    printed = capsys.readouterr().out
    assert "stability" in printed
    assert "n/a" in printed


def test_compare_takes_whole_levels(tmp_path):
    dataset = write_chain(tmp_path / "d", (1.0,) * 6, n_episodes=2)
    config = FitConfig(dataset.path, tmp_path / "cmp", compare=True, compare_rows=15)
    rows = _whole_levels(dataset, config)
    assert len(rows) == 20
    levels = np.unique(dataset.level[rows])
    np.testing.assert_array_equal(rows, np.flatnonzero(np.isin(dataset.level, levels)))


def test_compare_with_td_keeps_its_fits(tmp_path):
    dataset = write_chain(tmp_path / "d", (1.0, 1000.0))
    config = FitConfig(
        dataset.path, tmp_path / "cmp", compare=True, cumulants=("reward",),
        estimator="td", grad_steps=2, batch=32,
    )  # fmt: skip
    fit(config)
    stamps = [p.stat().st_mtime_ns for p in sorted(config.out.glob("reward-seed*/values.npy"))]
    assert len(stamps) == 2
    fit(config)
    assert stamps == [
        p.stat().st_mtime_ns for p in sorted(config.out.glob("reward-seed*/values.npy"))
    ]
