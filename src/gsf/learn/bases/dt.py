"""DT: a causal transformer that reads returns to go, observations and actions, and tells actions.

Chen et al. (2021), "Decision Transformer: Reinforcement Learning via Sequence Modeling". K steps of
an episode are the sequence R_1, z_1, a_1, ..., R_K, z_K, a_K, and a_t is told behind z_t:
    L = -E log softmax(pi(R_1, z_1, a_1, ..., R_t, z_t))_{a_t}
R_t is what the episode earned from t on. It acts on the latest K steps of its own episode: R is
then what it asks for, a quantile of the logged returns, less what it has received.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gsf.core.errors import UserError
from gsf.core.options import Share, between
from gsf.equations import bc_loss, gvf_return
from gsf.learn.bases import Base, Context, Info, Past, Spec

if TYPE_CHECKING:
    from gsf.data.dataset import Batch, Dataset


class DT(Base):
    name = "dt"
    colour = "#0000c6"
    asked: Tensor  # R at an episode's start, known once data were seen
    tuning: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "quantile": ("0.9", "0.7"),
        "train.lr": ("3e-4", "1e-3"),
    }

    @dataclass(frozen=True)
    class Config:
        length: Annotated[int, between(1, 1000)] = 20
        """K: steps that it looks at, the present one among them."""
        width: Annotated[int, between(1, 4096)] = 128
        """Numbers that a token is made of."""
        layers: Annotated[int, between(1, 100)] = 3
        """Of the transformer."""
        heads: Annotated[int, between(1, 256)] = 4
        """Of attention; they divide `width`."""
        quantile: Share = 0.9
        """What the agent asks for: so high among the returns of the logged episodes."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        if config.width % config.heads:
            raise UserError(f"--dt.heads {config.heads} does not divide --dt.width {config.width}.")
        self.config, self.spec, self.memory = config, spec, config.length
        width = config.width
        self.of_to_go = nn.Linear(1, width)
        self.of_z = nn.Linear(spec.z_dim, width)
        self.of_action = nn.Embedding(spec.n_actions, width)
        self.of_place = nn.Parameter(0.02 * torch.randn(config.length, 1, width))
        # Deviation: no dropout, and places in the window alone, not in the episode.
        layer = nn.TransformerEncoderLayer(
            width, config.heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(
            layer, config.layers, nn.LayerNorm(width), enable_nested_tensor=False
        )
        self.pi = nn.Linear(width, spec.n_actions)
        self.register_buffer("asked", torch.zeros(()))

    def prepare(self, dataset: Dataset) -> None:
        reward = np.asarray(dataset.reward, np.float64) / self.spec.reward_scale
        to_go = gvf_return(reward, 1.0, dataset.rows_left == 1)
        self.to_go = torch.from_numpy(to_go.astype(np.float32))
        starts = [start for start, _ in dataset.episodes()]
        self.asked.fill_(float(np.quantile(to_go[starts], self.config.quantile)))

    def sample(
        self, dataset: Dataset, n: int, rng: np.random.Generator, n_levels: int | None
    ) -> Batch:
        """Windows of up to K steps that begin anywhere, until there are n transitions."""
        rows = np.arange(len(dataset))
        if n_levels is not None:
            levels = rng.permutation(np.unique(dataset.level))[:n_levels]
            rows = np.flatnonzero(np.isin(dataset.level, levels))
        ahead, taken = dataset.ahead(rows[rng.integers(len(rows), size=n)], self.config.length)
        return dataset.gather(ahead[taken][:n])

    def draw(self, dataset: Dataset, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """Which window each transition is in, and where: rows that follow each other are one."""
        index, steps = batch.index.numpy(), np.arange(len(batch.index))
        follows = (np.diff(index) == 1) & (dataset.rows_left[index[:-1]] > 1)
        begins = np.concatenate([[True], ~follows])
        place = (steps - np.maximum.accumulate(np.where(begins, steps, 0))) % self.config.length
        window = np.cumsum(place == 0) - 1
        return {
            "window": torch.from_numpy(window),
            "place": torch.from_numpy(place),
            "to_go": self.to_go[batch.index],
        }

    def forward(self, z: Tensor, context: Context) -> tuple[Tensor, Info]:
        window, place = context.drawn["window"], context.drawn["place"]
        n, length, action = int(window[-1]) + 1, int(place.max()) + 1, context.batch.action

        def laid_out(x: Tensor) -> Tensor:
            return x.new_zeros(n, length, *x.shape[1:]).index_put((window, place), x)

        to_go = laid_out(context.drawn["to_go"])
        logits = self.logits(to_go, laid_out(z), laid_out(action))[window, place]
        loss, info = bc_loss(logits, action)
        return loss, info

    def logits(self, to_go: Tensor, z: Tensor, action: Tensor) -> Tensor:
        """Of the action at every step, which sees no step behind it.  [n,T] -> [n,T,A]."""
        parts = [self.of_to_go(to_go[..., None].to(z.dtype)), self.of_z(z), self.of_action(action)]
        tokens = torch.stack(parts, 2) + self.of_place[: z.shape[1]]  # [n,T,3,width]
        ahead = torch.ones(2 * [3 * z.shape[1]], dtype=torch.bool, device=z.device).triu(1)
        x: Tensor = self.blocks(tokens.flatten(1, 2), mask=ahead)
        logits: Tensor = self.pi(x[:, 1::3])
        return logits

    def scores(self, z: Tensor) -> Tensor:
        """At the first step of an episode."""
        to_go, action = self.asked.expand(len(z), 1), torch.zeros(len(z), 1, dtype=torch.long)
        return self.logits(to_go, z[:, None], action.to(z.device))[:, 0]

    def scores_in(self, past: Past) -> Tensor:
        to_go = self.asked - past.received / self.spec.reward_scale
        steps = torch.arange(len(past.now), device=past.now.device)
        return self.logits(to_go, past.z, past.action)[steps, past.now]
