"""BC: behaviour cloning, the logged action is the label of its observation.

L = -E log softmax(pi(z))_a

With a `teacher`, a trained run, its policy is the label instead: distillation of what it has learnt
into a fresh network (Hinton et al. 2015).  L = -E sum_a p(a | o) log softmax(pi(z))_a, p at the
teacher's own temperature.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gsf.core.errors import UserError
from gsf.equations import bc_loss
from gsf.learn.bases import Base, Context, Info, Spec
from gsf.nets.acting import tempered
from gsf.nets.heads import head

if TYPE_CHECKING:
    from gsf.data.dataset import Dataset
    from gsf.learn.agent import Agent


class BC(Base):
    name = "bc"
    colour = "#36aae8"
    _teacher: Agent | None = None

    @dataclass(frozen=True)
    class Config:
        teacher: str | None = None
        """A run whose policy is imitated on the logged observations, not the logged actions."""

    def __init__(self, config: Any, spec: Spec) -> None:
        super().__init__(config, spec)
        self.config = config
        self.pi = head(spec.z_dim, spec.n_actions, spec.head)

    def prepare(self, dataset: Dataset) -> None:
        if self.config.teacher is not None:
            self._teacher = _load(self.config.teacher, dataset)

    def forward(self, z: Tensor, context: Context) -> tuple[Tensor, Info]:
        logits = self.pi(z)
        if self._teacher is None:
            return bc_loss(logits, context.batch.action)
        policy = tempered(
            self._teacher.scores(context.batch.obs.cpu().numpy()), self._teacher.temperature
        )
        wanted = torch.from_numpy(policy).to(logits)
        same = logits.argmax(1) == wanted.argmax(1)
        return nn.functional.cross_entropy(logits, wanted), {"agreement": same.float().mean()}

    def scores(self, z: Tensor) -> Tensor:
        logits: Tensor = self.pi(z)
        return logits


def _load(run: str, dataset: Dataset) -> Agent:
    """The teacher, which has to see and to do what the data has."""
    from gsf.learn.agent import load_agent  # late: agents are made of bases

    if not (Path(run) / "manifest.json").is_file():
        raise UserError(
            f"--bc.teacher {run}: there is no run; name the directory of a `gsf train`."
        )
    teacher = load_agent(run)
    actions = dataset.manifest.get("actions")
    of_data = dataset.obs_shape, dataset.n_actions, None if actions is None else tuple(actions)
    if (teacher.obs_shape, teacher.n_actions, teacher.actions) != of_data:
        raise UserError(f"--bc.teacher {run}: it sees other images or has other actions.")
    if teacher.base.memory:
        raise UserError(f"--bc.teacher {run}: it acts by its memory of an episode; name another.")
    return teacher
