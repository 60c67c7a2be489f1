"""Heads on z: what bases and auxiliary losses put there (the paper's appendix on architecture)."""

from typing import Literal

from torch import Tensor, nn

WIDTH = 256  # of their layers
HeadKind = Literal["mlp", "linear"]


class Projection(nn.Sequential):
    """FC256-ReLU-FC: what the auxiliary losses put on z."""

    def __init__(self, z_dim: int, out: int) -> None:
        super().__init__(nn.Linear(z_dim, WIDTH), nn.ReLU(inplace=True), nn.Linear(WIDTH, out))


def mlp(z_dim: int, out: int) -> nn.Sequential:
    """Layers of 256, 256 and `out`: what the paper puts on z for values and actions."""
    return nn.Sequential(nn.Linear(z_dim, WIDTH), nn.ReLU(inplace=True), Projection(WIDTH, out))


def head(z_dim: int, out: int, kind: HeadKind) -> nn.Module:
    """What a base puts on z; `linear` is the paper's text, theta_a^T z: no bias."""
    return mlp(z_dim, out) if kind == "mlp" else nn.Linear(z_dim, out, bias=False)


class Critic(nn.Module):
    """Twin critics: z -> (q1, q2), each [n,A]."""

    def __init__(self, n_actions: int, kind: HeadKind = "mlp", z_dim: int = 256) -> None:
        super().__init__()
        self.q1 = head(z_dim, n_actions, kind)
        self.q2 = head(z_dim, n_actions, kind)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return self.q1(z), self.q2(z)
