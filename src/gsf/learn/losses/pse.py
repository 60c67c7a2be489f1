"""PSE: observations of two levels attract each other if what is done from there on is the same.

Agarwal, Machado, Castro and Bellemare (2021), "Contrastive Behavioral Similarity Embeddings for
Generalization in RL". With d the policy similarity metric of two whole episodes, Gamma =
exp(-d / beta), s_ij = cos(h(z_i), h(z_j)) / tau and p = argmin_j d_ij:
    L = -E_i log( Gamma_ip e^{s_ip} / (Gamma_ip e^{s_ip} + sum_{j != p} (1 - Gamma_ij) e^{s_ij}) )
and the mean of that and of the same with the two episodes exchanged.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import normalize

from gsf.core.errors import UserError
from gsf.core.options import BatchSize, Rate, Temperature, above
from gsf.data.dataset import Batch, Dataset
from gsf.equations import policy_similarity_metric
from gsf.learn.losses import AuxiliaryLoss, Context, Info, Spec
from gsf.nets.heads import WIDTH, Projection

Array = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]


def action_distance(
    action_1: npt.ArrayLike, action_2: npt.ArrayLike, gamma: float, absorbing: bool = False
) -> Array:
    """The metric with c_ij = 1[a_i != a_j].  [T1], [T2] -> float32 [T1,T2]."""
    cost = (np.asarray(action_1)[:, None] != np.asarray(action_2)).astype(np.float32)
    if len(cost) > cost.shape[1]:  # the recursion is a loop over rows, and d of c^T is d^T
        return np.asarray(policy_similarity_metric(cost.T, gamma, absorbing)).T
    return np.asarray(policy_similarity_metric(cost, gamma, absorbing))


def choose_anchors(distance: Array, n: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """At most n rows and n columns, in time order; among the columns each row's nearest one."""
    n_rows, n_columns = distance.shape
    rows = np.sort(rng.choice(n_rows, min(n, n_rows), replace=False))
    nearest = np.unique(distance[rows].argmin(1))
    rest = np.setdiff1d(np.arange(n_columns), nearest)
    more = rng.choice(rest, min(n, n_columns) - len(nearest), replace=False)
    return rows, np.sort(np.concatenate([nearest, more]))


def coupled_contrast(cosine: Tensor, distance: Tensor, tau: float, beta: float) -> Tensor:
    """The loss above, of anchors i against columns j.  [n,m], [n,m] -> scalar."""
    log_gamma = -distance / beta
    log_rest = torch.log(-torch.expm1(log_gamma))  # -inf where d is 0: the same, not a negative
    nearest = distance.argmin(1, keepdim=True)
    weight = log_rest.scatter(1, nearest, log_gamma.gather(1, nearest))
    logits = cosine / tau + weight
    return (logits.logsumexp(1) - logits.gather(1, nearest)[:, 0]).mean()


def both_ways(cosine: Tensor, distance: Tensor, tau: float, beta: float) -> Tensor:
    """The mean over rows as anchors and columns as anchors.  [n,m], [n,m] -> scalar."""
    # Deviation: the authors sum both (jumping task) or toss a coin for one (DM Control).
    rows = coupled_contrast(cosine, distance, tau, beta)
    return (rows + coupled_contrast(cosine.T, distance.T, tau, beta)) / 2


class PSE(AuxiliaryLoss):
    name = "pse"
    colour = "#a240aa"

    @dataclass(frozen=True)
    class Config(AuxiliaryLoss.Config):
        n_anchors: BatchSize = 128
        """Observations encoded of each of the two episodes, at most (and half a batch)."""
        gamma: Rate = 0.99
        """Discount of the metric."""
        absorbing: bool = False
        """An episode that has ended does its last action for ever, as in the authors' jumping task;
        their other code, and GSF's authors', has no more to compare then."""
        beta: Annotated[float, above(0, 10**6)] = 0.1
        """Scale of the soft coupling exp(-d / beta)."""
        tau: Temperature = 0.5
        """Temperature of the softmax."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        if config.absorbing and config.gamma == 1:
            raise UserError("--pse.absorbing needs --pse.gamma below 1: for ever has no sum.")
        self.config = config
        self.h = Projection(spec.z_dim, WIDTH)
        self.listed: tuple[Dataset, Rows, Rows] | None = None

    def draw(self, dataset: Dataset, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        (start_1, stop_1), (start_2, stop_2) = self.pair(dataset, rng)
        first, second = dataset.action[start_1:stop_1], dataset.action[start_2:stop_2]
        distance = action_distance(first, second, self.config.gamma, self.config.absorbing)
        n = min(self.config.n_anchors, max(2, len(batch.index) // 2))
        rows, columns = choose_anchors(distance, n, rng)
        return {
            "obs": dataset.observations(np.concatenate([start_1 + rows, start_2 + columns])),
            "distance": torch.from_numpy(distance[np.ix_(rows, columns)]),
        }

    def pair(self, dataset: Dataset, rng: np.random.Generator) -> tuple[Rows, Rows]:
        """(start, stop) of two episodes of different levels."""
        if self.listed is None or self.listed[0] is not dataset:
            bounds = np.array(dataset.episodes())
            self.listed = dataset, bounds, np.asarray(dataset.level[bounds[:, 0]])
        _, bounds, level = self.listed
        first = rng.integers(len(bounds))
        others = np.flatnonzero(level != level[first])
        if not len(others):
            raise UserError(
                f"pse compares episodes of different levels, but {dataset.path} has only one level."
            )
        return bounds[first], bounds[rng.choice(others)]

    def forward(self, context: Context) -> tuple[Tensor, Info]:
        distance = context.drawn["distance"]  # [n,m]
        h = normalize(self.h(context.encoder(context.crop(context.drawn["obs"]))), dim=1)
        cosine = h[: len(distance)] @ h[len(distance) :].T
        loss = both_ways(cosine, distance, self.config.tau, self.config.beta)
        # -log Gamma_ip is in there, has no gradient and differs from pair to pair: without it the
        # loss can be watched.
        nearest = (distance.amin(1).mean() + distance.amin(0).mean()) / 2
        found = cosine.detach().argmax(1) == distance.argmin(1)
        return loss - nearest / self.config.beta, {
            "accuracy": found.float().mean(),
            "distance": nearest,
        }
