"""CTRL: stretches of play fall into clusters, and a stretch predicts one of a nearby cluster.

Mazoure, Ahmed, Hjelm, Kolobov and MacAlpine (2021), "Cross-Trajectory Representation Learning for
Zero-Shot Generalization in RL". u = FC(concat_t (1 + g(a_t)) z_t + b(a_t)), v = projection(u),
w = predictor(v), v~ = v of EMA networks, prototypes c_k; all of v, w, c on the unit sphere:
    L = -E_i sum_k q_ik log softmax_k(w_i.c_k / tau) + E_i (2 - 2 cos(w_i, v~_j))
q = Sinkhorn(v~.c / epsilon) without gradient; j is a stretch of the cluster nearest to i's own,
which is argmax_k q_ik (`--ctrl.clusters nearest`: argmax_k v~_i.c_k, as in the authors' code).
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from gsf.core.options import BatchSize, Rate, Temperature, Weight, between
from gsf.data.dataset import Batch, Dataset
from gsf.equations import cosine_distance
from gsf.learn.losses import AuxiliaryLoss, Context, Info, Spec
from gsf.nets.heads import WIDTH, Projection
from gsf.nets.runtime import frozen_copy, update_target


def sinkhorn(logits: Tensor, n_iterations: int) -> Tensor:
    """exp(logits) rescaled to rows of sum 1 and columns of equal sums.  [n,C] -> [n,C].

    Clusters share the rows equally: they cannot all become one.
    """
    log_q = logits
    for _ in range(n_iterations):
        log_q = log_q - log_q.logsumexp(0, keepdim=True)
        log_q = log_q - log_q.logsumexp(1, keepdim=True)
    return log_q.exp()


def draw_neighbour(
    cluster: Tensor, of_all: Tensor, prototypes: Tensor, n_nearest: int, uniform: Tensor
) -> Tensor:
    """A random member of one of the nearest other clusters that have any.

    cluster [n] of the rows that ask, of_all [N] of the rows to choose from (those that ask among
    them, and not all of one cluster), unit prototypes [C,x], two random numbers in [0, 1) for each
    row that asks [n,2] -> index [n] into of_all.
    """
    occupied = torch.unique(of_all)
    nearness = prototypes[cluster] @ prototypes[occupied].T  # [n,C']
    nearness = nearness.masked_fill(cluster[:, None] == occupied, -torch.inf)
    n_nearest = min(n_nearest, len(occupied) - 1)
    nearest = occupied[nearness.topk(n_nearest, 1).indices]  # [n,n_nearest]
    which = (uniform[:, :1] * n_nearest).long()
    member = of_all == nearest.gather(1, which)  # [n,N]
    place = (uniform[:, 1] * member.sum(1)).long()
    index: Tensor = (member.cumsum(1) > place[:, None]).int().argmax(1)
    return index


class Stretch(nn.Module):
    """T steps of one episode -> v: z [n,T,z_dim] and action [n,T] -> [n,256]."""

    def __init__(self, spec: Spec, length: int) -> None:
        super().__init__()
        self.n_actions = spec.n_actions
        self.film = Projection(spec.n_actions, 2 * spec.z_dim)
        self.concat = nn.Linear(length * spec.z_dim, WIDTH)
        self.projection = Projection(WIDTH, WIDTH)

    def forward(self, z: Tensor, action: Tensor) -> Tensor:
        scale, shift = self.film(one_hot(action, self.n_actions).to(z.dtype)).chunk(2, -1)
        u = self.concat(((1 + scale) * z + shift).flatten(1))
        v: Tensor = self.projection(u)
        return v


class CTRL(AuxiliaryLoss):
    name = "ctrl"
    colour = "#93e08e"
    queue: Tensor  # [n_queue,256], v~ of earlier stretches, the newest first
    n_queued: Tensor

    @dataclass(frozen=True)
    class Config(AuxiliaryLoss.Config):
        length: Annotated[int, between(1, 10_000)] = 10
        """T: consecutive steps of an episode that make one stretch."""
        n_windows: BatchSize | None = None
        """Stretches in a step. Default: batch / length, so that a batch of frames is encoded."""
        n_prototypes: Annotated[int, between(1, 100_000)] = 200
        """Clusters."""
        tau: Temperature = 0.1
        """Temperature of the softmax over clusters."""
        epsilon: Temperature = 0.05
        """Temperature of Sinkhorn's targets, below tau: sharper than the predictions."""
        n_iterations: Annotated[int, between(1, 1000)] = 3
        """Sinkhorn's rounds."""
        clusters: Literal["sinkhorn", "nearest"] = "sinkhorn"
        """A stretch's own cluster, whose neighbours are asked for: as balanced by Sinkhorn, or the
        nearest prototype as in the authors' code, with which fewer clusters came into use."""
        n_nearest: Annotated[int, between(1, 100_000)] = 1
        """Clusters next to a stretch's own that its neighbour may come from."""
        neighbour_weight: Weight = 1.0
        """Weight of predicting the neighbour."""
        n_queue: Annotated[int, between(0, 10**6)] = 1000
        """Earlier stretches that clusters are balanced over and neighbours are found among: a step
        alone has fewer stretches than there are clusters. 0: none."""
        target_rate: Rate = 0.005
        """Each step the target heads move by this share towards the online ones."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        self.config = config
        # Deviation: the authors' code has epsilon = tau and no queue, but 2,000 stretches a step.
        self.stretch = Stretch(spec, config.length)
        self.target_stretch = frozen_copy(self.stretch)
        self.predictor = Projection(WIDTH, WIDTH)
        self.prototypes = nn.Linear(WIDTH, config.n_prototypes, bias=False)
        self.register_buffer("queue", torch.zeros(config.n_queue, WIDTH))
        self.register_buffer("n_queued", torch.tensor(0))
        self.latest: Tensor | None = None  # joins the queue after the step

    def draw(self, dataset: Dataset, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        n = self.config.n_windows or max(2, len(batch.index) // self.config.length)
        windows = dataset.windows(n, self.config.length, rng)
        uniform = torch.from_numpy(rng.random((n, 2), dtype=np.float32))
        return {"obs": windows.obs, "action": windows.action, "uniform": uniform}

    def forward(self, context: Context) -> tuple[Tensor, Info]:
        config, obs = self.config, context.drawn["obs"]  # [n,T,H,W,C]
        z = context.encoder(context.crop(obs.flatten(0, 1))).unflatten(0, obs.shape[:2])
        w = normalize(self.predictor(self.stretch(z, context.drawn["action"])), dim=1)  # [n,256]
        prototypes = normalize(self.prototypes.weight, dim=1)  # [C,256]
        all_v, q, of_all = self.targets(context, prototypes.detach())
        log_p = (w @ prototypes.T / config.tau).log_softmax(1)
        cluster = -(q[: len(w)] * log_p).sum(1).mean()

        n_occupied = len(torch.unique(of_all))
        neighbour = w.new_zeros(())
        if n_occupied > 1:
            own, uniform = of_all[: len(w)], context.drawn["uniform"]
            j = draw_neighbour(own, of_all, prototypes.detach(), config.n_nearest, uniform)
            neighbour = (2 + 2 * cosine_distance(w, all_v[j])).mean()
        loss = cluster + config.neighbour_weight * neighbour
        return loss, {
            "cluster": cluster.detach(),
            "neighbour": neighbour.detach(),
            "entropy": torch.special.entr(q[: len(w)]).sum(1).mean(),
            "occupied": n_occupied / config.n_prototypes,
        }

    @torch.no_grad()
    def targets(self, context: Context, prototypes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """v~ of this step's stretches, then of the queue's [N,256]; their q [N,C], clusters [N]."""
        obs = context.drawn["obs"]
        z = context.target_encoder(context.crop(obs.flatten(0, 1))).unflatten(0, obs.shape[:2])
        self.latest = normalize(self.target_stretch(z, context.drawn["action"]), dim=1)
        all_v = torch.cat([self.latest, self.queue[: int(self.n_queued)]])
        scores = all_v @ prototypes.T
        q = sinkhorn(scores / self.config.epsilon, self.config.n_iterations)
        # Deviation: see `clusters`.
        return all_v, q, (q if self.config.clusters == "sinkhorn" else scores).argmax(1)

    def after_step(self) -> None:
        update_target(self.target_stretch, self.stretch, self.config.target_rate)
        if self.latest is not None:
            n = min(int(self.n_queued) + len(self.latest), len(self.queue))
            self.queue.copy_(torch.cat([self.latest, self.queue])[: len(self.queue)])
            self.n_queued.fill_(n)
            self.latest = None
