"""The gradient of every base and loss, of all that it trains, against finite differences.

What a formula takes as given is held: the next latent, IQL's next value, CTRL's clusters. Anything
else that is computed without gradient has to come from a target network, which does not move here.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gsf.data.dataset import Dataset
from gsf.learn import bases, check, losses
from gsf.learn.bases import iql
from gsf.learn.context import Context, Spec
from gsf.learn.learner import Learner

STEP = 1e-8  # few kinks are that near
# With another beta the policy's weights depend on a value that it does not train.
OPTIONS = {"iql": {"parts": {"iql": {"beta": 0.0}}}}


class Held:
    """The first answer to every call, whatever has changed since."""

    def __init__(self, function: Any) -> None:
        self.function, self.answer = function, None

    def __call__(self, *args: Any) -> Any:
        if self.answer is None:
            self.answer = self.function(*args)
        return self.answer


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    scaled = Spec.scaled
    monkeypatch.setattr(Spec, "scaled", lambda self, reward: scaled(self, reward).double())
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def perturb_targets(learner: Learner) -> None:
    rng = torch.Generator().manual_seed(0)
    for name, module in learner.modules.items():
        for key, p in module.named_parameters():
            if "target" in f"{name}.{key}":
                p.data += 0.1 * p.abs().mean() * torch.randn(p.shape, generator=rng)


@pytest.mark.parametrize("name", [*bases.names(), *losses.names()])
def test_it_is_the_slope_of_the_loss(
    name: str, dataset: Dataset, labels: Path, monkeypatch: pytest.MonkeyPatch, double: None
) -> None:
    is_base = name in bases.names()
    subject = check.of_base(name, dataset) if is_base else check.of_loss(name, dataset, labels)
    learner = subject.learner(**OPTIONS.get(name, {}))
    perturb_targets(learner)
    for encoder in (learner.encoder, learner.target_encoder):
        encoder.register_forward_pre_hook(lambda _, inputs: (inputs[0].double(),))
    part: Any = subject.part(learner)
    next_z: Any = Context.__dict__["next_z"]
    monkeypatch.setattr(Context, "next_z", property(Held(next_z.func)))
    monkeypatch.setattr(iql, "gvf_target", Held(iql.gvf_target))
    if name == "ctrl":
        part.targets = Held(part.targets)

    trained = [p for x in (learner.encoder, part) for p in x.parameters() if p.requires_grad]

    def loss() -> Tensor:
        return subject.loss(learner, n=16)[0]

    def move(ways: list[Tensor], by: float) -> None:
        for p, way in zip(trained, ways, strict=True):
            p.data.add_(way, alpha=by)

    slopes = torch.autograd.grad(loss(), trained)
    for seed in range(3):
        rng = torch.Generator().manual_seed(seed)
        ways = [torch.randn(p.shape, generator=rng) for p in trained]
        move(ways, STEP)
        above = loss().item()
        move(ways, -2 * STEP)
        below = loss().item()
        move(ways, STEP)
        along = sum(float((slope * way).sum()) for slope, way in zip(slopes, ways, strict=True))
        assert (above - below) / (2 * STEP) == pytest.approx(along, rel=1e-4)
