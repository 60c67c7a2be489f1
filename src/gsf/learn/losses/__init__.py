"""Auxiliary losses: the protocol, and the folder as the registry.

A loss is one file here, holding one `AuxiliaryLoss` named like the file: its hyperparameters
(`Config`), what it needs of the data beyond the batch (`needs`, `draw`), its heads and its formula
(`forward`). CLI, learner, sweep and the conformance test find it by being there.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer

from gsf.core.errors import UserError
from gsf.core.options import Weight, check
from gsf.core.registry import Registry
from gsf.data.dataset import Batch, Dataset
from gsf.learn.context import Context as Context
from gsf.learn.context import Info as Info
from gsf.learn.context import Optimize as Optimize
from gsf.learn.context import Spec as Spec


@dataclass(frozen=True)
class Released:
    """The setting of the authors' research code under this loss (`--released`)."""

    stop_gradient: bool = False  # the base does not train the encoder
    config: Mapping[str, Any] = field(default_factory=dict)  # hyperparameters that differ
    base: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of bases, by their name


class AuxiliaryLoss(nn.Module, ABC):
    """One auxiliary loss on z: `loss, info = aux(context)`, info named without the loss's name."""

    name: ClassVar[str]
    colour: ClassVar[str | Mapping[str, str]] = ""  # in figures; of a loss on labels by cumulant
    needs: ClassVar[Collection[str]] = ()  # fields of Spec that must be there
    released: ClassVar[Released] = Released()
    n_levels: int | None = None  # asks for batches of this many levels; None: any
    encoder_rate: float | None = None  # EMA step of the target encoder; None: as `--target-rate`

    @dataclass(frozen=True)
    class Config:
        """Hyperparameters: a loss's own are fields of `class Config(AuxiliaryLoss.Config)`."""

        weight: Weight = 1.0
        """Weight of this loss in the sum that is learnt from."""

    def __init__(self, config: Any, spec: Spec) -> None:
        super().__init__()
        if not isinstance(config, AuxiliaryLoss.Config):
            raise UserError(
                f"{self.name}: write `class Config(AuxiliaryLoss.Config)`, which has its weight."
            )
        check(config, f"{self.name}.")
        for need in sorted(self.needs):
            if getattr(spec, need) is None:
                raise UserError(
                    f"{self.name} needs {need}: make them with `gsf fit` and `gsf label`, then "
                    f"give --{need} DIR."
                )

    def draw(self, dataset: Dataset, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """What the loss needs of the data beyond the batch, labels, windows or episodes, for
        `context.drawn` (CPU)."""
        return {}

    @abstractmethod
    def forward(self, context: Context) -> tuple[Tensor, Info]: ...

    def optimizers(self, optimizer: Optimize) -> Mapping[str, Optimizer]:
        """Optimisers of its own, by name, for some of what it trains; the run's takes the others.
        `optimizer(parameters, lr)` makes one as --optimizer says; any of torch's will do."""
        return {}

    def after_step(self) -> None:
        """Called after each optimiser step: EMA of the loss's own targets, if it has any."""


def _is_loss(value: Any) -> bool:
    kind = isinstance(value, type) and issubclass(value, AuxiliaryLoss)
    return kind and value is not AuxiliaryLoss


_registry: Registry[type[AuxiliaryLoss]] = Registry("auxiliary loss", __name__, _is_loss)
find, names = _registry.find, _registry.names
owns = _registry.owns
