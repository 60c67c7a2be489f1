"""Base algorithms: the protocol, and the folder as the registry.

A base is one file here, holding one `Base` named like the file: its hyperparameters (`Config`), its
heads on z, what it needs of the data (`prepare`, `sample`, `draw`), its formula (`forward`), what
actions are chosen by (`scores`, with a `memory` `scores_in`), its own targets (`after_step`) and
what `gsf run --tune` tries. Whatever trains or acts finds it by being there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gsf.core.options import check
from gsf.core.registry import Registry
from gsf.learn.context import Context as Context
from gsf.learn.context import Info as Info
from gsf.learn.context import Optimize as Optimize
from gsf.learn.context import Past as Past
from gsf.learn.context import Spec as Spec

if TYPE_CHECKING:  # acting needs no data
    from gsf.data.dataset import Batch, Dataset


class Base(nn.Module, ABC):
    """One base algorithm: `loss, info = base(z, context)`, info named without the base's name."""

    name: ClassVar[str]
    colour: ClassVar[str] = ""  # in figures; by default one that follows from the name
    Config: ClassVar[type[Any]]  # a frozen dataclass with a docstring under each field
    # Four trials of `gsf run --tune`: a grid, defaults first, of own options and `train.x`. With an
    # auxiliary loss two values of the first option are tried with two of the loss's.
    tuning: ClassVar[Mapping[str, tuple[str, ...]]] = {"train.lr": ("3e-4", "1e-4", "1e-3", "3e-3")}
    released: ClassVar[Mapping[str, Any]] = {}  # options under `--released`
    released_with_loss: ClassVar[Mapping[str, Any]] = {}  # the same with an auxiliary loss
    memory: int = 0  # steps of its episode that it acts by; 0: the present one alone

    def __init__(self, config: Any, spec: Spec) -> None:
        super().__init__()
        check(config, f"{self.name}.")

    def prepare(self, dataset: Dataset) -> None:
        """Called once, before training: what it has to know of the data, in buffers what acts."""

    def sample(
        self, dataset: Dataset, n: int, rng: np.random.Generator, n_levels: int | None
    ) -> Batch:
        """The n transitions of a batch; `n_levels`: from how many levels, if that was asked for."""
        return dataset.sample(n, rng, n_levels)

    def draw(self, dataset: Dataset, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """What the base needs of the data beyond the batch, for `context.drawn` (CPU)."""
        return {}

    @abstractmethod
    def forward(self, z: Tensor, context: Context) -> tuple[Tensor, Info]:
        """`z` is context.z, or cut from the encoder where that is not to learn from the base."""

    @abstractmethod
    def scores(self, z: Tensor) -> Tensor:
        """[n,256] -> [n,A]: greedy play takes the highest, sampled play their softmax."""

    def scores_in(self, past: Past) -> Tensor:
        """The same of agents that remember their episode.  [n,A]; only with `memory` another."""
        return self.scores(past.z[torch.arange(len(past.now)), past.now])

    def optimizers(self, optimizer: Optimize) -> Mapping[str, Optimizer]:
        """Optimisers of its own, by name, for some of what it trains; the run's takes the others.
        `optimizer(parameters, lr)` makes one as --optimizer says; any of torch's will do."""
        return {}

    def after_step(self, rate: float) -> None:
        """Called after each optimiser step: EMA of the base's own targets, if it has any."""


def _is_base(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Base) and hasattr(value, "Config")


_registry: Registry[type[Base]] = Registry("base", __name__, _is_base)
find, find_again, names = _registry.find, _registry.find_again, _registry.names
owns = _registry.owns
