"""Held-out data: what is refused, what is written, and numbers that can be told by hand."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from episodes import write_episodes
from gsf.cli import main
from gsf.core.errors import UserError
from gsf.data.dataset import Dataset
from gsf.evaluation.evaluate import EvaluateConfig, evaluate
from gsf.evaluation.held_out_rows import OVERALL, check_held_out, read_held_out
from gsf.evaluation.judging import cross_fitted, folds, judge, logged, policies
from gsf.learn.corridor import write_dataset
from gsf.learn.train import TrainConfig, train


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run on corridors of levels 100.., and corridors of others."""
    home = tmp_path_factory.mktemp("held")
    data = write_dataset(home / "data")
    run = train(
        TrainConfig(
            dataset=data.path,
            out=home / "run",
            method="bc",
            encoder="impala_small",
            grad_steps=40,
            batch=32,
            keep=2,
            device="cpu",
        )
    )
    return run, write_dataset(home / "other", n_levels=3, n_episodes=12, seed=1, first_level=200)


def ask(run, data, **options):
    return evaluate(EvaluateConfig(str(run), held_out=data.path, device="cpu", **options))


@pytest.fixture(scope="module")
def rows(made):
    return ask(*made, all=True)


def test_every_quantity_has_rows_of_all_contexts_and_of_each(made, rows):
    run, data = made
    assert set(rows["step"]) == {20, 40}
    last = rows[rows["step"] == 40]
    found = {(q, m) for q, m in zip(last["quantity"], last["mode"], strict=True)}
    both = {(q, m) for q in ("agreement", "fqe") for m in ("greedy", "sampled-1")}
    one = {"nll", "temperature", "ece", "ece_played", "reliability", "logged_return"}
    assert found == both | {(q, "any") for q in one}  # nobody says mu: no WIS
    nll = last[last["quantity"] == "nll"]
    assert nll["context"].tolist() == [OVERALL, "200", "201", "202"]
    assert nll["n_episodes"].tolist() == [12, 4, 4, 4]
    assert nll["n_steps"].tolist() == [144, 48, 48, 48]
    assert ((nll["low"] <= nll["value"]) & (nll["value"] <= nll["high"])).all()
    pd.testing.assert_frame_equal(
        read_held_out(run / "held_out.csv"), rows, check_dtype=True, check_like=True
    )
    assert (rows["data"] == data.digest).all()


def test_overall_is_the_mean_over_steps(rows):
    part = rows[
        (rows["quantity"] == "agreement") & (rows["mode"] == "greedy") & (rows["step"] == 40)
    ]
    mean = np.average(part["value"][1:], weights=part["n_steps"][1:])
    assert part["value"].iloc[0] == pytest.approx(mean)


def test_the_same_command_goes_on_and_another_agent_is_refused(made, rows, capsys):
    run, data = made
    before = (run / "held_out.csv").read_bytes()
    again = ask(run, data)
    assert (run / "held_out.csv").read_bytes() == before
    pd.testing.assert_frame_equal(again, rows[rows["step"] == 40].reset_index(drop=True))
    with pytest.raises(UserError, match="has other rows of bc at step 40"):
        ask(run, data, fqe=False)


def test_what_is_not_held_out_or_of_another_kind_is_refused(made, tmp_path, capsys):
    run, data = made
    trained = Dataset.open(data.path.with_name("data"))
    with pytest.raises(UserError, match=r"is not held out: .* 4 of its 4 contexts \(100, 101"):
        ask(run, trained)
    mixed = write_dataset(tmp_path / "mixed", first_level=103)
    with pytest.raises(UserError, match=r"has trained on 1 of its 4 contexts \(103\)"):
        ask(run, mixed)
    assert main(["evaluate", str(run), "--held-out", str(mixed.path)]) == 2
    with pytest.raises(UserError, match="judges a run directory; random is none"):
        evaluate(EvaluateConfig("random", held_out=data.path))
    other = {**data.manifest, "n_actions": 4}
    with pytest.raises(UserError, match=r"has 4 actions, run 3\."):
        check_held_out("run", {**trained.manifest, "actions": None}, data.path, other)


def test_another_shape_is_refused(made, tmp_path):
    run, _ = made
    other = write_episodes(tmp_path / "other", n_actions=3, levels=(7, 8))
    with pytest.raises(UserError, match=r"has images \[16, 16, 3\], .*run \[12, 12, 3\]"):
        ask(run, other)


def test_a_temperature_never_comes_from_its_own_context():
    level = np.repeat([0, 1, 2], 4)
    fold = folds(level, np.array([0, 4, 8]))
    assert fold.tolist() == level.tolist()
    scores = np.tile([[1.0, 0.0]], (12, 1))
    action = np.array([0, 0, 0, 1] * 2 + [1] * 4)  # right 3 of 4 times, but never in context 2
    temperature = cross_fitted(scores, action, fold)
    assert temperature[8:] == pytest.approx(1 / np.log(3))  # softmax(1/T) = 3/4
    assert (temperature[:8] > 100).all()  # 3 of 8: the scores say the wrong thing
    assert folds(np.zeros(4), np.array([0, 2])).tolist() == [0, 0, 1, 1]  # one context: episodes
    assert cross_fitted(scores[:2], action[:2], np.zeros(2, int)).tolist() == [1.0, 1.0]


def test_wis_of_the_policy_that_logged_is_the_logged_return(made):
    _, data = made
    scores = np.zeros((len(data.obs), 3), np.float32)
    pi = policies(scores)[data.frame]
    starts, stops = (np.array(x) for x in zip(*data.episodes(), strict=True))
    whole = np.asarray(data.terminated | data.truncated)[stops - 1]
    assert 0 < whole.sum() < len(whole)
    mu = np.full(len(data), 1 / 3)
    found = {
        (x.quantity, x.mode): float(x.statistic(x.sums.sum(0)))
        for x in logged(pi, data, starts, stops, whole, 0.9, mu)
    }
    by_hand = [
        (0.9 ** np.arange(b - a) * data.reward[a:b]).sum()
        for a, b in zip(starts[whole], stops[whole], strict=True)
    ]
    assert found["logged_return", "any"] == pytest.approx(np.mean(by_hand))
    assert found["wis", "sampled-1"] == pytest.approx(np.mean(by_hand))
    assert found["effective", "sampled-1"] == pytest.approx(1)
    assert found["effective", "greedy"] == 0  # always action 0: nobody did that
    assert np.isnan(found["wis", "greedy"])


class Blind:
    """Finds all actions equally good."""

    base = SimpleNamespace(memory=0)

    def embed(self, obs):
        return np.zeros((len(obs), 4), np.float32)

    def scores_of(self, z):
        return np.zeros((len(z), 5), np.float32)


def test_returns_are_of_episodes_logged_from_their_start_to_an_end_or_a_time_limit(tmp_path):
    data = write_episodes(tmp_path / "data")
    returns, ends = [], []
    for a, b in data.episodes():
        if data.t[a] == 0 and (data.terminated[b - 1] or data.truncated[b - 1]):
            returns.append((0.9 ** np.arange(b - a) * data.reward[a:b]).sum())
            ends.append(bool(data.terminated[b - 1]))
    assert set(ends) == {True, False}
    assert (data.t[[a for a, _ in data.episodes()]] > 0).any()
    rows = judge(Blind(), data, 0.9, fqe=False, mu=None)
    found = rows[(rows["quantity"] == "logged_return") & (rows["context"] == OVERALL)]
    assert found["value"].item() == pytest.approx(np.mean(returns))


def test_contexts_may_have_any_name(tmp_path):
    (tmp_path / "held_out.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="lacks a column"):
        read_held_out(tmp_path / "held_out.csv")
