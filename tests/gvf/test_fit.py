"""The stage: going on after a kill, seeds, what is refused."""

import dataclasses

import numpy as np
import pytest
import torch

from chains import write_chain
from gsf.core import loop
from gsf.core.errors import UserError
from gsf.core.logs import read_metrics
from gsf.core.sealed import load_checkpoint
from gsf.core.stage import read_manifest
from gsf.gvf import td
from gsf.gvf.fit import FitConfig, fit
from gsf.sweep.summary import print_summary
from signals import stopped

SCALES = (1.0, 1000.0)
QUICK = {"gamma": 0.9, "batch": 32, "lr": 1e-3, "target_rate": 0.1, "diagnose": False}


def values_of(config):
    return np.load(fit(config) / "values.npy")


def small_td(tmp_path, name, **options):
    path = tmp_path / "d"
    if not path.exists():
        write_chain(path, SCALES)
    return FitConfig(
        path, tmp_path / name, estimator="td", grad_steps=8, checkpoint_every=4, **QUICK, **options
    )


def test_a_killed_fit_goes_on_exactly(tmp_path, monkeypatch):
    whole = fit(small_td(tmp_path, "whole"))
    save = loop.save_checkpoint

    def save_and_die(path, state):
        save(path, state)
        raise KeyboardInterrupt

    config = small_td(tmp_path, "killed")
    with monkeypatch.context() as patch:
        patch.setattr(loop, "save_checkpoint", save_and_die)
        with pytest.raises(KeyboardInterrupt):
            fit(config)
    assert load_checkpoint(config.out / "checkpoint.pt")["step"] == 4
    with pytest.raises(UserError, match="is not finished"):
        read_manifest(config.out, "gvf")
    with pytest.raises(UserError, match="holds a fit with --seed 0, not 1"):
        fit(dataclasses.replace(config, seed=1))
    fit(config)
    np.testing.assert_array_equal(np.load(whole / "values.npy"), np.load(config.out / "values.npy"))
    one, two = (load_checkpoint(x / "checkpoint.pt") for x in (whole, config.out))
    assert one["rng"] == two["rng"]
    for part in ("online", "target", "popart"):
        assert all(torch.equal(x, two[part][k]) for k, x in one[part].items())


def test_asked_to_stop_a_fit_loses_no_step(tmp_path):
    whole, config = fit(small_td(tmp_path, "whole")), small_td(tmp_path, "stopped")
    said = stopped(fit, config, td.TDLearner, "update", at=6)
    assert said == f"step 6 of 8 is saved in {config.out}"
    fit(config)
    assert (config.out / "values.npy").read_bytes() == (whole / "values.npy").read_bytes()
    rows = [read_metrics(x / "metrics.jsonl") for x in (whole, config.out)]
    assert all(row.pop("fit/seconds") > 0 for row in (*rows[0], *rows[1]))
    assert rows[0] == rows[1]


def test_seeds_differ_and_repeat(tmp_path):
    first, again, other = (
        values_of(small_td(tmp_path, f"fit{i}", seed=seed)) for i, seed in enumerate((0, 0, 1))
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_nan_stops_and_keeps_the_last_good_checkpoint(tmp_path, monkeypatch):
    config = small_td(tmp_path, "nan")
    update, calls = td.TDLearner.update, []

    def poisoned(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 6:
            torch.nn.init.constant_(self.online.head.bias, float("nan"))
        return update(self, *args, **kwargs)

    monkeypatch.setattr(td.TDLearner, "update", poisoned)
    with pytest.raises(
        UserError, match="by step 8: gvf/loss is nan; the last good checkpoint, of step 4"
    ):
        fit(config)
    state = load_checkpoint(config.out / "checkpoint.pt")
    assert state["step"] == 4
    assert all(torch.isfinite(x).all() for x in state["online"].values())


def test_done_is_skipped_and_other_options_refused(tmp_path, capsys):
    dataset = write_chain(tmp_path / "d", SCALES)
    config = FitConfig(dataset.path, tmp_path / "fit", diagnose=False)
    fit(config)
    stamp = (config.out / "values.npy").stat().st_mtime_ns
    assert fit(config) == config.out
    assert (config.out / "values.npy").stat().st_mtime_ns == stamp
    with pytest.raises(UserError, match=r"holds a fit with --gamma 0\.99, not 0\.5"):
        fit(dataclasses.replace(config, gamma=0.5))
    other = write_chain(tmp_path / "d2", (1.0, 2.0))
    with pytest.raises(UserError, match="fit made from another dataset"):
        fit(dataclasses.replace(config, dataset=other.path))
    occupied = tmp_path / "notes"
    occupied.mkdir()
    (occupied / "a.txt").write_text("mine")
    for estimator in ("td", "mc"):
        with pytest.raises(UserError, match="exists and is not a fit"):
            fit(dataclasses.replace(config, out=occupied, estimator=estimator))


def test_an_empty_level_is_refused_unless_allowed(tmp_path):
    dataset = write_chain(tmp_path / "d", (1.0, None, None), levels=(7, 8, 9))
    config = FitConfig(dataset.path, tmp_path / "fit", diagnose=False)
    with pytest.raises(UserError, match=r"level 8 has no transitions .* 1 more level"):
        fit(config)
    assert not config.out.exists()
    fit(dataclasses.replace(config, allow_small_levels=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 1.5}, "--gamma must be between 0 and 1"),
        ({"q": True}, "--q needs --estimator td"),
        ({"estimator": "td", "bootstrap": "x"}, "--bootstrap needs --estimator mc"),
        ({"estimator": "td", "gamma": 1.0}, "--gamma below 1"),
        ({"estimator": "td", "device": "mps"}, "--device mps: td counts in float64"),
        ({"lr": 0.0}, "--lr must be above 0"),
    ],
)
def test_options_that_make_no_sense(tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        FitConfig(tmp_path, tmp_path, **options)


def test_options_that_mc_ignores_make_no_other_fit(tmp_path):
    data = write_chain(tmp_path / "d").path
    one, other = (
        read_manifest(fit(FitConfig(data, tmp_path / name, grad_steps=n, rank=rank)), "gvf")
        for name, n, rank in (("a", 10, None), ("b", 20, "value"))
    )
    assert one["digest"] == other["digest"]


def test_a_network_that_learnt_nothing_is_named(tmp_path, capsys):
    dataset = write_chain(tmp_path / "d", SCALES)
    options = {**QUICK, "diagnose": True, "n_steps": 1}
    config = FitConfig(dataset.path, tmp_path / "bad", estimator="td", grad_steps=1, **options)
    said = read_manifest(fit(dataclasses.replace(config, lr=1e-9)), "gvf")["diagnosis"]
    assert said["follows"] == pytest.approx(0, abs=0.1)
    assert "mostly noise" in capsys.readouterr().err
    print_summary(tmp_path)
    assert "rank correlation 0.00 in the median level" in capsys.readouterr().err
    good = dataclasses.replace(config, out=tmp_path / "good", grad_steps=100)
    assert read_manifest(fit(good), "gvf")["diagnosis"]["follows"] > 0.9
    assert "noise" not in capsys.readouterr().err
