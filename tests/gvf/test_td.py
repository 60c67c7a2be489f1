"""LearnGVF on chains with known values, and PopArt."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chains import chain_values, write_chain
from gsf.core.errors import UserError
from gsf.core.logs import read_metrics
from gsf.gvf import td
from gsf.gvf.fit import FitConfig, fit
from gsf.nets.encoders import Encoder
from gsf.nets.random_features import random_encoder
from gsf.nets.runtime import seeded

SCALES = (1.0, 1000.0)
QUICK = {
    "gamma": 0.9,
    "batch": 32,
    "n_steps": 1,
    "lr": 1e-3,
    "target_rate": 0.1,
    "diagnose": False,
    "encoder": "patches",
}


def values_of(config):
    return np.load(fit(config) / "values.npy")


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


def test_bf16_changes_the_values_by_little(tmp_path):
    dataset = write_chain(tmp_path / "d", SCALES)
    options = {**QUICK, "encoder": "impala_small", "grad_steps": 40}
    config = FitConfig(dataset.path, tmp_path / "full", estimator="td", **options)
    full = values_of(config)
    half = values_of(dataclasses.replace(config, out=tmp_path / "half", precision="bf16"))
    assert not np.array_equal(half, full)
    np.testing.assert_allclose(half, full, rtol=0.1)


def test_sarsa_learns_the_value_of_each_action(tmp_path):
    dataset = write_chain(
        tmp_path / "d", SCALES, length=3, reward=lambda s, a: 1.0 + 2 * a, alternate=True
    )
    options = {**QUICK, "n_steps": 2, "grad_steps": 150, "q": True}
    values = values_of(FitConfig(dataset.path, tmp_path / "td", estimator="td", **options))
    # Rewards 1 and 3 in turn: Q(s, a) depends on the action after the last step added up.
    by_step = np.zeros((4, 2))  # [t, a], nothing after the end
    for t in reversed(range(3)):
        by_step[t] = [1, 3] + 0.9 * by_step[t + 1, ::-1]
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


@pytest.mark.parametrize(
    ("end", "final_frame", "expected"),
    [
        # Rewards are 1 2 3 4 5: three steps of them, fewer before the end, and what follows.
        ("terminated", False, [(1.0 + 1.0 + 0.75, 3, 0.125), (2.0 + 1.5 + 1.0, 4, 0.125),
                               (3.0 + 2.0 + 1.25, None, 0.125), (4.0 + 2.5, None, 0.25),
                               (5.0, None, 0.5)]),
        # The last transition has no next observation: the sums stop before it.
        ("cut", False, [(2.75, 3, 0.125), (4.5, 4, 0.125), (3.0 + 2.0, 4, 0.25), (4.0, 4, 0.5)]),
        ("truncated", True, [(2.75, 3, 0.125), (4.5, 4, 0.125), (6.25, 5, 0.125), (6.5, 5, 0.25),
                             (5.0, 5, 0.5)]),
    ],
)  # fmt: skip
def test_a_target_adds_up_logged_steps_and_stays_in_its_episode(
    tmp_path, end, final_frame, expected
):
    """By row: the sum, the frame of the episode that is bootstrapped from, and its discount."""
    dataset = write_chain(tmp_path / "d", (1.0,), n_episodes=2, end=end, final_frame=final_frame)
    ahead = td.Ahead(dataset, dataset.reward[:, None], n=3, q=False)
    assert len(ahead.rows) == 2 * len(expected)
    batch, total, discount, _ = ahead.batch(ahead.rows, 0.5)
    sums, frames, discounts = zip(*expected, strict=True)
    assert total[:, 0].tolist() == [*sums, *sums]
    assert discount[:, 0].tolist() == [*discounts, *discounts]
    assert batch.terminated.tolist() == [x is None for x in (*frames, *frames)]
    first = dataset.frame[ahead.rows[0]], dataset.frame[ahead.rows[len(expected)]]
    for i, frame in enumerate((*frames, *frames)):
        if frame is not None:
            shown = dataset.obs[int(first[i // len(expected)]) + frame]
            np.testing.assert_array_equal(batch.next_obs[i], shown)


def test_three_steps_learn_the_same_values(tmp_path):
    dataset = write_chain(tmp_path / "d", SCALES, length=8)
    options = {**QUICK, "n_steps": 3, "grad_steps": 220}
    values = values_of(FitConfig(dataset.path, tmp_path / "td", estimator="td", **options))
    truth = chain_values(0.9, length=8)[dataset.t] * np.array(SCALES)[dataset.level]
    np.testing.assert_allclose(values, truth, rtol=0.02)


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
    random = random_encoder(shape, 0, "cpu").trunk.fc.weight
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


def test_an_update_bootstraps_from_the_target_network(tmp_path):
    dataset = write_chain(tmp_path / "d", (1.0,))
    shape = {"obs_shape": [8, 8, 3], "encoder": "impala_small", "levels": [0], "n_slots": 1, "d": 1}
    learner = td.TDLearner(shape, seed=0, lr=0.0)
    torch.nn.init.ones_(learner.target.head.bias)  # values are 1, and 0 by the online network
    batch = dataset.gather(np.arange(len(dataset)))
    slot = torch.zeros(len(dataset), dtype=torch.int64)
    cumulant = torch.zeros(len(dataset), 1)
    info = learner.update(batch, cumulant, slot, slot, gamma=0.9, rate=0.0)
    assert info["gvf/target"] == pytest.approx(0.9 * float((~batch.terminated).double().mean()))


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
