import dataclasses
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gsf
import tiny
from forked import forked
from gsf.core import command_line
from gsf.core.code import is_code
from gsf.core.errors import UserError
from gsf.core.files import locked
from gsf.core.logs import read_metrics
from gsf.core.options import from_json, to_json
from gsf.core.sealed import load_checkpoint
from gsf.core.stage import read_manifest
from gsf.data.dataset import Dataset
from gsf.learn import bases, losses
from gsf.learn.agent import load_agent
from gsf.learn.learner import Learner
from gsf.learn.train import TrainConfig, train
from signals import stopped


def config_of(
    dataset: Dataset, out: Path, labels: Path | None = None, **options: Any
) -> TrainConfig:
    defaults = {
        "encoder": "impala_small",
        "grad_steps": 6,
        "batch": 8,
        "checkpoint_every": 10,
        "log_every": 4,
    }
    return TrainConfig(dataset=dataset.path, out=out, labels=labels, **(defaults | options))


EVERY_OPTION_OF_OPTIMISERS = {
    "optimizer": "adamw",
    "weight_decay": 0.1,
    "lr_schedule": "cosine",
    "warmup": 3,
    "clip_grad": 0.5,
}


def interrupt_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """The training process dies while it computes this step."""
    update, calls = Learner.update, 0

    def dying(self: Learner, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == step:
            raise KeyboardInterrupt
        return update(self, *args)

    monkeypatch.setattr(Learner, "update", dying)


def equal(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(equal(first[k], second[k]) for k in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(equal, first, second))
    return bool(first == second)


def assert_same_run(first: Path, second: Path) -> None:
    one, two = (load_checkpoint(run / "checkpoint.pt") for run in (first, second))
    assert one.pop("seconds") > 0
    assert two.pop("seconds") > 0
    for name in one:
        assert equal(one[name], two[name]), name
    rows = [read_metrics(run / "metrics.jsonl") for run in (first, second)]
    for row in [*rows[0], *rows[1]]:
        assert row.pop("train/seconds") > 0
    assert rows[0] == rows[1]


@pytest.mark.parametrize(  # every other part by itself: goes_on_from_what_was_saved of `gsf check`
    ("method", "options"),
    [
        ("top_bc", {}),  # keeps what it has found in the dataset
        ("ctrl", {}),  # has a queue
        ("gsf-reward", {}),
        ("iql", {"parts": {"iql": {"policy_lr": 1e-4}}, **EVERY_OPTION_OF_OPTIMISERS}),
        ("gsf-reward+curl", {"update": "alternating", **EVERY_OPTION_OF_OPTIMISERS}),
    ],
)
def test_20_steps_are_10_and_a_kill_and_10_more_bit_for_bit(
    dataset: Dataset,
    labels: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    options: dict[str, Any],
) -> None:
    config = config_of(
        dataset,
        tmp_path / "whole",
        labels if method.startswith("gsf") else None,
        method=method,
        grad_steps=20,
        keep=2,
        **options,
    )
    train(config)
    parts = dataclasses.replace(config, out=tmp_path / "parts")
    with monkeypatch.context() as patch:
        interrupt_at(patch, 14)
        with pytest.raises(KeyboardInterrupt):
            train(parts)
    assert load_checkpoint(parts.out / "checkpoint.pt")["step"] == 10
    assert read_metrics(parts.out / "metrics.jsonl")[-1]["step"] == 12  # after the checkpoint
    train(parts)
    assert_same_run(config.out, parts.out)
    for step in (10, 20):
        kept = [
            load_checkpoint(run / f"checkpoints/step_{step}.pt") for run in (config.out, parts.out)
        ]
        assert equal(kept[0]["encoder"], kept[1]["encoder"])


def test_asked_to_stop_it_loses_no_step(dataset: Dataset, tmp_path: Path) -> None:
    config = config_of(dataset, tmp_path / "whole", grad_steps=12, keep=3)
    train(config)
    parts = dataclasses.replace(config, out=tmp_path / "parts")
    said = stopped(train, parts, Learner, "update", at=7)
    assert said == f"step 7 of 12 is saved in {parts.out}"
    assert load_checkpoint(parts.out / "checkpoint.pt")["step"] == 7
    train(parts)
    assert_same_run(config.out, parts.out)
    kept = [
        sorted(x.name for x in (run / "checkpoints").iterdir()) for run in (config.out, parts.out)
    ]
    assert kept[0] == kept[1]


def test_more_steps_continue_a_finished_run_to_what_it_would_have_been(
    dataset: Dataset, tmp_path: Path
) -> None:
    whole = config_of(dataset, tmp_path / "whole", grad_steps=16)
    train(whole)
    short = dataclasses.replace(whole, out=tmp_path / "longer", grad_steps=8)
    train(short)
    longer = dataclasses.replace(short, grad_steps=16)
    train(longer)
    assert_same_run(whole.out, longer.out)
    assert json.loads((longer.out / "DONE").read_text())["step"] == 16
    assert read_manifest(longer.out, "run", whole=False)["config"]["grad_steps"] == 16
    with pytest.raises(UserError, match="holds a run with --grad-steps 16, not 8"):
        train(short)


def test_a_cosine_ends_where_it_was_to_end(dataset: Dataset, tmp_path: Path) -> None:
    config = config_of(dataset, tmp_path / "run", method="bc", lr_schedule="cosine", grad_steps=4)
    train(config)
    with pytest.raises(UserError, match="holds a run with --grad-steps 4, not 6; remove it or"):
        train(dataclasses.replace(config, grad_steps=6))


def test_survives_kill_9(dataset: Dataset, tmp_path: Path) -> None:
    config = config_of(dataset, tmp_path / "killed", grad_steps=8, checkpoint_every=5)
    update, calls = Learner.update, 0

    def dying(self: Learner, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return update(self, *args)

    def work() -> None:
        Learner.update = dying  # type: ignore[method-assign]
        train(config)

    code, said = forked(work)
    assert code == -signal.SIGKILL, said
    assert not (config.out / "DONE").exists()
    train(config)
    whole = dataclasses.replace(config, out=tmp_path / "whole")
    train(whole)
    assert_same_run(whole.out, config.out)


def test_a_run_directory_has_everything(
    dataset: Dataset, labels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of(dataset, tmp_path / "run", labels, method="gsf-reward", keep=3, seed=4)
    assert gsf.train(config) == config.out
    assert "gsf-reward, 6 steps" in capsys.readouterr().out
    manifest = read_manifest(config.out, "run", whole=False)
    assert {x: of for x, of in manifest["inputs"].items() if not is_code(x)} == {
        "dataset": dataset.digest,
        "labels": read_manifest(labels, "labels")["digest"],
    }
    assert (manifest["game"], manifest["method"], manifest["seed"]) == ("corridor", "gsf-reward", 4)
    assert manifest["config"]["parts"]["gsf"]["tau"] == 0.5
    assert from_json(TrainConfig, manifest["config"]).resolved() == config.resolved()
    rows = read_metrics(config.out / "metrics.jsonl")
    assert [row["step"] for row in rows] == [4, 6]
    assert {"cql/loss", "cql/td", "gsf/loss", "gsf/accuracy", "gsf/ignored"} <= set(rows[0])
    assert list((config.out / "tensorboard").iterdir())
    assert sorted(x.name for x in (config.out / "checkpoints").iterdir()) == [
        "step_2.pt",
        "step_4.pt",
        "step_6.pt",
    ]
    agents = [load_agent(config.out), gsf.load_agent(config.out, step=6), load_agent(config.out, 2)]
    assert [agent.step for agent in agents] == [6, 6, 2]
    obs = dataset.observations(np.arange(20)).numpy()
    assert np.array_equal(agents[0].scores(obs), agents[1].scores(obs))
    assert not np.array_equal(agents[0].scores(obs), agents[2].scores(obs))
    assert agents[0].act(obs).shape == (20,)
    with pytest.raises(UserError, match="step_3"):
        load_agent(config.out, 3)


def test_metrics_are_means_over_the_steps_between(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    update = Learner.update

    def recorded(self: Learner, *args: Any) -> Any:
        info = update(self, *args)
        seen.append(float(info["cql/loss"]))
        return info

    monkeypatch.setattr(Learner, "update", recorded)
    train(config_of(dataset, tmp_path / "run"))
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert rows[0]["cql/loss"] == pytest.approx(np.mean(seen[:4]))
    assert rows[1]["cql/loss"] == pytest.approx(np.mean(seen[4:]))


def test_a_finished_run_is_left_alone(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(dataset, tmp_path / "run")
    train(config)
    before = (config.out / "checkpoint.pt").read_bytes()
    interrupt_at(monkeypatch, 1)
    assert train(dataclasses.replace(config, log_every=7)) == config.out
    assert (config.out / "checkpoint.pt").read_bytes() == before


def test_seeds_differ_and_repeat(dataset: Dataset, tmp_path: Path) -> None:
    runs = [
        train(config_of(dataset, tmp_path / name, seed=seed))
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert_same_run(runs[0], runs[1])
    encoders = [load_checkpoint(run / "checkpoint.pt")["encoder"] for run in runs]
    assert not equal(encoders[0], encoders[2])


def test_batches_come_from_few_levels_if_asked(
    dataset: Dataset, labels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    sample = Dataset.sample
    monkeypatch.setattr(
        Dataset,
        "sample",
        lambda self, n, rng, k=None: (asked.append(k), sample(self, n, rng, k))[1],
    )
    train(config_of(dataset, tmp_path / "a", n_levels=2, grad_steps=1))
    in_batch = losses.find("gsf").value.Config(quantiles="batch", batch_levels=3)
    train(
        config_of(
            dataset,
            tmp_path / "b",
            labels,
            method="gsf-reward",
            parts={"gsf": in_batch},
            grad_steps=1,
        )
    )
    assert asked == [2, 3]


# Bad input


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (float("nan"), "by step 6: cql/loss is nan.*step 4"),
        (-3e6, "by step 6: cql/loss is -1.5e\\+06.*step 4"),
        (float("inf"), "by step 6: cql/loss is inf.*step 4"),
        ("weight", "by step 6: a weight is not finite.*step 4"),
    ],
)
def test_what_diverges_is_never_saved_and_the_last_good_checkpoint_stays(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: float | str, said: str
) -> None:
    update = Learner.update

    def diverging(self: Learner, *args: Any) -> Any:
        info = update(self, *args)
        if bad == "weight" and self.n_updates == 6:
            with torch.no_grad():
                next(self.base.parameters()).fill_(float("nan"))
        seen = isinstance(bad, float) and self.n_updates == 5
        return info | {"cql/loss": torch.tensor(bad)} if seen else info

    out = tmp_path / "run"
    monkeypatch.setattr(Learner, "update", diverging)
    with pytest.raises(UserError, match=said) as error:
        train(config_of(dataset, out, checkpoint_every=2))
    assert str(out / "checkpoint.pt") in str(error.value)
    assert load_checkpoint(out / "checkpoint.pt")["step"] == 4
    assert not (out / "DONE").exists()


def test_labels_of_another_dataset_or_cumulant(
    dataset: Dataset, labels: Path, tmp_path: Path
) -> None:
    other, out = tiny.write_dataset(tmp_path / "other", seed=1), tmp_path / "run"
    for data, given, method, said in (
        (other, labels, "gsf-reward", "another dataset"),
        (dataset, labels, "gsf-action", "needs labels of action, but .* has labels of reward"),
        (dataset, labels, "cql", "uses no labels"),
        (dataset, None, "gsf-reward", "needs labels"),
    ):
        with pytest.raises(UserError, match=said):
            train(config_of(data, out, given, method=method))
    assert not out.exists()


def test_another_run_in_the_way(dataset: Dataset, labels: Path, tmp_path: Path) -> None:
    config = config_of(dataset, tmp_path / "run")
    train(config)
    other = tiny.write_dataset(tmp_path / "other", seed=1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    for changes, said in (
        ({"method": "bc", "lr": 1e-3}, "holds a run with --method cql, not bc"),
        ({"lr": 1e-3}, r"--lr 0\.0003, not 0\.001"),
        ({"dataset": other.path}, "made from another dataset"),
        ({"out": tmp_path / "mine"}, "not a run"),
        ({"out": dataset.path}, "holds a dataset, not a run"),
    ):
        with pytest.raises(UserError, match=said):
            train(dataclasses.replace(config, **changes))


def test_a_checkpoint_of_another_method(dataset: Dataset, tmp_path: Path) -> None:
    bc = train(config_of(dataset, tmp_path / "bc", method="bc"))
    cql = train(config_of(dataset, tmp_path / "cql"))
    shutil.copy(bc / "checkpoint.pt", cql / "checkpoint.pt")
    with pytest.raises(UserError, match="checkpoint of method bc, but its run is of cql"):
        load_agent(cql)
    (cql / "DONE").unlink()
    with pytest.raises(UserError, match="checkpoint of method bc, but its run is of cql"):
        train(config_of(dataset, tmp_path / "cql"))
    with pytest.raises(UserError, match="not a run"):
        load_agent(dataset.path)


def test_one_writer_at_a_time(dataset: Dataset, tmp_path: Path) -> None:
    with locked(tmp_path / "run"), pytest.raises(UserError, match="another gsf process"):
        train(config_of(dataset, tmp_path / "run"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": -1}, "--batch must be between 1 and 1,048,576, got -1"),
        ({"grad_steps": 0}, "--grad-steps must be between 1"),
        ({"keep": 0}, "--keep must be between 1"),
        ({"n_levels": 0}, "--n-levels must be between 1"),
        ({"seed": -1}, "--seed must be between 0"),
        ({"device": "cuda"}, "no CUDA device"),
        ({"device": "mps"}, "no GPU of Apple's here; use --device cpu"),
        ({"method": "sac"}, "unknown method 'sac'; .*There are bc, cql"),
    ],
)
def test_bad_options(
    dataset: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UserError, match=message):
        train(config_of(dataset, tmp_path / "run", **options))
    assert not (tmp_path / "run").exists()


def test_z_is_as_long_as_the_encoder_says(
    dataset: Dataset, labels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short.py").write_text(
        "from torch import nn\nfrom gsf.nets.encoders import encoder\n\n\n"
        "@encoder(z_dim=64)\ndef short(shape):\n    return nn.Conv2d(shape[2], 4, 3, stride=3)\n"
    )
    every = "+".join(x for x in losses.names() if x not in ("gsf", "ctrl")) + "+gsf-reward+ctrl"
    for method, on in ((every, "cql"), ("curl", "dt"), ("curl", "iql"), ("rcbc", None)):
        out = tmp_path / f"{method}-{on}"
        options = {"method": method, "on": on, "encoder": "short.py:short", "grad_steps": 2}
        train(config_of(dataset, out, labels if "gsf" in method else None, **options))
        agent = load_agent(out)
        obs = np.asarray(dataset.obs[:3])
        assert agent.embed(obs).shape == (3, 64)
        assert agent.act(obs, memory=agent.memory(3)).shape == (3,)


# Command line


def parse(*argv: str) -> TrainConfig:
    config: TrainConfig = command_line.parse("train", TrainConfig, [*argv])
    return config


def test_the_options_of_a_loss_come_with_its_method(capsys: pytest.CaptureFixture[str]) -> None:
    config = parse("data", "--out", "run", "--method", "gsf-reward", "--gsf.tau", "0.1")
    assert isinstance(config, TrainConfig)
    assert (config.dataset, config.out) == (Path("data"), Path("run"))
    assert config.resolved().parts["gsf"] == losses.find("gsf").value.Config(tau=0.1)
    released = parse("data", "--out", "run", "--method=gsf-reward", "--released").resolved()
    gsf = released.parts["gsf"]
    assert (gsf.quantiles, gsf.frequent_levels) == ("batch", 5)
    plain = parse("data", "--out", "run", "--method", "cql", "--cql.alpha", "0.5").resolved()
    assert plain.parts == {"cql": bases.find("cql").value.Config(alpha=0.5)}
    assert to_json(plain) == to_json(
        TrainConfig(dataset=Path("data"), out=Path("run"), parts={"cql": {"alpha": 0.5}}).resolved()
    )
    on_bc = parse("data", "--out", "run", "--method", "curl", "--on", "bc").resolved()
    assert on_bc.parts["bc"] == bases.find("bc").value.Config()
    with pytest.raises(
        UserError, match=r"unknown option --gsf\.tau; `gsf train --method cql --help` lists"
    ):
        parse("data", "--out", "run", "--method", "cql", "--gsf.tau", "0.1")
    with pytest.raises(UserError, match="unknown method 'sac'"):
        parse("data", "--out", "run", "--method", "sac")
    capsys.readouterr()
    with pytest.raises(SystemExit):
        parse("--method", "gsf-reward", "--help")
    shown = " ".join(capsys.readouterr().out.split())
    for text in ("Temperature of the softmax.", "Adam's learning rate.", "Gradient steps"):
        assert text in shown


def test_required_paths_are_asked_for() -> None:
    with pytest.raises(UserError, match="gsf train needs DATASET and --out"):
        parse("--method", "cql")
