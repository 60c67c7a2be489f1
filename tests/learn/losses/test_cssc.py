"""CSSC: classes of next actions, and the contrast between them."""

from typing import Any

import numpy as np
import pytest
import torch

from episodes import write_episodes
from gsf.data.dataset import Dataset
from gsf.learn.learner import AgentConfig, Learner
from gsf.learn.losses.cssc import action_classes, same_class_contrast


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    path = tmp_path_factory.mktemp("cssc") / "dataset"
    return write_episodes(path, lengths=(5, 3, 1, 4, 6, 2, 7, 3) * 3, n_actions=2)


def slow_classes(dataset: Dataset, index: np.ndarray, n_ahead: int) -> list[tuple[int, ...] | None]:
    stop_of = {i: stop for start, stop in dataset.episodes() for i in range(start, stop)}
    return [
        tuple(dataset.action[i : i + n_ahead].tolist()) if i + n_ahead <= stop_of[i] else None
        for i in index.tolist()
    ]


@pytest.mark.parametrize("n_ahead", [1, 2, 4])
def test_classes_equal_a_slow_loops(dataset: Dataset, n_ahead: int) -> None:
    index = np.random.default_rng(0).integers(len(dataset), size=200)
    index[:2] = 0, len(dataset) - 1  # the last row of all: nothing is read behind it
    label, slow = action_classes(dataset, index, n_ahead), slow_classes(dataset, index, n_ahead)
    assert label.tolist().count(-1) == slow.count(None)
    assert (slow.count(None) > 0) == (n_ahead > 1)
    for i, one in enumerate(slow):
        assert (label[i] == -1) == (one is None)
        for j, other in enumerate(slow):
            if one is not None:
                assert (label[i] == label[j]) == (one == other)


def test_no_row_has_enough_actions(dataset: Dataset) -> None:
    assert action_classes(dataset, np.arange(4), 8).tolist() == [-1] * 4


def test_contrast_by_hand() -> None:
    # Unit vectors at 0, 90, 180 and 0 degrees, of any length; the last has no class.
    embedding = torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [5.0, 0.0]], requires_grad=True)
    label = torch.tensor([4, 4, 7, -1])
    loss, anchors = same_class_contrast(embedding, label, tau=0.5)
    # Rows 0 and 1 are anchors. Row 0: cos 0 to its positive, -1 to row 2; row 1: 0 and 0.
    expected = (np.log(1 + np.exp(-2)) + np.log(2)) / 2
    assert float(loss.detach()) == pytest.approx(expected)
    assert float(anchors) == 0.5
    loss.backward()  # type: ignore[no-untyped-call]
    assert embedding.grad is not None
    assert embedding.grad.isfinite().all()
    assert (embedding.grad[3] == 0).all()


def test_mean_over_positives_is_outside_the_logarithm() -> None:
    angle = torch.tensor([0.0, 0.3, 1.2, 2.0, 2.9])
    label = torch.tensor([0, 0, 0, 1, 2])
    loss, anchors = same_class_contrast(torch.stack([angle.cos(), angle.sin()], 1), label, 0.7)
    expected = []
    for i in range(3):
        scores = {j: np.exp(np.cos(float(angle[i] - angle[j])) / 0.7) for j in range(5) if j != i}
        positives = [j for j in range(3) if j != i]
        expected.append(-np.mean([np.log(scores[p] / sum(scores.values())) for p in positives]))
    assert float(loss) == pytest.approx(np.mean(expected), rel=1e-5)
    assert float(anchors) == pytest.approx(0.6)


@pytest.mark.parametrize("label", [[-1, -1, -1], [0, 1, 2], [0, -1, -1]])
def test_nothing_to_contrast_is_zero_with_a_finite_gradient(label: list[int]) -> None:
    embedding = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss, anchors = same_class_contrast(embedding, torch.tensor(label), 0.5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == 0
    assert float(anchors) == 0
    assert embedding.grad is not None
    assert (embedding.grad == 0).all()


@pytest.mark.parametrize("head", [False, True])
def test_compares_z_or_its_projection(dataset: Dataset, head: bool) -> None:
    config = AgentConfig(
        method="cssc", encoder="impala_small", parts={"cssc": {"tau": 0.3, "head": head}}
    )
    learner: Any = Learner(config, dataset, np.random.default_rng(0))
    batch = dataset.gather(np.arange(40))
    context = learner.look(batch, np.random.default_rng(0))
    loss, info = learner.losses["cssc"](context)
    label = torch.from_numpy(action_classes(dataset, np.arange(40), 2))
    embedding = learner.losses["cssc"].h(context.z) if head else context.z
    torch.testing.assert_close(loss, same_class_contrast(embedding, label, 0.3)[0])
    assert float(info["ignored"]) == pytest.approx((label < 0).float().mean().item())
    assert bool(list(learner.losses["cssc"].parameters())) == head
