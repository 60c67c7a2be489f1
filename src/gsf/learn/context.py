"""What bases and auxiliary losses are built from (`Spec`) and see in one update (`Context`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gsf.nets.encoders import Architecture, Encoder
from gsf.nets.heads import HeadKind

if TYPE_CHECKING:  # acting needs neither data nor labels
    from gsf.data.dataset import Batch
    from gsf.gvf.training_labels import Labels
    from gsf.learn.bases import Base

Info = dict[str, Tensor | float]
Optimize = Callable[[Iterable[nn.Parameter], float], Optimizer]  # of parameters, by a rate
REWARD_CLIP = 10.0  # after scaling


@dataclass(frozen=True)
class Spec:
    """What heads may be built from."""

    obs_shape: tuple[int, ...]
    n_actions: int
    n_levels: int
    gamma: float = 0.99
    z_dim: int = 256  # as the encoder has it
    head: HeadKind = "mlp"
    encoder: str | Architecture = "impala"  # for a base that has more than one
    labels: Labels | None = None  # for a loss that needs them
    reward_scale: float = 1.0  # spread of the dataset's returns: the unit of reward

    def scaled(self, reward: Tensor) -> Tensor:
        """Raw rewards as TD learns from them."""
        return (reward / self.reward_scale).clamp(-REWARD_CLIP, REWARD_CLIP)


@dataclass(frozen=True)
class Past:
    """What n agents have seen, done and received in their episodes, T steps; none counts that lies
    behind `now`."""

    z: Tensor  # [n,T,z_dim]
    action: Tensor  # [n,T], not known yet at `now`
    received: Tensor  # [n,T], rewards of the episode before the step
    now: Tensor  # [n], which step is the present one

    def map(self, change: Callable[[Tensor], Tensor]) -> Past:
        return Past(*map(change, (self.z, self.action, self.received, self.now)))


@dataclass
class Context:
    """What may be looked at in one update; everything lies on the learner's device."""

    batch: Batch  # as logged, observations not cropped
    obs: Tensor  # batch.obs, cropped
    z: Tensor  # encoder(obs) with its gradient
    drawn: Mapping[str, Tensor]  # what the own `draw` of the base or loss that looks returned
    base: Base
    encoder: Encoder
    target_encoder: Encoder  # EMA, takes no gradient
    crop: Callable[[Tensor], Tensor]  # random crop of [n,H,W,C], from the run's rng

    @cached_property
    def scores(self) -> Tensor:
        """What the base would choose actions by at z, without gradient.  [n,A]."""
        with torch.no_grad():
            return self.base.scores(self.z)

    @cached_property
    def target_z(self) -> Tensor:
        with torch.no_grad():
            z: Tensor = self.target_encoder(self.obs)
        return z

    @cached_property
    def next_obs(self) -> Tensor:
        """batch.next_obs, cropped; means nothing where has_next is False."""
        return self.crop(self.batch.next_obs)

    @cached_property
    def next_z(self) -> Tensor:
        """encoder(next_obs) without gradient; a base that learns values has computed it already."""
        with torch.no_grad():
            z: Tensor = self.encoder(self.next_obs)
        return z

    @cached_property
    def target_next_z(self) -> Tensor:
        with torch.no_grad():
            z: Tensor = self.target_encoder(self.next_obs)
        return z
