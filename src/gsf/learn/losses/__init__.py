"""Auxiliary losses: the protocol, and the folder as the registry.

A loss is one file here, holding one `AuxiliaryLoss` named like the file: its hyperparameters
(`Config`), what it needs of the data beyond the batch (`needs`, `draw`), its heads and its formula
(`forward`). CLI, learner, sweep and the conformance test find it by being there.
"""

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gsf.core.errors import UserError
from gsf.data.dataset import Batch, Dataset
from gsf.gvf.labels import Labels
from gsf.nets.encoders import Z_DIM, Encoder

Info = dict[str, Tensor | float]
REWARD_CLIP = 10.0  # after scaling


@dataclass(frozen=True)
class Spec:
    """What a loss may build its heads from."""

    obs_shape: tuple[int, ...]
    n_actions: int
    n_levels: int
    gamma: float = 0.99
    z_dim: int = Z_DIM
    labels: Labels | None = None  # for a loss that needs them
    reward_scale: float = 1.0  # spread of the dataset's returns: the unit of reward

    def scaled(self, reward: Tensor) -> Tensor:
        """Raw rewards as TD learns from them."""
        return (reward / self.reward_scale).clamp(-REWARD_CLIP, REWARD_CLIP)


@dataclass
class Context:
    """What a loss may look at in one update; everything lies on the learner's device."""

    batch: Batch  # as logged, observations not cropped
    obs: Tensor  # batch.obs, cropped
    z: Tensor  # encoder(obs) with its gradient
    q: Tensor  # the head at z without gradient: min of the twin critics, or BC's logits
    drawn: Mapping[str, Tensor]  # what the loss's own `draw` returned
    encoder: Encoder
    target_encoder: Encoder  # EMA, takes no gradient
    crop: Callable[[Tensor], Tensor]  # random crop of [n,H,W,C], from the run's rng

    @cached_property
    def next_obs(self) -> Tensor:
        """batch.next_obs, cropped; means nothing where has_next is False."""
        return self.crop(self.batch.next_obs)

    @cached_property
    def next_z(self) -> Tensor:
        """encoder(next_obs) without gradient; CQL has computed it already."""
        with torch.no_grad():
            z: Tensor = self.encoder(self.next_obs)
        return z

    @cached_property
    def target_next_z(self) -> Tensor:
        with torch.no_grad():
            z: Tensor = self.target_encoder(self.next_obs)
        return z


@dataclass(frozen=True)
class Released:
    """The setting of the authors' research code under this loss (`--released`)."""

    cql_alpha: float = 0.0
    stop_gradient: bool = False  # RL does not train the encoder
    config: Mapping[str, Any] = field(default_factory=dict)  # hyperparameters that differ


class AuxiliaryLoss(nn.Module, ABC):
    """One auxiliary loss on z: `loss, info = aux(context)`, info named without the loss's name."""

    name: ClassVar[str]
    Config: ClassVar[type[Any]]  # a frozen dataclass with a docstring under each field
    needs: ClassVar[frozenset[str]] = frozenset()  # fields of Spec that must be there
    released: ClassVar[Released] = Released()
    n_levels: int | None = None  # asks for batches of this many levels; None: any

    def __init__(self, config: Any, spec: Spec) -> None:
        super().__init__()
        for need in sorted(self.needs):
            if getattr(spec, need) is None:
                raise UserError(f"{self.name} needs {need}: make them first and give --{need} DIR.")

    def draw(self, dataset: Dataset, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """What the loss needs of the data beyond the batch: labels, windows, episodes (CPU)."""
        return {}

    @abstractmethod
    def forward(self, context: Context) -> tuple[Tensor, Info]: ...

    def after_step(self) -> None:
        """Called after each optimiser step: EMA of the loss's own targets, if it has any."""


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def find(name: str) -> type[AuxiliaryLoss]:
    if name not in names():
        raise UserError(f"unknown auxiliary loss {name!r}; choose one of {', '.join(names())}.")
    module = importlib.import_module(f"{__name__}.{name}")
    for value in vars(module).values():
        if isinstance(value, type) and getattr(value, "name", None) == name:
            return value
    raise ImportError(f"{module.__file__} holds no AuxiliaryLoss with name = {name!r}")


def parse_method(method: str) -> tuple[str | None, str | None]:
    """A user's name of a method -> (loss, cumulant): cql -> (None, None), gsf-x -> (gsf, x)."""
    loss, _, cumulant = method.partition("-")
    if method in ("bc", "cql"):
        return None, None
    if loss in names() and ("labels" in find(loss).needs) == bool(cumulant):
        return loss, cumulant or None
    raise UserError(f"unknown method {method!r}; choose one of {', '.join(method_names())}.")


def method_names() -> list[str]:
    """What users may ask for; a loss on labels has the cumulant's name behind its own."""
    by_labels = {name: "labels" in find(name).needs for name in names()}
    return ["bc", "cql", *(f"{name}-<cumulant>" if x else name for name, x in by_labels.items())]
