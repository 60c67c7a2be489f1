"""A linear probe: what can be told of labels from features by a linear map alone."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[Any]


class LinearProbe(nn.Module):
    """Labels from standardised features, [n,x] -> [n]."""

    def __init__(self, z: Tensor, n_bins: int) -> None:
        super().__init__()
        self.mean, self.std = z.mean(0), z.std(0) + 1e-6
        self.linear = nn.Linear(z.shape[1], n_bins)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def scaled(self, z: Tensor) -> Tensor:
        return (z - self.mean) / self.std

    def forward(self, z: Tensor) -> Tensor:
        label: Tensor = self.linear(self.scaled(z)).argmax(1)
        return label


def fit_probe(z: Array, label: Array, n_bins: int, decay: float = 1e-2) -> LinearProbe:
    """Multinomial logistic regression with an L2 penalty, by L-BFGS from zero: no randomness.

    z float32 [n,x], label int64 [n].
    """
    x, y = torch.from_numpy(z), torch.from_numpy(label)
    probe = LinearProbe(x, n_bins)
    x = probe.scaled(x)
    optimizer = torch.optim.LBFGS(probe.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        penalty = decay / 2 * probe.linear.weight.square().sum()
        total = nn.functional.cross_entropy(probe.linear(x), y) + penalty
        torch.autograd.backward(total)
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return probe.requires_grad_(False)
