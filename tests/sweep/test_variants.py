"""Variants: a method with settings of its own, from the name to rows and report."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from given import given
from gsf import cli
from gsf.core.errors import UserError
from gsf.core.naming import split_variant
from gsf.gvf.options import FitConfig, LabelConfig
from gsf.sweep import jobs
from gsf.sweep.options import RunConfig
from gsf.sweep.plan import resolve
from gsf.sweep.run import run
from own_code import LOSS
from recordings import save_short_episodes

SETTINGS = ("evaluate.n_seen=2", "evaluate.n_validation=0", "evaluate.n_unseen=2")
TINY = (
    *SETTINGS,
    "train.grad_steps=2",
    "train.encoder=patches",
    "train.batch=16",
    "materialise.transitions=3000",
)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("cql", ("cql", ())),
        ("cql+cql.alpha=4", ("cql", ("cql.alpha=4",))),
        ("gsf-reward+a.b=1e+3+c.d=e", ("gsf-reward", ("a.b=1e+3", "c.d=e"))),
        ("a+b.py:Mine", ("a+b.py:Mine", ())),
        ("a+b.py:Mine+train.lr=1", ("a+b.py:Mine", ("train.lr=1",))),
    ],
)
def test_a_plus_before_a_setting_makes_a_variant(name, parts):
    assert split_variant(name) == parts


def found(*specs: str, **options) -> dict[str, str]:
    return {x.name: x.spec for x in RunConfig(methods=specs, **options).find_methods()}


def test_every_variant_has_a_name_fit_for_a_directory():
    assert found("bc", "bc+train.lr=1e-3", "bc") == {
        "bc": "bc",
        "bc+train.lr=1e-3": "bc+train.lr=1e-3",
    }
    assert list(found("bc+train.encoder=my/own.py:net")) == ["bc+train.encoder=my_own.py_net"]
    both = found("all", "cql+cql.alpha=4")
    assert {"bc", "gsf-reward", "cql+cql.alpha=4"} < set(both)
    assert "curl+train.lr=1e-3" in found("all+train.lr=1e-3")
    with pytest.raises(UserError, match="are both called bc"):
        found("bc+train.encoder=a/py:b", "bc+train.encoder=a:py/b")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("cql+label.n_bins=3", "choose an owner among train, cql."),  # it has no labels
        ("gsf-reward+curl.tau=1", "choose an owner among fit, label, train, cql, gsf."),
        ("gsf-reward+materialise.levels=3", "choose an owner among"),  # data that all share
        ("gsf-reward+label.bins=3", "label has no option bins; did you mean n_bins"),
        ("bc+train.seed=3", "gsf run itself decides seed"),
        ("bc+train.name=x", "gsf run itself decides name"),
        ("bc+cql.alpha=3", "choose an owner among train, bc"),
        ("gsf-reward+label.n-bins=3", "label has no option n-bins; did you mean n_bins"),
        ("cql+alpha=4", "a setting is .owner.option=value"),
        ("bc+train.grad_steps=9", "runs are compared at the same step"),
        ("bc+train.on=cql", "bc is a base itself"),
        ("curl+train.on=3", "train.on=3 is not the name of a base"),
        (f"bc+train.encoder={'x' * 150}", "keep it below 150 characters"),
    ],
)
def test_settings_of_something_else_are_refused(spec, said):
    with pytest.raises(UserError, match=said) as error:
        RunConfig(methods=(spec,))
    assert spec in str(error.value) or "train.on" in spec


@pytest.mark.parametrize(
    "spec", ["bc+train.lr=fast", "gsf-reward+label.n_bins=1", "gsf-reward+fit.encoder=none"]
)
def test_values_are_checked_before_anything_is_computed(tmp_path, spec):
    config = RunConfig(tmp_path / "out", "smoke", ("coinrun",), (spec,))
    with pytest.raises(UserError):
        resolve(config)
    assert not (tmp_path / "out").exists()


def test_two_things_of_one_name_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text(LOSS)
    with pytest.raises(UserError, match=r"a.py:Pull and b.py:Pull are both called pull"):
        found("a.py:Pull", "b.py:Pull+train.lr=0.1")


def test_labels_of_several_kinds_wait_for_the_fit_they_share(tmp_path, monkeypatch):
    at_work: list[Path] = []

    def slow(config):
        at_work.append(config.out)
        time.sleep(0.2)
        assert at_work == [config.out]
        at_work.clear()
        return config.out

    monkeypatch.setattr(jobs, "fit", slow)
    monkeypatch.setattr(jobs, "label", lambda config: config.out)
    fitting = jobs.Fitting(FitConfig(Path("data"), tmp_path / "gvf"))
    outs = [tmp_path / f"labels{k}" for k in (3, 7)]
    labellings = [jobs.Labelling(fitting, LabelConfig(tmp_path / "gvf", out)) for out in outs]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(jobs.Labelling.make, labellings)) == outs


def test_settings_overrule_each_other_in_order():
    config = RunConfig(methods=("curl+train.on=iql+train.lr=0.5",), options=given("train.lr=0.25"))
    plan = resolve(replace(config, games=("coinrun",)))
    [variant] = plan.methods
    assert variant.method.base.name == "iql"
    source = plan.sources["coinrun"]
    for chosen, fixed, lr in (((), (), 0.5), (("train.lr=0.125",), ("train.lr=1",), 1)):
        job = plan.job(source, variant, 0, Path("run"), chosen, fixed)
        assert job.config.stage("train", variant, dataset=Path(), out=Path()).lr == lr


def test_variants_are_run_like_methods(tmp_path):
    methods = (
        "gsf-reward",
        "gsf-reward+label.n_bins=3",  # on the fit of gsf-reward
        "gsf-reward+gsf.tau=0.25",  # on the labels of gsf-reward
        "gsf-reward+fit.gamma=0.5+gsf.tau=0.25",
        "cql",
    )
    out = tmp_path / "out"
    recordings = (save_short_episodes(tmp_path),)
    one = {"workers": 1, "report": False}  # how variants are shown: test_report.py, on rows alone
    config = RunConfig(
        out, "smoke", methods=methods, recordings=recordings, options=given(*TINY), **one
    )
    run(config)
    home = out / "starpilot"
    assert {x.name for x in home.glob("labels-*")} == {
        "labels-reward-mc",
        "labels-reward-mc+label.n_bins=3",
        "labels-reward-mc+fit.gamma=0.5",
    }
    assert {x.name for x in home.glob("gvf-*")} == {
        "gvf-reward-mc",
        "gvf-reward-mc+fit.gamma=0.5",
    }
    for method in methods:
        manifest = json.loads((home / method / "seed0/manifest.json").read_text())
        assert manifest["method"] == method
        if method.startswith("gsf"):
            tau = 0.25 if "tau" in method else 0.5
            assert manifest["config"]["parts"]["gsf"]["tau"] == tau
            labels = json.loads((Path(manifest["config"]["labels"]) / "manifest.json").read_text())
            assert labels["config"]["n_bins"] == (3 if "n_bins" in method else 7)
        rows = pd.read_csv(home / method / "seed0/returns.csv")
        assert set(rows["method"]) == {method}
    made = {path: path.stat().st_mtime_ns for path in out.rglob("*.pt")}
    run(config)  # goes on: all is there
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.pt")} == made


def test_a_run_of_ones_own_can_be_named(tmp_path, capsys):
    save_short_episodes(tmp_path)
    [recording] = tmp_path.glob("*.gsfrec")
    assert cli.main(["materialise", str(recording), "--out", str(tmp_path / "data")]) == 0
    argv = ["train", str(tmp_path / "data"), "--method", "bc", "--encoder", "impala_small"]
    argv += ["--grad-steps", "1", "--batch", "8"]
    out = tmp_path / "run"
    assert cli.main([*argv, "--out", str(out), "--name", "bc-small"]) == 0
    assert json.loads((out / "manifest.json").read_text())["method"] == "bc-small"
    argv_of_play = ["evaluate", str(out), "--n-seen", "1", "--n-validation", "0", "--n-unseen", "1"]
    assert cli.main(argv_of_play) == 0
    assert set(pd.read_csv(out / "returns.csv")["method"]) == {"bc-small"}
    taken, unfit = "something else is called so", "letters, digits and"
    for name, said in (("cql", taken), ("pixels", taken), ("a/b", unfit), ("a" * 151, unfit)):
        capsys.readouterr()
        assert cli.main([*argv, "--out", str(tmp_path / "new"), "--name", name]) == 2
        assert said in " ".join(capsys.readouterr().err.split())
        assert not (tmp_path / "new").exists()
