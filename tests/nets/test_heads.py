from collections.abc import Callable

import pytest
import torch
from torch import nn

from gsf.nets.heads import Critic, Projection, head, mlp


@pytest.mark.parametrize(
    ("make", "n_linear"),
    [(lambda: mlp(256, 5), 3), (lambda: Projection(256, 5), 2), (lambda: head(256, 5, "mlp"), 3)],
)
def test_heads_have_their_layers(make: Callable[[], nn.Module], n_linear: int) -> None:
    made = make()
    layers = [m for m in made.modules() if isinstance(m, nn.Linear)]
    assert [m.out_features for m in layers] == [256] * (n_linear - 1) + [5]
    assert sum(isinstance(m, nn.ReLU) for m in made.modules()) == n_linear - 1
    assert made(torch.zeros(2, 256)).shape == (2, 5)


def test_critics_are_two_and_differ() -> None:
    z = torch.randn(4, 256, generator=torch.Generator().manual_seed(0))
    q1, q2 = Critic(5)(z)
    assert q1.shape == q2.shape == (4, 5)
    assert not torch.allclose(q1, q2)


def test_linear_critic_is_theta_transposed_z() -> None:
    z = torch.randn(4, 256, generator=torch.Generator().manual_seed(0))
    critic = Critic(5, "linear")
    [theta1, theta2] = critic.parameters()
    torch.testing.assert_close(critic(z), (z @ theta1.T, z @ theta2.T))
