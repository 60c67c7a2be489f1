"""CTRL: balanced clusters, nearest neighbours, targets without gradient, the queue."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

import tiny
from gsf.core.errors import UserError
from gsf.core.loop import all_finite
from gsf.data.dataset import Dataset
from gsf.learn.learner import AgentConfig, Learner
from gsf.learn.losses import Spec
from gsf.learn.losses.ctrl import CTRL, draw_neighbour, sinkhorn
from gsf.nets.heads import Projection
from gsf.nets.runtime import frozen_copy, seeded, update_target


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return tiny.write_dataset(tmp_path_factory.mktemp("ctrl") / "dataset")


def make_learner(dataset: Dataset, **options: Any) -> Any:
    config = AgentConfig(method="ctrl", encoder="impala_small", parts={"ctrl": options}, crop=1)
    return Learner(config, dataset, np.random.default_rng(0))


def one_context(learner: Any, seed: int = 0, n: int = 40) -> Any:
    rng = np.random.default_rng(seed)
    return learner.look(learner.dataset.sample(n, rng), rng)


def test_sinkhorn_has_uniform_marginals() -> None:
    logits = 3 * torch.randn(30, 12, generator=torch.Generator().manual_seed(0))
    q = sinkhorn(logits, 200)
    torch.testing.assert_close(q.sum(1), torch.ones(30))
    torch.testing.assert_close(q.sum(0), torch.full((12,), 30 / 12), rtol=1e-3, atol=1e-3)
    # After a few rounds rows exactly, columns not yet, but more evenly than without.
    few, none = sinkhorn(logits, 3), logits.softmax(1)
    torch.testing.assert_close(few.sum(1), torch.ones(30))
    assert few.sum(0).std() < 0.6 * none.sum(0).std()


def test_sinkhorn_of_two_by_two_by_hand() -> None:
    # The limit keeps the cross ratio: q_11 / q_12 = sqrt(m_11 m_22 / (m_12 m_21)) = sqrt(2 / 12).
    q = sinkhorn(torch.tensor([[1.0, 4.0], [3.0, 2.0]]).log(), 100)
    p = np.sqrt(2) / (np.sqrt(2) + np.sqrt(12))
    torch.testing.assert_close(q.double(), torch.tensor([[p, 1 - p], [1 - p, p]]).double())
    assert sinkhorn(torch.tensor([[800.0, 0.0], [800.0, 0.0]]), 3).isfinite().all()


def test_the_neighbour_comes_from_the_nearest_occupied_cluster() -> None:
    angle = torch.tensor([0.0, 0.2, 0.5, 3.0, 1.5])  # 1 is nearest to 0 but has no member
    prototypes = torch.stack([angle.cos(), angle.sin()], 1)
    of_all = torch.tensor([0, 0, 2, 2, 3, 4, 2])
    uniform = torch.rand(400, 2, generator=torch.Generator().manual_seed(0))
    for own, nearest in [(0, [2]), (2, [0]), (3, [4]), (4, [2])]:
        chosen = draw_neighbour(torch.full((400,), own), of_all, prototypes, 1, uniform)
        members = [j for j, c in enumerate(of_all.tolist()) if c in nearest]
        assert sorted(set(chosen.tolist())) == members
        counts = torch.bincount(chosen, minlength=7)[members]
        assert counts.min() > 0.7 * 400 / len(members)  # any of them alike
    two = draw_neighbour(torch.zeros(400).long(), of_all, prototypes, 2, uniform)
    assert sorted(set(of_all[two].tolist())) == [2, 4]
    # More than there are: every other cluster, never the own one.
    all_others = draw_neighbour(torch.zeros(400).long(), of_all, prototypes, 9, uniform)
    assert sorted(set(of_all[all_others].tolist())) == [2, 3, 4]


def test_no_gradient_flows_through_the_targets(dataset: Dataset) -> None:
    learner = make_learner(dataset, neighbour_weight=0.5)
    aux = learner.losses["ctrl"]
    for seed in range(3):  # something in the queue
        aux(one_context(learner, seed))
        aux.after_step()
    context = one_context(learner, 7)
    context.crop = lambda obs: obs  # the same images in every pass
    prototypes = normalize(aux.prototypes.weight, dim=1)
    all_v, q, of_all = aux.targets(context, prototypes)
    assert not all_v.requires_grad
    assert not q.requires_grad

    # The gradient equals that of the formula with numbers in the targets' place.
    parameters = [*learner.encoder.parameters(), *(p for p in aux.parameters() if p.requires_grad)]
    loss, info = aux(context)
    found = torch.autograd.grad(loss, parameters)
    action, obs = context.drawn["action"], context.drawn["obs"]
    n = len(action)
    z = learner.encoder(obs.flatten(0, 1)).view(n, 10, 256)
    w = normalize(aux.predictor(aux.stretch(z, action)), dim=1)
    log_p = (w @ prototypes.T / 0.1).log_softmax(1)
    j = draw_neighbour(of_all[:n], of_all, prototypes.detach(), 1, context.drawn["uniform"])
    assert (of_all[j] != of_all[:n]).all()
    cluster = -(q[:n] * log_p).sum(1).mean()
    neighbour = (w - all_v[j]).square().sum(1).mean()  # 2 - 2 cos of unit vectors
    expected = cluster + 0.5 * neighbour
    torch.testing.assert_close(loss, expected)
    assert float(info["cluster"]) == pytest.approx(float(cluster.detach()), rel=1e-5)
    for a, b in zip(found, torch.autograd.grad(expected, parameters), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("clusters", "second"), [("sinkhorn", 1), ("nearest", 0)])
def test_whose_cluster_a_stretch_is_of(dataset: Dataset, clusters: Any, second: int) -> None:
    """Prototypes at 0 and 90 degrees. 50 stretches at 0 and 50 at 17 are all nearest to the first;
    balanced, the second has half of them."""
    learner = make_learner(dataset, n_queue=100, n_windows=2, clusters=clusters)
    aux, angle = learner.losses["ctrl"], torch.tensor([0.0, 0.3]).repeat_interleave(50)
    aux.queue[:, 0], aux.queue[:, 1] = angle.cos(), angle.sin()
    aux.n_queued.fill_(100)
    _, q, cluster = aux.targets(one_context(learner), torch.eye(2, 256))
    assert q[2:].argmax(1).tolist() == [0] * 50 + [1] * 50
    assert cluster[2:].tolist() == [0] * 50 + [second] * 50


def test_targets_are_of_the_ema_networks(dataset: Dataset) -> None:
    learner = make_learner(dataset, target_rate=0.25)
    aux = learner.losses["ctrl"]
    assert not any(p.requires_grad for p in aux.target_stretch.parameters())
    context = one_context(learner)
    before = aux.targets(context, torch.eye(3, 256))[0]
    with torch.no_grad():
        for p in [*aux.stretch.parameters(), *learner.encoder.parameters()]:
            p.add_(1.0)
    context = one_context(learner)
    torch.testing.assert_close(aux.targets(context, torch.eye(3, 256))[0], before)
    old = [p.clone() for p in aux.target_stretch.parameters()]
    aux.after_step()
    for a, b in zip(old, aux.target_stretch.parameters(), strict=True):
        torch.testing.assert_close(b, a + 0.25)


def test_clusters_form_and_hold_one_kind_of_play_each() -> None:
    rng = np.random.default_rng(0)
    n_kinds, place = 12, torch.from_numpy(rng.normal(size=(12, 16))).float()
    habit = torch.from_numpy(rng.integers(3, size=(n_kinds, 10)))
    spec = Spec((8, 8, 3), n_actions=3, n_levels=1)
    with seeded(rng):
        encoder = nn.Sequential(Projection(16, 256), nn.LayerNorm(256), nn.Tanh())
        aux = CTRL(CTRL.Config(n_prototypes=30, target_rate=0.02), spec)
    target_encoder = frozen_copy(encoder)
    trained = [p for p in [*encoder.parameters(), *aux.parameters()] if p.requires_grad]
    adam, kinds = torch.optim.Adam(trained, 1e-3), np.zeros(0, int)
    for _ in range(150):
        kind = rng.integers(n_kinds, size=25)
        noise = torch.from_numpy(rng.normal(scale=0.5, size=(25, 10, 16))).float()
        uniform = torch.from_numpy(rng.random((25, 2))).float()
        drawn = {"obs": place[kind][:, None] + noise, "action": habit[kind], "uniform": uniform}
        context = SimpleNamespace(
            drawn=drawn, crop=lambda x: x, encoder=encoder, target_encoder=target_encoder
        )
        loss, info = aux(context)
        adam.zero_grad()
        loss.backward()
        adam.step()
        aux.after_step()
        update_target(target_encoder, encoder, 0.02)
        kinds = np.concatenate([kind, kinds])[:1000]
    assert float(info["entropy"]) < 0.9 * np.log(30)  # log 30: every stretch in every cluster
    logits = aux.queue @ normalize(aux.prototypes.weight, dim=1).T / 0.05
    cluster = sinkhorn(logits, 3).argmax(1).numpy()
    largest = [np.bincount(kinds[cluster == c]).max() for c in np.unique(cluster)]
    assert sum(largest) / 1000 > 0.8


def test_stretches_lie_inside_an_episode(dataset: Dataset) -> None:
    aux = CTRL(CTRL.Config(length=10), Spec(tiny.OBS_SHAPE, tiny.N_ACTIONS, 4))
    rng = np.random.default_rng(0)
    drawn = aux.draw(dataset, dataset.sample(64, rng), rng)
    assert drawn["obs"].shape == (6, 10, *tiny.OBS_SHAPE)  # 64 / 10: about a batch of frames
    row_of = {dataset.obs[frame].tobytes(): row for row, frame in enumerate(dataset.frame)}
    for images, actions in zip(drawn["obs"], drawn["action"], strict=True):
        rows = np.array([row_of[image.numpy().tobytes()] for image in images])
        assert np.array_equal(rows, rows[0] + np.arange(10))
        assert len(set(dataset.episode[rows])) == 1
        assert np.array_equal(actions, dataset.action[rows])
    too_long = CTRL(CTRL.Config(length=13), Spec(tiny.OBS_SHAPE, tiny.N_ACTIONS, 4))
    with pytest.raises(UserError, match=r"no episode of .* has 13 steps"):
        too_long.draw(dataset, dataset.sample(8, rng), rng)


def test_queue_keeps_the_newest_and_is_part_of_the_checkpoint(dataset: Dataset) -> None:
    learner = make_learner(dataset, n_queue=10, n_windows=4)
    aux, views = learner.losses["ctrl"], []
    for seed in range(4):
        context = one_context(learner, seed)
        n_all = len(aux.targets(context, torch.eye(3, 256))[0])
        assert n_all == 4 + min(4 * seed, 10)
        views.append(aux.latest)
        aux.after_step()
        assert int(aux.n_queued) == min(4 * (seed + 1), 10)
    torch.testing.assert_close(aux.queue, torch.cat(views[::-1])[:10])
    other = make_learner(dataset, n_queue=10, n_windows=4).losses["ctrl"]
    other.load_state_dict(aux.state_dict())
    assert int(other.n_queued) == 10
    assert torch.equal(other.queue, aux.queue)


@pytest.mark.parametrize("n_queue", [0, 5])
def test_small_batches_and_no_queue(dataset: Dataset, n_queue: int) -> None:
    learner, rng = make_learner(dataset, n_queue=n_queue), np.random.default_rng(0)
    for _ in range(3):
        info = learner.update(dataset.sample(4, rng), rng)
    assert all_finite(learner.modules.values())
    assert 0 < float(info["ctrl/occupied"]) <= (2 + n_queue) / 200
