"""Every loss on every base, the released settings, and a new loss in one new file."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny
from given import given
from gsf import cli
from gsf.core import registry
from gsf.core.code import is_code
from gsf.core.errors import UserError
from gsf.core.loop import all_finite
from gsf.data.dataset import Dataset
from gsf.learn import bases, losses, methods
from gsf.learn.agent import load_agent
from gsf.learn.learner import AgentConfig, Learner
from gsf.learn.legend import in_order
from gsf.learn.train import TrainConfig, train
from gsf.reporting.report import ReportConfig, report
from gsf.sweep.run import RunConfig, run
from own_code import LOSS

BASELINES = ["curl", "ctrl", "deepmdp", "vpn", "cssc", "pse"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return tiny.write_dataset(tmp_path_factory.mktemp("methods") / "dataset")


@pytest.mark.parametrize("update", ["joint", "alternating"])
@pytest.mark.parametrize("method", BASELINES)
def test_trains_the_encoder_with_either_update(dataset: Dataset, method: str, update: Any) -> None:
    config = AgentConfig(method=method, update=update, encoder="impala_small", stop_gradient=True)
    learner, rng = Learner(config, dataset, np.random.default_rng(0)), np.random.default_rng(0)
    before = learner.encoder.trunk.fc.weight.detach().clone()
    for _ in range(2):
        info = learner.update(dataset.sample(24, rng), rng)
    assert all_finite(learner.modules.values())
    assert {f"{method}/loss", "cql/loss"} <= info.keys()
    assert all(value.isfinite() and not value.requires_grad for value in info.values())
    assert not torch.equal(before, learner.encoder.trunk.fc.weight)  # by the auxiliary loss alone


@pytest.mark.parametrize("method", BASELINES)
def test_released_setting(method: str) -> None:
    config = AgentConfig(method=method, released=True).resolved()
    assert config.parts["cql"].alpha == 0
    assert config.stop_gradient == (method in ("deepmdp", "vpn"))
    assert AgentConfig(method=method).resolved().parts["cql"].alpha == 1


# Names


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of a user's own, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-loss.py").write_text(LOSS.replace('"pull"', '"tiny"'))
    (tmp_path / "a+b.py").write_text(LOSS.replace('"pull"', '"ab"'))
    (tmp_path / "light.py").write_text(LOSS.replace("Config(AuxiliaryLoss.Config)", "Config"))
    (tmp_path / "train.py").write_text(LOSS.replace('"pull"', '"train"'))
    (tmp_path / "labelled.py").write_text(
        LOSS.replace('"pull"', '"mine"; needs = frozenset({"labels"})')
    )
    (tmp_path / "my_base.py").write_text(
        "from gsf.learn.bases.bc import BC\n\n\nclass Mine(BC):\n    name = 'imitate'\n"
    )
    (tmp_path / "mine.py").write_text(
        "from gsf.gvf.cumulants import cumulant\n\n\n"
        "@cumulant()\ndef danger(chunk):\n    return chunk.reward < 0\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("spec", "name", "base", "loss", "cumulant"),
    [
        ("bc", "bc", "bc", None, None),
        ("curl", "curl", "cql", "curl", None),
        ("gsf-reward", "gsf-reward", "cql", "gsf", "reward"),
        ("gsf-mine.py:danger", "gsf-danger", "cql", "gsf", "mine.py:danger"),
        ("my-loss.py:Pull", "tiny", "cql", "my-loss.py:Pull", None),
        ("labelled.py:Pull-action", "mine-action", "cql", "labelled.py:Pull", "action"),
        (
            "./labelled.py:Pull-mine.py:danger",
            "mine-danger",
            "cql",
            "./labelled.py:Pull",
            "mine.py:danger",
        ),
        ("my_base.py:Mine", "imitate", "my_base.py:Mine", None, None),
        ("gsf-reward+curl", "gsf-reward+curl", "cql", "gsf curl", "reward"),
        ("vpn+a+b.py:Pull+gsf-action", "vpn+ab+gsf-action", "cql", "vpn a+b.py:Pull gsf", "action"),
        ("a+b.py:Pull", "ab", "cql", "a+b.py:Pull", None),
    ],
)
def test_a_name_is_a_base_a_loss_and_a_cumulant(
    own: Path, spec: str, name: str, base: str, loss: str | None, cumulant: str | None
) -> None:
    method = methods.find(spec)
    assert (method.spec, method.name, method.base.spec) == (spec, name, base)
    assert [part.spec for part in method.losses] == (loss or "").split()
    assert method.cumulant == cumulant
    assert set(method.identity()) == {x.name for x in method.parts.values() if ".py:" in x.spec}
    assert methods.find_all([spec]) == [method]
    if loss is not None:
        assert methods.find(spec, "my_base.py:Mine").base.name == "imitate"


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("gfs-reward", r"unknown method 'gfs-reward'; did you mean gsf-reward\? There are bc, cql"),
        ("dqn", "unknown method 'dqn'; .*gsf-<cumulant>"),
        ("gsf", "'gsf' needs labels: say of which cumulant, as in gsf-action"),
        ("gsf-", "needs labels"),
        ("cql-reward", "cql is a base and takes no cumulant"),
        ("curl-reward", "curl needs no labels, so it takes no cumulant"),
        ("missing.py:Mine", "no Python file missing.py"),
        ("mine.py:danger", "'danger' of mine.py is not an auxiliary loss"),
        ("curl+curl", "'curl[+]curl': curl is there twice"),
        ("curl+iql", "iql is a base; name losses, and --on iql"),
        ("gsf-reward+labelled.py:Pull-action", "labels of one cumulant, not reward and action"),
        ("curl+vnp", "unknown method 'vnp'; did you mean vpn"),
        ("train.py:Pull", "its name, 'train', cannot stand before options"),
    ],
)
def test_a_wrong_name_gets_one_sentence(own: Path, spec: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        methods.find(spec)


def test_a_loss_without_a_weight_says_how_to_get_one(own: Path, dataset: Dataset) -> None:
    config = AgentConfig(method="light.py:Pull", encoder="impala_small")
    with pytest.raises(UserError, match="pull: write `class Config"):
        Learner(config, dataset, np.random.default_rng(0))


def test_two_methods_of_one_name_are_refused(own: Path) -> None:
    (own / "other.py").write_text((own / "my-loss.py").read_text())
    specs = ["my-loss.py:Pull", "other.py:Pull"]
    with pytest.raises(UserError, match="are both called tiny; rename one"):
        methods.find_all(specs)
    assert [method.name for method in methods.find_all(["bc", *specs[:1], "bc"], "bc")] == [
        "bc",
        "tiny",
    ]
    with pytest.raises(UserError, match="unknown cumulant 'rewrd'"):
        methods.find_all(["bc", "gsf-rewrd"])
    (own / "taken.py").write_text((own / "my-loss.py").read_text().replace('"tiny"', '"curl"'))
    with pytest.raises(UserError, match="'curl' is an auxiliary loss of gsf"):
        methods.find("taken.py:Pull")


def test_bases_and_losses_share_no_name() -> None:
    assert not set(bases.names()) & set(losses.names())


def test_an_agent_with_code_of_a_file_acts_only_where_the_file_was_named(
    own: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = own / "run"
    argv = [str(dataset.path), "--out", str(out), "--method", "my-loss.py:Pull"]
    argv += ["--on", "my_base.py:Mine", "--tiny.power", "3", "--grad-steps", "2", "--batch", "8"]
    assert cli.main(["train", *argv, "--encoder", "impala_small"]) == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["method"] == "tiny"
    assert {x for x in manifest["inputs"] if not is_code(x)} == {"dataset", "imitate", "tiny"}
    assert load_agent(out).method == "tiny"  # named in this process
    monkeypatch.setattr(registry, "_named", {})  # as in another process
    with pytest.raises(UserError, match="if you trust it, name the file, as it was, with --code"):
        load_agent(out)
    registry.allow([Path("my_base.py")])  # its loss is not needed to act
    assert load_agent(out).method == "tiny"

    (own / "my_base.py").write_text((own / "my_base.py").read_text() + "# changed\n")
    assert cli.main(["train", *argv, "--encoder", "impala_small"]) == 2  # another base


def test_labels_of_ones_own_cumulant(own: Path, dataset: Dataset) -> None:
    labels = tiny.write_labels(own / "labels", dataset, "mine.py:danger")
    config = TrainConfig(
        dataset=dataset.path,
        out=own / "run",
        labels=labels,
        method="gsf-mine.py:danger",
        encoder="impala_small",
        grad_steps=1,
        batch=8,
    )
    manifest = json.loads((train(config) / "manifest.json").read_text())
    assert manifest["method"] == "gsf-danger"
    again = dataclasses.replace(config, method="gsf-danger", out=own / "again")
    assert train(again).is_dir()  # whoever has labels needs no code


def test_acting_needs_neither_gvfs_nor_suites() -> None:
    code = "import gsf.learn.agent, sys; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name for name in shown.stdout.split() if name.startswith("gsf.")}
    assert not {x for x in loaded if x.split(".")[1] in ("gvf", "suites", "data")}
    assert "gsf.learn.losses" not in loaded


# A new file


@pytest.fixture
def new_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "losses"
    folder.mkdir()
    (folder / "pull.py").write_text(LOSS)
    monkeypatch.setattr(losses, "__path__", [*losses.__path__, str(folder)])
    yield folder
    sys.modules.pop("gsf.learn.losses.pull", None)


def test_one_new_file_is_a_new_method(new_loss: Path, dataset: Dataset, tmp_path: Path) -> None:
    assert {*BASELINES, "gsf", "pull"} <= set(losses.names())
    assert losses.find("pull").value.name == "pull"
    assert "pull" in methods.method_names()
    assert in_order(["gsf-reward", "pull", "cql"]) == ["cql", "pull", "gsf-reward"]

    out = tmp_path / "run"
    argv = [str(dataset.path), "--out", str(out), "--method", "pull", "--pull.power", "3"]
    argv += ["--grad-steps", "2", "--batch", "8", "--encoder", "impala_small", "--log-every", "1"]
    assert cli.main(["train", *argv]) == 0
    assert json.loads((out / "manifest.json").read_text())["config"]["parts"]["pull"] == {
        "weight": 1.0,
        "power": 3.0,
    }
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert "pull/loss" in rows[-1]


def test_the_sweep_and_the_report_find_it(new_loss: Path, tmp_path: Path) -> None:
    assert "pull" in methods.all_methods()
    small = ("train.grad_steps=2", "train.batch=8", "materialise.transitions=800")
    small += ("train.encoder=patches",)
    few = ("evaluate.n_seen=2", "evaluate.n_validation=0", "evaluate.n_unseen=2", "pull.power=3")
    out = run(
        RunConfig(
            out=tmp_path / "out",
            preset="smoke",
            methods=("cql", "pull"),
            recordings=("grid5_looks-best",),
            options=given(*small, *few),
            report=False,
            workers=1,  # others would not see the folder
        )
    )
    config = ReportConfig((out,), out / "report", replicates=50, videos=False, explorer=False)
    assert "pull" in report(config).read_text()
