"""Both estimators against chains with known values; PopArt, cuts, going on after a kill."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chains import chain_values, write_chain
from gsf.core.errors import UserError
from gsf.core.files import load_checkpoint
from gsf.core.logs import read_metrics
from gsf.core.stage import read_manifest
from gsf.gvf import cumulants, diagnostics, td
from gsf.gvf.compare import _whole_levels
from gsf.gvf.fit import FitConfig, fit
from gsf.gvf.monte_carlo import cut_horizon, monte_carlo
from gsf.nets.encoders import Encoder
from gsf.nets.runtime import seeded

SCALES = (1.0, 1000.0)
QUICK = {"gamma": 0.9, "batch": 32, "lr": 1e-3, "target_rate": 0.1, "diagnose": False}


def values_of(config):
    return np.load(fit(config) / "values.npy")


# Monte Carlo


def test_mc_is_exact_on_a_chain_at_every_scale(tmp_path):
    dataset = write_chain(tmp_path / "d", SCALES)
    values = values_of(FitConfig(dataset.path, tmp_path / "fit", gamma=0.9))
    truth = chain_values(0.9)[dataset.t] * np.array(SCALES)[dataset.level]
    np.testing.assert_allclose(values, truth, rtol=1e-6)


def test_mc_by_hand_with_several_components_and_blocks(monkeypatch):
    c = np.array([[1, 0], [0, 1], [2, 0], [0, 4], [8, 8]], np.float32)
    episode, terminated = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 1, 1], bool)
    expected = [[1, 0.5], [0, 1], [2, 2], [0, 4], [8, 8]]
    for rows in (1, 2, 3, 100):  # blocks smaller than an episode, of one, of all
        monkeypatch.setattr("gsf.gvf.monte_carlo.MC_ROWS", rows)
        np.testing.assert_allclose(monte_carlo(c, episode, terminated, 0.5), expected)


@pytest.mark.parametrize(
    ("gamma", "steps"), [(0.99, 299), (0.9, 29), (0.5, 5), (0.0, 0), (1.0, np.inf)]
)
def test_the_horizon_holds_95_percent(gamma, steps):
    assert cut_horizon(gamma) == steps
    if 0 < gamma < 1:
        assert gamma**steps <= 0.05 < gamma ** (steps - 1)


@pytest.mark.parametrize("end", ["truncated", "cut"])
def test_mc_does_not_know_what_a_cut_hides(tmp_path, end):
    dataset = write_chain(tmp_path / "d", (1.0,), length=12, end=end)
    values = values_of(FitConfig(dataset.path, tmp_path / "fit", gamma=0.5))
    # gamma 0.5: 5 steps hold 95 %; rows 0..7 have 12..5 steps to the cut, rows 8..11 fewer.
    np.testing.assert_array_equal(np.isnan(values), dataset.t > 7)
    np.testing.assert_allclose(values[:8], chain_values(0.5, 12)[:8], rtol=1e-6)
    everything = values_of(FitConfig(dataset.path, tmp_path / "fit1", gamma=1.0))
    assert np.isnan(everything).all()


def test_a_bootstrapped_cut_takes_the_given_value():
    c = np.ones((6, 1), np.float32)
    episode, terminated = np.array([0, 0, 0, 1, 1, 1]), np.zeros(6, bool)
    at_cut = np.full((6, 1), np.nan)
    at_cut[2] = 10.0  # the second episode's cut has none, and must not leak into the first
    value = monte_carlo(c, episode, terminated, 0.5, at_cut)
    np.testing.assert_allclose(value[:3, 0], [1 + 0.5 * 6, 1 + 0.5 * 10, 10])
    assert np.isnan(value[3:]).all()


# Temporal differences


def test_td_is_close_on_a_chain_at_every_scale_and_bootstraps_mc(tmp_path):
    dataset = write_chain(tmp_path / "d", SCALES)
    config = FitConfig(dataset.path, tmp_path / "td", estimator="td", grad_steps=220, **QUICK)
    values = values_of(config)
    truth = chain_values(0.9)[dataset.t] * np.array(SCALES)[dataset.level]
    np.testing.assert_allclose(values, truth, rtol=0.02)
    rows = read_metrics(tmp_path / "td" / "metrics.jsonl")
    assert rows[-1]["step"] == 220
    assert rows[-1]["gvf/loss"] < 0.01 * rows[0]["gvf/loss"]

    cut = write_chain(tmp_path / "cut", SCALES, end="cut")
    mc = FitConfig(cut.path, tmp_path / "mc", gamma=0.9, bootstrap=tmp_path / "td")
    np.testing.assert_allclose(values_of(mc), truth, rtol=0.02)
    # Fewer levels than the fit are looked up by their ids.
    one = write_chain(tmp_path / "one", SCALES[1:], end="cut", levels=(1,))
    mc = dataclasses.replace(mc, dataset=one.path, out=tmp_path / "mc1")
    np.testing.assert_allclose(values_of(mc), chain_values(0.9)[one.t] * 1000, rtol=0.02)
    three = write_chain(tmp_path / "three", (1.0, 1.0, 1.0), end="cut")
    with pytest.raises(
        UserError, match=r"has 3 levels but .* was fitted on 2 and knows no level 2"
    ):
        fit(dataclasses.replace(mc, dataset=three.path, out=tmp_path / "mc3"))
    with pytest.raises(UserError, match="made from another bootstrap"):
        fit(dataclasses.replace(mc, bootstrap=None))
    with pytest.raises(UserError, match="same cumulant, gamma"):
        fit(dataclasses.replace(mc, gamma=0.8, out=tmp_path / "mc4"))


def test_sarsa_learns_the_value_of_each_action(tmp_path):
    dataset = write_chain(
        tmp_path / "d", SCALES, length=3, reward=lambda s, a: 1.0 + 2 * a, alternate=True
    )
    config = FitConfig(
        dataset.path, tmp_path / "td", estimator="td", q=True, grad_steps=150, **QUICK
    )
    values = values_of(config)
    # Rewards 1 and 3 in turn: Q(s, a) depends on the action after a.
    by_step = np.array([[1 + 2.7 + 0.81, 3 + 0.9 + 3 * 0.81], [1 + 2.7, 3 + 0.9], [1, 3]])  # [t,a]
    truth = by_step[dataset.t] * np.array(SCALES)[dataset.level, None]  # [n,A]
    np.testing.assert_allclose(values, truth[np.arange(len(dataset)), dataset.action], rtol=0.1)
    np.testing.assert_allclose(np.load(tmp_path / "td" / "action_values.npy"), truth, rtol=0.1)


def test_rows_without_a_target_stay_out(tmp_path):
    def steps_used(name, q, **options):
        dataset = write_chain(tmp_path / name, (1.0,), n_episodes=2, **options)
        return np.unique(dataset.t[td.usable_rows(dataset, q)]).tolist()

    assert steps_used("terminated", False) == [0, 1, 2, 3, 4]
    assert steps_used("truncated", False, end="truncated") == [0, 1, 2, 3]
    assert steps_used("cut", False, end="cut") == [0, 1, 2, 3]
    # An imported final frame is a next observation, but nobody acted there.
    assert steps_used("final", False, end="truncated", final_frame=True) == [0, 1, 2, 3, 4]
    assert steps_used("final_q", True, end="truncated", final_frame=True) == [0, 1, 2, 3]
    assert steps_used("ended_q", True, final_frame=True) == [0, 1, 2, 3, 4]


def test_td_never_trains_on_a_row_without_a_target(tmp_path, monkeypatch):
    dataset = write_chain(tmp_path / "d", SCALES, end="cut")
    seen = []
    update = td.TDLearner.update

    def spy(self, batch, *args, **options):
        seen.append(bool((batch.has_next | batch.terminated).all()))
        return update(self, batch, *args, **options)

    monkeypatch.setattr(td.TDLearner, "update", spy)
    fit(FitConfig(dataset.path, tmp_path / "td", estimator="td", grad_steps=5, **QUICK))
    assert seen == [True] * 5


def test_networks_of_one_seed_start_differently(tmp_path):
    """Else successor features were those of the very encoder that learns from them."""
    shape, kind = (64, 64, 3), "impala_small"
    with seeded(np.random.default_rng(0)):
        agent = Encoder(shape, kind).trunk.fc.weight
    random = cumulants._random_encoder(shape, 0, "cpu").trunk.fc.weight
    facts = {"obs_shape": shape, "encoder": kind, "levels": [0], "n_slots": 1, "d": 1}
    fitted = td.TDLearner(facts, 0, 1e-3).online.encoder.trunk.fc.weight
    assert not torch.equal(agent, random)
    assert not torch.equal(agent, fitted)
    assert not torch.equal(random, fitted)


def test_td_learns_vectors_and_ranks_what_is_asked(tmp_path):
    dataset = write_chain(tmp_path / "d", (1.0, None), n_actions=3, levels=(5, 6))
    config = FitConfig(
        dataset.path, tmp_path / "td", cumulant="action", estimator="td", grad_steps=3,
        allow_small_levels=True, q=True, **QUICK
    )  # fmt: skip
    assert values_of(config).shape == (len(dataset), 3)  # q: cumulants of one component only
    assert np.isfinite(values_of(config)).all()
    l1 = values_of(dataclasses.replace(config, out=tmp_path / "l1", rank="l1"))
    np.testing.assert_allclose(l1, np.abs(values_of(config)).sum(1), rtol=1e-6)


def test_levels_never_trained_on_are_unknown(tmp_path):
    dataset = write_chain(tmp_path / "d", (1.0, 1.0), length=1, end="cut", final_frame=True)
    shape = {
        "obs_shape": [8, 8, 3],
        "encoder": "impala_small",
        "levels": [0, 1],
        "n_slots": 1,
        "d": 1,
    }
    learner = td.TDLearner(shape, seed=0, lr=1e-3)
    batch = dataset.gather(np.flatnonzero(dataset.level == 0))
    n = len(batch.index)
    slot = torch.zeros(n, dtype=torch.int64)
    learner.update(batch, torch.ones(n, 1), slot, slot, gamma=0.9, rate=0.1)
    values = learner.values(dataset, np.arange(len(dataset)), dataset.level.astype(np.int64))
    np.testing.assert_array_equal(np.isnan(values[:, 0, 0]), dataset.level == 1)


def test_an_update_crops_o_alone_and_rescales_the_target_too(tmp_path, monkeypatch):
    dataset = write_chain(tmp_path / "d", (1.0,))
    shape = {"obs_shape": [8, 8, 3], "encoder": "impala_small", "levels": [0], "n_slots": 1, "d": 1}
    learner = td.TDLearner(shape, seed=0, lr=0.0)
    batch = dataset.gather(np.flatnonzero(dataset.has_next))
    n = len(batch.index)
    slot = torch.zeros(n, dtype=torch.int64)

    def target_value():
        return learner.popart.denormalise(learner.target(batch.obs, batch.level, slot), batch.level)

    cropped = []
    monkeypatch.setattr(td, "random_crop", lambda obs, rng: cropped.append(obs) or obs)
    learner.update(batch, torch.randn(n, 1), slot, slot, gamma=0.9, rate=0.0)
    torch.nn.init.normal_(learner.target.head.weight)
    before = target_value()
    learner.update(batch, 50 * torch.randn(n, 1), slot, slot, gamma=0.9, rate=0.0)
    torch.testing.assert_close(target_value(), before, rtol=1e-4, atol=1e-4)
    assert len(cropped) == 2
    assert cropped[0] is batch.obs


def test_only_the_samples_chunk_gets_a_gradient():
    head = td.LevelHead(3, 2, 2, x_dim=4)
    torch.nn.init.normal_(head.weight, generator=torch.Generator().manual_seed(0))
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(1))
    level, slot = torch.tensor([0, 2]), torch.tensor([1, 0])
    out = head(x, level, slot)
    expected = torch.stack([head.weight[0, 1] @ x[0], head.weight[2, 0] @ x[1]])
    torch.testing.assert_close(out, expected)
    out.sum().backward()
    touched = head.weight.grad.flatten(2).abs().sum(2) > 0
    assert touched.tolist() == [[False, True], [False, False], [True, False]]


# PopArt


@settings(max_examples=30, deadline=None)
@given(
    scale=st.floats(1e-2, 1e4),
    shift=st.floats(-1e3, 1e3),
    seed=st.integers(0, 1000),
)
def test_popart_keeps_the_outputs_of_both_heads(scale, shift, seed):
    torch_rng = torch.Generator().manual_seed(seed)
    popart, heads = td.PopArt(2, 3), [td.LevelHead(2, 2, 3, x_dim=5) for _ in range(2)]
    level = torch.tensor([0, 1]).repeat(8)
    slot = torch.tensor([0, 0, 1, 1]).repeat(4)
    popart.update(torch.randn(16, 3, generator=torch_rng), level, *heads)  # levels are seen once
    for head in heads:
        torch.nn.init.normal_(head.weight, generator=torch_rng)
    x = torch.randn(16, 5, generator=torch_rng)
    before = [popart.denormalise(head(x, level, slot), level) for head in heads]
    y = torch.randn(16, 3, generator=torch_rng, dtype=torch.float64) * scale + shift
    statistics = popart.mean_std()
    popart.update(y, level, *heads)
    after = [popart.denormalise(head(x, level, slot), level) for head in heads]
    assert not torch.equal(popart.mean_std()[0], statistics[0])
    for old, new in zip(before, after, strict=True):
        torch.testing.assert_close(old, new, rtol=1e-3, atol=1e-3 * (1 + abs(shift) * 1e-2))


def test_popart_moves_only_the_levels_in_the_batch():
    popart, head = td.PopArt(2, 1), td.LevelHead(2, 1, 1, x_dim=2)
    torch.nn.init.ones_(head.weight)
    popart.update(torch.tensor([[10.0], [30.0]]), torch.tensor([1, 1]), head)
    mean, std = popart.mean_std()
    torch.testing.assert_close(mean[:, 0], torch.tensor([0.0, 20.0], dtype=torch.float64))
    torch.testing.assert_close(std[:, 0], torch.tensor([1.0, 10.0], dtype=torch.float64))
    # A level's first statistics leave the normalised output alone: it starts at its mean.
    assert torch.equal(head.weight, torch.ones(2, 1, 1, 2))


# The stage


def small_td(tmp_path, name, **options):
    path = tmp_path / "d"
    if not path.exists():
        write_chain(path, SCALES)
    return FitConfig(
        path, tmp_path / name, estimator="td", grad_steps=8, checkpoint_every=4, **QUICK, **options
    )


def test_a_killed_fit_goes_on_exactly(tmp_path, monkeypatch):
    whole = fit(small_td(tmp_path, "whole"))
    save = td.save_checkpoint

    def save_and_die(path, state):
        save(path, state)
        raise KeyboardInterrupt

    config = small_td(tmp_path, "killed")
    with monkeypatch.context() as patch:
        patch.setattr(td, "save_checkpoint", save_and_die)
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
    with pytest.raises(UserError, match="loss is nan at step 6; the last good checkpoint"):
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
    with pytest.raises(UserError, match="is not a fit"):
        fit(dataclasses.replace(config, out=occupied, estimator="td"))
    with pytest.raises(UserError, match="is not a fit"):
        fit(dataclasses.replace(config, out=occupied))


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
        ({"gamma": 1.5}, "--gamma must lie"),
        ({"q": True}, "--q needs --estimator td"),
        ({"estimator": "td", "bootstrap": "x"}, "--bootstrap needs --estimator mc"),
        ({"estimator": "td", "gamma": 1.0}, "--gamma below 1"),
        ({"lr": 0.0}, "--lr must be positive"),
    ],
)
def test_options_that_make_no_sense(tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        FitConfig(tmp_path, tmp_path, **options)


# What labels are worth


def test_spearman_by_hand():
    assert diagnostics.spearman(np.array([1, 2, 3]), np.array([10, 20, 90])) == pytest.approx(1)
    assert diagnostics.spearman(np.array([1, 2, 3]), np.array([3, 2, 1])) == pytest.approx(-1)
    # ranks 1.5 1.5 3 and 1 2 3: cov .75+..., the textbook value
    assert diagnostics.spearman(np.array([0, 0, 1]), np.array([1, 2, 3])) == pytest.approx(
        0.75**0.5
    )
    assert np.isnan(diagnostics.spearman(np.array([1, 1]), np.array([1, 2])))


def test_stability_by_hand():
    one, two = np.array([0, 0, 1, 1, -1]), np.array([0, 1, 1, 1, 1])
    equal, kappa = diagnostics.stability(one, two, 2)
    assert equal == 0.75
    assert kappa == pytest.approx((0.75 - 0.5) / (1 - 0.5))  # by chance: .5 * .25 + .5 * .75
    assert diagnostics.stability(np.array([-1]), np.array([0]), 2) == (None, None)


def test_a_label_in_the_image_is_predictable_on_other_levels_and_noise_is_not(tmp_path):
    dataset = write_chain(tmp_path / "d", (1.0,) * 10, n_episodes=10)
    rows = np.arange(len(dataset))
    rng = np.random.default_rng(0)
    seen = dataset.t[:, None].astype(np.int64)
    accuracy, chance = diagnostics.predictability(dataset, rows, seen, 5, rng)
    assert accuracy > 0.95
    assert chance == pytest.approx(0.2)
    noise = rng.integers(5, size=(len(rows), 1))
    accuracy, chance = diagnostics.predictability(dataset, rows, noise, 5, rng)
    assert abs(accuracy - chance) < 0.15
    one_level = np.flatnonzero(dataset.level == 0)
    assert diagnostics.predictability(dataset, one_level, seen[one_level], 5, rng) == (None, None)


def test_the_probe_is_judged_on_levels_it_was_not_trained_on():
    z, held_out = np.array([[1.0], [-1.0]]).repeat(20, 0), np.arange(40) % 2 == 0
    label = (z[:, 0] > 0).astype(int)
    assert diagnostics._probe(z, label, held_out, 2) == (1.0, 0.5)
    label[held_out] = 1 - label[held_out]
    assert diagnostics._probe(z, label, held_out, 2) == (0.0, 0.5)


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
    found = {
        row["cumulant"].split(":")[-1]: row
        for row in json.loads((config.out / "compare.json").read_text())
    }
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
    config = dataclasses.replace(
        small_td(tmp_path, "cmp"), compare=True, cumulants=("reward",), grad_steps=2
    )
    fit(config)
    stamps = [p.stat().st_mtime_ns for p in sorted(config.out.glob("reward-seed*/values.npy"))]
    assert len(stamps) == 2
    fit(config)
    assert stamps == [
        p.stat().st_mtime_ns for p in sorted(config.out.glob("reward-seed*/values.npy"))
    ]
