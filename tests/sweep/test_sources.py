"""Sweeps on datasets: played in an environment of the user's, or not at all."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from episodes import write_episodes
from given import given
from gsf.core.errors import UserError
from gsf.evaluation.rows import read_table
from gsf.reporting.report import ReportConfig, report
from gsf.suites import gymnasium
from gsf.sweep.options import RunConfig
from gsf.sweep.plan import resolve
from gsf.sweep.run import run
from gsf.sweep.sources import Source

WALKS = Path(__file__).parents[1] / "walks.py"
SMALL = ("train.grad_steps=2", "train.batch=16", "label.n_bins=2")
LEVELS = ('evaluate.levels=["1000..1002"]', "evaluate.max_frames=1000000")


pytestmark = pytest.mark.usefixtures("forget")


def test_datasets_are_swept_in_an_environment_of_ones_own(dataset, tmp_path, capsys):
    config = RunConfig(
        tmp_path,
        "smoke",
        methods=("bc", "gsf-reward"),
        datasets=(dataset.path,),
        env=f"{WALKS}:make",
        options=given(*SMALL, *LEVELS),
        workers=1,
        report=False,
    )
    run(config)
    for method in ("bc/seed0", "gsf-reward/seed0", "random"):
        rows = pd.read_csv(tmp_path / "corridor" / method / "returns.csv")
        assert set(rows["level"]) == {1000, 1001, 1002}
        assert set(rows["split"]) == {"unseen"}
    assert not (tmp_path / "corridor/dataset").exists()  # it is used where it is
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("corridor", "bc", "gsf-reward", "random", "unseen"))
    gymnasium.games.clear()
    made = {"explorer": False, "replicates": 10, "video_steps": 9, "env": f"{WALKS}:make"}
    page = report(ReportConfig((tmp_path,), tmp_path / "report", **made)).read_text()
    assert "gsf-reward on corridor level 1000, return" in page  # a film
    assert "No films" not in page


def test_tuning_is_judged_by_validation_levels_of_the_environment(dataset, tmp_path):
    config = RunConfig(
        tmp_path,
        "smoke",
        methods=("bc",),
        datasets=(dataset.path,),
        env=f"{WALKS}:make",
        options=given(*SMALL, *LEVELS, "evaluate.n_validation=2"),
        tune=1,
        workers=1,
        report=False,
    )
    run(config)
    trials = pd.read_csv(tmp_path / "tuning/trials.csv")
    assert trials["game"].eq("corridor").all()
    assert trials["chosen"].sum() == 1
    rows = pd.read_csv(tmp_path / "tuning/corridor/bc/trial0/returns.csv")
    assert set(rows["split"]) == {"validation"}
    made = json.loads((tmp_path / "corridor/bc/seed0/manifest.json").read_text())["config"]
    setting = trials.query("chosen")["setting"].item()
    assert float(setting.removeprefix("train.lr=")) == made["lr"]


def test_without_an_environment_training_metrics_are_shown_and_what_to_do(
    dataset, tmp_path, capsys
):
    run(
        RunConfig(
            tmp_path,
            "smoke",
            methods=("bc",),
            datasets=(dataset.path,),
            options=given(*SMALL),
            workers=1,
            report=False,
        )
    )
    assert not list(tmp_path.rglob("returns.csv"))
    out, err = capsys.readouterr()
    assert "bc/loss" in out
    assert "no suite can play corridor" in " ".join(err.split())
    assert "--env file.py:make" in err
    assert "not been evaluated" not in err


def test_tuning_without_an_environment_is_judged_by_the_likelihood_of_other_contexts(tmp_path):
    small = {"lengths": (6,) * 8, "obs_shape": (12, 12, 3), "n_actions": 3}
    write_episodes(tmp_path / "data", **small)
    write_episodes(tmp_path / "other", levels=(20, 21), seed=1, **small)
    config = RunConfig(
        tmp_path / "out",
        "smoke",
        methods=("bc",),
        datasets=(tmp_path / "data",),
        options=given(*SMALL, "train.batch=4"),
        tune=1,
        workers=1,
        report=False,
    )
    with pytest.raises(UserError, match=r"--tune cannot judge runs on random.*--validation"):
        run(config)
    with pytest.raises(UserError, match="shares context 10 with"):
        run(replace(config, validation=(tmp_path / "data",)))
    run(replace(config, validation=(tmp_path / "other",)))
    trials = read_table(tmp_path / "out/tuning/trials.csv")
    assert trials["log_likelihood"].between(-10, 0).all()
    best = trials["log_likelihood"].idxmax()
    assert trials["chosen"].tolist() == [i == best for i in range(len(trials))]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env": f"{WALKS}:small"}, r"cannot be played by .*images are \[8, 8, 3\]"),
        ({"env": f"{WALKS}:raises"}, "raised FileNotFoundError: no map"),
        ({"datasets": ("tests",)}, "is not a dataset"),
        ({"datasets": "twice"}, "are both of corridor; sweep them one by one"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_computed(dataset, tmp_path, options, message):
    datasets = options.get("datasets", (dataset.path,))
    datasets = (dataset.path,) * 2 if datasets == "twice" else tuple(map(Path, datasets))
    with pytest.raises(UserError, match=message):
        run(RunConfig(tmp_path / "out", "smoke", **(options | {"datasets": datasets})))
    assert not (tmp_path / "out").exists()


def test_recordings_are_swept_beside_datasets_only_if_named(dataset):
    def names(**options):
        return list(resolve(RunConfig(datasets=(dataset.path,), **options)).sources)

    assert names(games=("coinrun",)) == ["corridor"]
    assert names(recordings=("jumper",)) == ["jumper", "corridor"]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("coinrun", "coinrun"),
        ("minigrid/empty-v0", "minigrid-empty-v0"),
        ("../../x", "x"),
        ("..", "data"),
    ],
)
def test_a_name_never_leads_out_of_the_results(name, folder):
    assert Source(name).folder == folder
