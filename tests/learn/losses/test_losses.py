"""One conformance suite over every file in losses/, and GSF by hand."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny
from gsf.core.errors import UserError
from gsf.data.dataset import Dataset
from gsf.equations import contrastive_cce, contrastive_infonce, rank_contrast
from gsf.gvf.fit import FitConfig, fit
from gsf.gvf.label import LabelConfig, label
from gsf.learn import check, losses
from gsf.learn.learner import AgentConfig, Learner
from gsf.learn.losses import Context


@pytest.fixture(params=losses.names())
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def make_learner(
    dataset: Dataset, labels: Path, name: str, seed: int = 0, **options: Any
) -> Learner:
    needs_labels = "labels" in losses.find(name).value.needs
    config = AgentConfig(
        method=f"{name}-reward" if needs_labels else name, encoder="impala_small", **options
    )
    rng = np.random.default_rng(seed)
    return Learner(config, dataset, rng, labels if needs_labels else None)


def one_context(learner: Learner, seed: int = 0, n: int = 32) -> Context:
    rng = np.random.default_rng(seed)
    batch = learner.dataset.sample(n, rng, learner.n_levels)
    return learner.look(batch, rng)


@pytest.mark.parametrize("promise", check.OF_LOSSES, ids=lambda promise: promise.__name__)
def test_keeps_its_promises(dataset: Dataset, labels: Path, name: str, promise: Any) -> None:
    promise(check.of_loss(name, dataset, labels))


def test_stands_in_the_file_of_its_name_with_a_docstring(name: str) -> None:
    loss = losses.find(name).value
    assert loss.__module__ == f"gsf.learn.losses.{name}"
    assert inspect.getdoc(inspect.getmodule(loss))


def test_metrics_are_documented(dataset: Dataset, labels: Path, name: str) -> None:
    documented = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    learner = make_learner(dataset, labels, name)
    rng = np.random.default_rng(0)
    for metric in learner.update(dataset.sample(8, rng, learner.n_levels), rng):
        assert f"`{metric}`" in documented


# GSF itself


def gsf(dataset: Dataset, labels: Path, **options: Any) -> tuple[Learner, Any]:
    loss = losses.find("gsf").value.Config(**options)
    learner = make_learner(dataset, labels, "gsf", parts={"gsf": loss})
    return learner, learner.losses["gsf"]


def test_cce_classifies_the_rows_own_labels(dataset: Dataset, labels: Path) -> None:
    learner, aux = gsf(dataset, labels, tau=0.3)
    context = one_context(learner)
    label = torch.from_numpy(np.load(labels / "label.npy")[context.batch.index.numpy()])
    assert (label == -1).any()  # the cut episodes' last rows
    loss, info = aux(context)
    with torch.no_grad():
        logits = aux.h(context.z) @ aux.w.weight.T
    assert logits.shape == (32, 3)
    expected = contrastive_cce(logits, label.long(), 0.3)
    torch.testing.assert_close(loss.detach(), expected)
    known = label >= 0
    assert float(info["ignored"]) == pytest.approx(1 - known.float().mean().item())
    assert float(info["accuracy"]) == pytest.approx(
        (logits.argmax(1) == label)[known].float().mean().item()
    )


def test_one_label_per_component_is_one_cross_entropy_each(
    dataset: Dataset, tmp_path: Path
) -> None:
    labels = tiny.write_labels(tmp_path / "action", dataset, "action")
    learner = Learner(
        AgentConfig(method="gsf-action", encoder="impala_small"),
        dataset,
        np.random.default_rng(0),
        labels,
    )
    context = one_context(learner)
    aux: Any = learner.losses["gsf"]
    loss, _ = aux(context)
    label = torch.from_numpy(np.load(labels / "label.npy")[context.batch.index.numpy()]).long()
    assert label.shape == (32, tiny.N_ACTIONS)
    logits = aux.w(aux.h(context.z)).view(32, tiny.N_ACTIONS, 3)
    known = label >= 0
    nll = -logits.div(0.5).log_softmax(2).gather(2, label.clamp(min=0)[..., None])[..., 0]
    torch.testing.assert_close(loss, nll[known].mean())


@pytest.mark.parametrize("objective", ["infonce", "rank"])
def test_objectives_on_pairs(dataset: Dataset, labels: Path, objective: str) -> None:
    learner, aux = gsf(dataset, labels, objective=objective, tau=0.4, bandwidth=0.2)
    context = one_context(learner)
    index = context.batch.index.numpy()
    h = aux.h(context.z)
    label, u = (torch.from_numpy(np.load(labels / f"{x}.npy")[index]) for x in ("label", "rank"))
    expected = {
        "infonce": contrastive_infonce(h, label.long(), 0.4),
        "rank": rank_contrast(h, u, 0.4, 0.2),
    }
    torch.testing.assert_close(aux(context)[0], expected[objective])

    rng = np.random.default_rng(0)
    values = [float(learner.update(dataset.sample(16, rng), rng)["gsf/loss"]) for _ in range(40)]
    assert np.mean(values[-10:]) < np.mean(values[:5])


def test_batch_quantiles_bin_each_level_of_the_batch_alone(dataset: Dataset, labels: Path) -> None:
    learner, aux = gsf(dataset, labels, quantiles="batch", batch_levels=2)
    assert learner.n_levels == 2
    rng = np.random.default_rng(0)
    batch = dataset.sample(64, rng, learner.n_levels)
    assert len(batch.level.unique()) == 2
    label = aux.draw(dataset, batch, rng)["label"]
    values = np.load(labels / "values.npy")[batch.index.numpy()]
    for level in batch.level.unique():
        rows = (batch.level == level).numpy()
        own = label.numpy()[rows]
        assert set(own[~np.isnan(values[rows])]) == {0, 1, 2}
        assert (own[np.isnan(values[rows])] == -1).all()
        order = np.argsort(values[rows][own >= 0], kind="stable")
        assert (np.diff(own[own >= 0][order]) >= 0).all()
    # Rows of other levels change nothing; the whole dataset's labels would be others.
    rows = (batch.level == batch.level[0]).numpy()
    alone = dataset.gather(batch.index.numpy()[rows])
    assert torch.equal(aux.draw(dataset, alone, rng)["label"], label[rows])


def test_only_the_most_frequent_levels_are_labelled(dataset: Dataset, labels: Path) -> None:
    learner, aux = gsf(dataset, labels, quantiles="batch", frequent_levels=1)
    assert learner.n_levels is None
    rng = np.random.default_rng(0)
    rows = np.concatenate([dataset.episodes(1)[0], dataset.episodes(2)[0]])
    index = [*range(rows[0], rows[1]), *range(rows[2], rows[3] - 2)]  # level 1 has more rows
    batch = dataset.gather(index)
    label = aux.draw(dataset, batch, rng)["label"]
    assert (label[batch.level == 1] >= 0).all()
    assert (label[batch.level == 2] == -1).all()


def test_labels_at_the_critics_own_action(dataset: Dataset, labels: Path, tmp_path: Path) -> None:
    learner, aux = gsf(dataset, labels, quantiles="batch", label_action="greedy")
    context = one_context(learner)
    seen: list[torch.Tensor] = []
    aux._batch_labels = lambda values, level: (
        seen.append(values),
        torch.zeros_like(level),
    )[1]
    context.scores = torch.nn.functional.one_hot(torch.arange(32) % 3, 3).float()
    aux(context)
    values = np.load(labels / "action_values.npy")[context.batch.index.numpy()]
    assert np.array_equal(seen[0].numpy(), values[np.arange(32), np.arange(32) % 3], equal_nan=True)

    gvf = fit(FitConfig(dataset.path, tmp_path / "gvf", gamma=0.8, diagnose=False))
    without = label(LabelConfig(gvf, tmp_path / "labels", n_bins=3))
    with pytest.raises(UserError, match="--q"):
        gsf(dataset, without, quantiles="batch", label_action="greedy")
