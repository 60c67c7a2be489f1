"""CTRL: short stretches of play that belong to nearby clusters predict each other.

Mazoure, Ahmed, Hjelm, Kolobov and MacAlpine (2021), "Cross-Trajectory Representation Learning for
Zero-Shot Generalization in RL". u = FC(concat_t (1 + g(a_t)) z_t + b(a_t)), v = projection(u),
w = predictor(v), prototypes c_k, all on the unit sphere:
    L = -E_i sum_k q_ik log softmax_k(w_i.c_k / tau) + E_i (2 - 2 cos(w_i, sg(v_j)))
q = Sinkhorn(v.c / tau) without gradient; j is a stretch from one of the clusters nearest to i's.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from gsf.config import require_positive
from gsf.dataset import Batch, Dataset
from gsf.equations import cosine_distance
from gsf.losses import AuxiliaryLoss, Context, Info, Spec
from gsf.nets import Z_DIM, Projection


def sinkhorn(logits: Tensor, n_iterations: int) -> Tensor:
    """exp(logits) rescaled to equal sums of columns and rows of sum 1.  [n,C] -> [n,C].

    Clusters share the rows equally, so that they cannot all be one.
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


class CTRL(AuxiliaryLoss):
    name = "ctrl"
    queue: Tensor  # [n_queue,256], v of earlier stretches, the newest first
    n_queued: Tensor

    @dataclass(frozen=True)
    class Config:
        length: int = 10
        """T: consecutive steps of an episode that make one stretch."""
        n_windows: int | None = None
        """Stretches in a step. Default: batch / length, to encode about as much as a batch."""
        n_prototypes: int = 200
        """Clusters."""
        tau: float = 0.1
        """Temperature of the clusters' softmax and of Sinkhorn."""
        n_iterations: int = 3
        """Sinkhorn's rounds."""
        n_nearest: int = 1
        """Clusters next to a stretch's own that its neighbour may come from."""
        neighbour_weight: float = 1.0
        """Weight of predicting the neighbour."""
        n_queue: int = 1000
        """Earlier stretches, without gradient, that clusters are balanced over and neighbours are
        found among: a step alone has fewer stretches than there are clusters. 0: none."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        require_positive(config, "length", "n_windows", "n_prototypes", "tau", "n_nearest")
        self.config, self.spec = config, spec
        self.film = Projection(spec.n_actions, 2 * spec.z_dim)
        self.stretch = nn.Linear(config.length * spec.z_dim, Z_DIM)
        self.projection = Projection(Z_DIM, Z_DIM)
        self.predictor = Projection(Z_DIM, Z_DIM)
        self.prototypes = nn.Linear(Z_DIM, config.n_prototypes, bias=False)
        self.register_buffer("queue", torch.zeros(config.n_queue, Z_DIM))
        self.register_buffer("n_queued", torch.tensor(0))
        self.latest: Tensor | None = None

    def draw(self, dataset: Dataset, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        n = self.config.n_windows or max(2, len(batch.index) // self.config.length)
        windows = dataset.windows(n, self.config.length, rng)
        uniform = torch.from_numpy(rng.random((n, 2), dtype=np.float32))
        return {"obs": windows.obs, "action": windows.action, "uniform": uniform}

    def forward(self, context: Context) -> tuple[Tensor, Info]:
        config, obs = self.config, context.drawn["obs"]  # [n,T,H,W,C]
        z = context.encoder(context.crop(obs.flatten(0, 1))).unflatten(0, obs.shape[:2])  # [n,T,z]
        v, w = self.views(z, context.drawn["action"])
        prototypes = normalize(self.prototypes.weight, dim=1)  # [C,256]
        all_v, q = self.targets(v, prototypes)
        log_p = (w @ prototypes.T / config.tau).log_softmax(1)
        cluster = -(q[: len(v)] * log_p).sum(1).mean()

        of_all = q.argmax(1)
        n_occupied = len(torch.unique(of_all))
        neighbour = w.new_zeros(())
        if n_occupied > 1:
            uniform = context.drawn["uniform"]
            own = of_all[: len(v)]
            j = draw_neighbour(own, of_all, prototypes.detach(), config.n_nearest, uniform)
            neighbour = (2 + 2 * cosine_distance(w, all_v[j])).mean()
        self.latest = v.detach()
        info: Info = {"cluster": cluster.detach(), "neighbour": neighbour.detach()}
        info["occupied"] = n_occupied / config.n_prototypes
        return cluster + config.neighbour_weight * neighbour, info

    def views(self, z: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """z [n,T,z_dim], action [n,T] -> v and w, unit vectors [n,256]."""
        one_hot = nn.functional.one_hot(action, self.spec.n_actions).to(z.dtype)
        scale, shift = self.film(one_hot).chunk(2, -1)  # [n,T,z_dim] each
        v = self.projection(self.stretch(((1 + scale) * z + shift).flatten(1)))
        return normalize(v, dim=1), normalize(self.predictor(v), dim=1)

    @torch.no_grad()
    def targets(self, v: Tensor, prototypes: Tensor) -> tuple[Tensor, Tensor]:
        """v of this step's stretches, then of the queue's [N,256], and their clusters q [N,C]."""
        all_v = torch.cat([v, self.queue[: int(self.n_queued)]])
        return all_v, sinkhorn(all_v @ prototypes.T / self.config.tau, self.config.n_iterations)

    def after_step(self) -> None:
        if self.latest is not None:
            n = min(int(self.n_queued) + len(self.latest), len(self.queue))
            self.queue.copy_(torch.cat([self.latest, self.queue])[: len(self.queue)])
            self.n_queued.fill_(n)
            self.latest = None
