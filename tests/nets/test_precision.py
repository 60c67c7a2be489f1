"""`--precision auto`: what the trial says is taken, written down, and kept by whoever goes on."""

import dataclasses

import pytest
import torch

from given import given
from gsf.behaviour.collect import CollectConfig, collect
from gsf.core.errors import UserError
from gsf.core.sealed import load_checkpoint
from gsf.core.stage import read_manifest
from gsf.gvf.fit import FitConfig, fit
from gsf.learn.learner import Learner
from gsf.learn.train import TrainConfig, train
from gsf.nets import precision
from gsf.sweep.options import RunConfig
from players import train_run, write_dataset
from signals import stopped


@pytest.fixture
def trial(monkeypatch):
    """What a trial says, by encoder; every trial is noted."""
    tried = []

    def answer(ratio):
        monkeypatch.setattr(precision, "gain", lambda *asked: tried.append(asked) or ratio)

    answer.tried = tried
    return answer


def test_training_takes_what_pays_and_goes_on_with_it(tmp_path, trial):
    dataset = write_dataset(tmp_path / "d")
    options = {"encoder": "impala_small", "grad_steps": 3, "batch": 4, "device": "cpu", "keep": 1}
    config = TrainConfig(
        dataset=dataset.path, out=tmp_path / "auto", method="bc", precision="auto", **options
    )
    trial(1.5)
    stopped(train, config, Learner, "update", at=1)
    assert read_manifest(config.out, "run", whole=False)["options"]["precision"] == "bf16"
    trial(0.5)  # a neighbour is busy now
    train(config)
    train(config)  # is done already
    assert trial.tried == [((64, 64, 3), "impala_small", 4, "cpu")]
    whole = train(dataclasses.replace(config, out=tmp_path / "bf16", precision="bf16"))
    assert read_manifest(config.out, "run")["digest"] == read_manifest(whole, "run")["digest"]
    one, other = (load_checkpoint(x / "checkpoints" / "step_3.pt") for x in (config.out, whole))
    assert all(torch.equal(x, other["encoder"][name]) for name, x in one["encoder"].items())


def test_a_gain_that_is_noise_is_left_alone(tmp_path, trial):
    dataset = write_dataset(tmp_path / "d")
    trial(1.05)
    run = train_run(dataset, tmp_path / "run", method="bc", precision="auto")
    assert read_manifest(run, "run")["options"]["precision"] == "float32"


def test_nothing_is_tried_where_nothing_is_trained(tmp_path, trial):
    dataset = write_dataset(tmp_path / "d")
    trial(1.5)
    options = {"estimator": "mc", "diagnose": False, "allow_small_levels": True}
    fit(FitConfig(dataset.path, tmp_path / "mc", precision="auto", **options))
    assert read_manifest(tmp_path / "mc", "gvf")["options"]["precision"] == "float32"
    play = {"game": "coinrun", "player": "random", "transitions": 64, "precision": "auto"}
    collect(CollectConfig(**play, out=tmp_path / "play"))
    assert trial.tried == []


def test_a_sweep_needs_one_for_all_its_runs(tmp_path):
    with pytest.raises(UserError, match=r"train\.precision=auto: each run would choose by itself"):
        RunConfig(tmp_path, "smoke", options=given("train.precision=auto")).stage(
            "train", dataset=tmp_path, out=tmp_path
        )


def test_the_trial_times_both(monkeypatch):
    monkeypatch.setattr(precision, "SECONDS", 0.0)
    assert precision.gain((16, 16, 3), "impala_small", 2, "cpu") > 0
