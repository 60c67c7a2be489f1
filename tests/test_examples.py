"""GSF written twice more, in examples/: both come to the weights of `gsf train`, bit for bit."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import gsf
from gsf.core.sealed import load_checkpoint
from gsf.data.dataset import Dataset
from gsf.data.materialise import MaterialiseConfig, materialise

EXAMPLES = Path(__file__).parents[1] / "examples"
STEPS, BATCH, SEED, N_BINS, GAMMA = 12, 24, 3, 4, 0.6  # futures near a cut: some known, some not


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def run(dataset, tmp_path_factory):
    """What gsf itself makes of the dataset: its labels, and a trained run."""
    out = tmp_path_factory.mktemp("run")
    fit = gsf.FitConfig(dataset.path, out / "gvf", gamma=GAMMA, diagnose=False)
    labels = gsf.label(gsf.LabelConfig(gsf.fit(fit), out / "labels", n_bins=N_BINS))
    options = {"encoder": "impala_small", "grad_steps": STEPS, "batch": BATCH, "gamma": GAMMA}
    config = gsf.TrainConfig(
        dataset=dataset.path,
        labels=labels,
        out=out / "run",
        method="gsf-reward",
        seed=SEED,
        **options,
    )
    gsf.train(config)
    return out


def weights(run):
    state = load_checkpoint(run / "run" / "checkpoint.pt")
    base = state["base"].items()
    return {
        "encoder": [*state["encoder"].values()],
        "q": [x for name, x in base if name.startswith("q.")],
        "target_q": [x for name, x in base if name.startswith("target_q.")],
        "target_encoder": [*state["target_encoder"].values()],
        "heads": [*state["loss.gsf"].values()],
    }


def assert_same(found, expected):
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_one_file_comes_to_the_weights_of_gsf_train(dataset, run):
    one_file = load("gsf_in_one_file")
    assert "gsf" not in {x.split()[1].split(".")[0] for x in imports(one_file)}
    agent = one_file.train(
        one_file.Args(
            dataset.path, grad_steps=STEPS, batch=BATCH, seed=SEED, n_bins=N_BINS, gamma=GAMMA
        )
    )
    labels = np.load(run / "labels" / "label.npy")
    assert (labels == -1).any()
    np.testing.assert_array_equal(agent.label, labels)
    wanted = weights(run)
    assert_same([*agent.encoder.state_dict().values()], wanted["encoder"])
    assert_same([*agent.q.state_dict().values()], wanted["q"])
    assert_same([*agent.target_q.state_dict().values()], wanted["target_q"])
    assert_same([*agent.target_encoder.state_dict().values()], wanted["target_encoder"])
    assert_same([*agent.h.parameters(), *agent.w.parameters()], wanted["heads"])


def imports(module):
    lines = Path(module.__file__).read_text().splitlines()
    return [x for x in lines if x.startswith(("import ", "from "))]


def test_one_file_runs_alone_and_saves_weights(dataset, tmp_path):
    command = [sys.executable, "-I", EXAMPLES / "gsf_in_one_file.py", dataset.path]
    options = ["--grad-steps", "2", "--batch", "8", "--out", tmp_path / "weights.pt"]
    said = subprocess.run([*command, *options], capture_output=True, text=True, check=True).stdout
    assert "step      2" in said
    state = torch.load(tmp_path / "weights.pt", weights_only=True)
    assert set(state) == {"encoder", "q"}
    assert all(x.isfinite().all() for part in state.values() for x in part.values())


def test_by_hand_comes_to_the_weights_of_gsf_train(dataset, run, monkeypatch):
    by_hand = load("train_by_hand")
    monkeypatch.setattr(by_hand, "GAMMA", GAMMA)
    monkeypatch.setattr(by_hand, "N_BINS", N_BINS)
    encoder, q = by_hand.train(dataset, STEPS, BATCH, SEED)
    wanted = weights(run)
    assert_same([*encoder.state_dict().values()], wanted["encoder"])
    assert_same([*q.state_dict().values()], wanted["q"])


@pytest.mark.procgen
def test_by_hand_plays_levels_that_the_recording_lacks(tmp_path):
    from recordings import record

    record("fruitbot", n_steps=40, n_envs=2, levels=range(6)).save(tmp_path / "play.gsfrec")
    path = materialise(MaterialiseConfig(str(tmp_path / "play.gsfrec"), tmp_path / "dataset"))
    dataset, by_hand = Dataset.open(path), load("train_by_hand")
    agent = by_hand.train(dataset, 2, 8)
    returns = [by_hand.play(*agent, dataset, [1_000_000, 1_000_001], seed) for seed in (0, 0, 1)]
    assert returns[0] == returns[1]
    assert np.isfinite(returns).all()
    assert all(2 * x == int(2 * x) for x in returns)  # of two whole numbers
