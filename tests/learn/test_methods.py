"""Every loss on every base, the released settings, and a new loss in one new file."""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny
from gsf import cli
from gsf.data.dataset import Dataset
from gsf.learn import bases, losses, methods
from gsf.learn.learner import AgentConfig, Learner
from gsf.reporting.report import ReportConfig, report
from gsf.reporting.returns import in_order
from gsf.sweep.run import RunConfig, run
from recordings import record

BASELINES = ["curl", "ctrl", "deepmdp", "vpn", "cssc", "pse"]

NEW_LOSS = '''
"""Pulls z towards 0: no use, but all that a loss has to have."""

from dataclasses import dataclass

import torch

from gsf.learn.losses import AuxiliaryLoss


class Shrink(AuxiliaryLoss):
    name = "shrink"

    @dataclass(frozen=True)
    class Config:
        power: float = 2.0
        """Of |z|."""

    def __init__(self, config, spec):
        super().__init__(config, spec)
        self.config, self.scale = config, torch.nn.Parameter(torch.ones(()))

    def forward(self, context):
        loss = (self.scale * context.z).abs().pow(self.config.power).mean()
        return loss, {}
'''

# What pytest loads before it collects the suite, in a process of its own.
PLUGIN = "import gsf.learn.losses; gsf.learn.losses.__path__.append({folder!r})"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return tiny.write_dataset(tmp_path_factory.mktemp("methods") / "dataset")


@pytest.mark.parametrize("update", ["joint", "alternating"])
@pytest.mark.parametrize("base", bases.names())
@pytest.mark.parametrize("method", BASELINES)
def test_trains_the_encoder_on_either_base_with_either_update(
    dataset: Dataset, method: str, base: Any, update: Any
) -> None:
    config = AgentConfig(
        method=method, on=base, update=update, encoder="impala_small", stop_gradient=True
    )
    learner, rng = Learner(config, dataset, np.random.default_rng(0)), np.random.default_rng(0)
    before = learner.encoder.trunk.fc.weight.detach().clone()
    for _ in range(2):
        info = learner.update(dataset.sample(24, rng), rng)
    assert learner.finite()
    assert {f"{method}/loss", f"{base}/loss"} <= info.keys()
    assert all(value.isfinite() and not value.requires_grad for value in info.values())
    assert not torch.equal(before, learner.encoder.trunk.fc.weight)  # by the auxiliary loss alone


@pytest.mark.parametrize("method", BASELINES)
def test_goes_on_from_its_state_bit_for_bit(dataset: Dataset, method: str) -> None:
    def make() -> Learner:
        config = AgentConfig(method=method, encoder="impala_small")
        return Learner(config, dataset, np.random.default_rng(0))

    def step(learner: Learner, seed: int) -> dict[str, float]:
        rng = np.random.default_rng(seed)
        info = learner.update(dataset.sample(24, rng), rng)
        return {name: float(value) for name, value in info.items()}

    whole, resumed = make(), make()
    for seed in range(2):
        step(whole, seed)
    resumed.load(copy.deepcopy(whole.state()))
    for seed in (2, 3):
        assert step(whole, seed) == step(resumed, seed)


@pytest.mark.parametrize("method", BASELINES)
def test_released_setting(method: str) -> None:
    config = AgentConfig(method=method, released=True).resolved()
    assert config.base.alpha == 0
    assert config.stop_gradient == (method in ("deepmdp", "vpn"))
    assert AgentConfig(method=method).resolved().base.alpha == 1


@pytest.fixture
def new_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "losses"
    folder.mkdir()
    (folder / "shrink.py").write_text(NEW_LOSS)
    monkeypatch.setattr(losses, "__path__", [*losses.__path__, str(folder)])
    yield folder
    sys.modules.pop("gsf.learn.losses.shrink", None)


def test_one_new_file_is_a_new_method(new_loss: Path, dataset: Dataset, tmp_path: Path) -> None:
    assert losses.names() == sorted([*BASELINES, "gsf", "shrink"])
    assert losses.find("shrink").value.name == "shrink"
    assert "shrink" in methods.method_names()
    assert in_order(["gsf-reward", "shrink", "cql"]) == ["cql", "shrink", "gsf-reward"]

    out = tmp_path / "run"
    argv = [str(dataset.path), "--out", str(out), "--method", "shrink", "--loss.power", "3"]
    argv += ["--grad-steps", "2", "--batch", "8", "--encoder", "impala_small", "--log-every", "1"]
    assert cli.main(["train", *argv]) == 0
    assert json.loads((out / "manifest.json").read_text())["config"]["loss"] == {"power": 3.0}
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert "shrink/loss" in rows[-1]


def test_the_sweep_and_the_report_find_it(new_loss: Path, tmp_path: Path) -> None:
    assert "shrink" in methods.all_methods()
    record("starpilot", n_steps=200, n_envs=4, levels=range(3)).save(tmp_path / "play.gsfrec")
    small = ("train.grad_steps=2", "train.batch=8", "materialise.transitions=800")
    few = ("evaluate.n_seen=2", "evaluate.n_validation=0", "evaluate.n_unseen=2", "shrink.power=3")
    out = run(
        RunConfig(
            out=tmp_path / "out",
            preset="smoke",
            methods=("cql", "shrink"),
            recordings=(str(tmp_path / "play.gsfrec"),),
            set=(*small, *few),
            report=False,
        )
    )
    config = ReportConfig((out,), out / "report", replicates=50, videos=False, explorer=False)
    assert "shrink" in report(config).read_text()


def test_the_conformance_suite_finds_it(new_loss: Path, tmp_path: Path) -> None:
    (tmp_path / "with_new_loss.py").write_text(PLUGIN.format(folder=str(new_loss)))
    suite = Path(__file__).parent / "losses" / "test_losses.py"
    command = [sys.executable, "-m", "pytest", "-p", "with_new_loss", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, str(suite), "-k", "shrink and not documented", "-rA"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for test in ("is_a_finite_scalar", "same_seed_same_value", "falls_over_50_steps"):
        assert f"test_{test}[shrink]" in done.stdout
