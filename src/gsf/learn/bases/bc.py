"""BC: behaviour cloning, the logged action is the label of its observation.

L = -E log softmax(pi(z))_a
"""

from dataclasses import dataclass

from torch import Tensor

from gsf.equations import bc_loss
from gsf.learn.bases import Base, Context, Info, Spec
from gsf.nets.heads import head


class BC(Base):
    name = "bc"
    colour = "#36aae8"

    @dataclass(frozen=True)
    class Config:
        pass

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        self.pi = head(spec.z_dim, spec.n_actions, spec.head)

    def forward(self, z: Tensor, context: Context) -> tuple[Tensor, Info]:
        loss, info = bc_loss(self.pi(z), context.batch.action)
        return loss, info

    def scores(self, z: Tensor) -> Tensor:
        logits: Tensor = self.pi(z)
        return logits
