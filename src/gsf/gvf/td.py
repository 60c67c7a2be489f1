"""LearnGVF by temporal differences, all levels at once (paper: Algorithm 1 and appendix).

Own encoder f', layers 256-256, and one linear chunk per level, of which only the sample's own is
computed. A target adds up `n_steps` logged cumulants, then the target network's value of what
follows. PopArt keeps every level's and component's targets at the same scale. With `q` a chunk
holds one GVF per action (SARSA), else one. Used by the stage `gsf fit` (fit.py).
"""

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from gsf.core.errors import UserError
from gsf.core.logs import progress
from gsf.core.loop import Loop
from gsf.core.schema import LEVELS, POSITIVE, SHAPE, parse_json
from gsf.core.sealed import fitting, load_checkpoint
from gsf.data.dataset import Batch, Dataset
from gsf.equations import (
    ema,
    gvf_sum,
    gvf_target,
    popart_denormalise,
    popart_mean_std,
    popart_normalise,
    popart_rescale,
    popart_statistics,
)
from gsf.gvf.options import FitConfig
from gsf.nets import encoders
from gsf.nets.augment import random_crop
from gsf.nets.encoders import Architecture, Encoder
from gsf.nets.heads import WIDTH
from gsf.nets.runtime import keep_freed_memory, seeded

Array = npt.NDArray[Any]
VALUE_BATCH = 512
FIT = 2  # stream of random numbers, beside the seed


class LevelHead(nn.Module):
    """A linear map per level and slot (action, or 0): x [n,256] -> normalised GVF [n,d]."""

    def __init__(self, n_levels: int, n_slots: int, d: int, x_dim: int = WIDTH) -> None:
        super().__init__()
        # Zeros: a level's GVF starts at 0, and at its mean once PopArt has seen the level.
        self.weight = nn.Parameter(torch.zeros(n_levels, n_slots, d, x_dim))
        self.bias = nn.Parameter(torch.zeros(n_levels, n_slots, d))

    def forward(self, x: Tensor, level: Tensor, slot: Tensor) -> Tensor:
        n_slots, d, x_dim = self.weight.shape[1:]
        chunk = level * n_slots + slot
        # A lookup instead of all m * slots * d outputs, of which one chunk per row is wanted.
        weight = F.embedding(chunk, self.weight.view(-1, d * x_dim)).view(-1, d, x_dim)
        bias = F.embedding(chunk, self.bias.view(-1, d))
        return torch.baddbmm(bias[:, :, None], weight, x[:, :, None])[:, :, 0]

    @torch.no_grad()
    def rescale(self, old: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor]) -> None:
        """Old and new (mean, std), each [m,d], shared by the slots of a level."""
        statistics = [x[:, None].expand_as(self.bias).to(self.bias) for x in (*old, *new)]
        weight, bias = popart_rescale(self.weight, self.bias, *statistics)
        self.weight.copy_(weight)
        self.bias.copy_(bias)


class PopArt(nn.Module):
    """Running mean and standard deviation of the targets, per level and component."""

    mean: Tensor
    mean_sq: Tensor
    debias: Tensor

    def __init__(self, n_levels: int, d: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_levels, d, dtype=torch.float64))
        self.register_buffer("mean_sq", torch.zeros(n_levels, d, dtype=torch.float64))
        self.register_buffer("debias", torch.zeros(n_levels, dtype=torch.float64))

    def mean_std(self) -> tuple[Tensor, Tensor]:
        mean, std = popart_mean_std(self.mean, self.mean_sq, self.debias)
        return mean, std

    @torch.no_grad()
    def update(self, y: Tensor, level: Tensor, *heads: LevelHead) -> None:
        """Targets y [n,d] move their levels' statistics; the heads' outputs stay what they were."""
        unseen = (self.debias == 0)[:, None]
        old = self.mean_std()
        self.mean, self.mean_sq, self.debias = popart_statistics(
            self.mean, self.mean_sq, self.debias, y, level
        )
        new = self.mean_std()
        # Deviation: a level's first statistics move its (arbitrary) first outputs with them. One
        # sample has sigma = 1e-4: kept, those outputs would weigh 10,000 times any later error.
        kept = [torch.where(unseen, after, before) for before, after in zip(old, new, strict=True)]
        for head in heads:
            head.rescale((kept[0], kept[1]), new)

    def normalise(self, y: Tensor, level: Tensor) -> Tensor:
        mean, std = self.mean_std()
        normalised: Tensor = popart_normalise(y, mean[level], std[level]).float()
        return normalised

    def denormalise(self, y: Tensor, level: Tensor) -> Tensor:
        mean, std = self.mean_std()
        value: Tensor = popart_denormalise(y, mean[level], std[level])
        return value


class GVFNet(nn.Module):
    """obs [n,H,W,C], level [n], slot [n] -> normalised G of that level [n,d]."""

    def __init__(
        self, obs_shape: tuple[int, ...], kind: Architecture, n_levels: int, n_slots: int, d: int
    ) -> None:
        super().__init__()
        self.encoder = Encoder(obs_shape, kind)
        self.hidden = nn.Sequential(
            nn.Linear(self.encoder.z_dim, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()
        )
        self.head = LevelHead(n_levels, n_slots, d)

    def forward(self, obs: Tensor, level: Tensor, slot: Tensor) -> Tensor:
        normalised: Tensor = self.head(self.hidden(self.encoder(obs)), level, slot)
        return normalised


class TDLearner:
    """Online and target network, PopArt and optimiser: everything that a checkpoint holds."""

    def __init__(self, shape: dict[str, Any], seed: int, lr: float, device: str = "cpu") -> None:
        self.shape = shape
        self.rng = np.random.default_rng([seed, FIT])  # not the stream of an agent of this seed
        with seeded(self.rng):
            self.online = GVFNet(
                tuple(shape["obs_shape"]),
                encoders.find_again(shape["encoder"], shape.get("code")).value,
                len(shape["levels"]),
                shape["n_slots"],
                shape["d"],
            ).to(device)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.popart = PopArt(len(shape["levels"]), shape["d"]).to(device)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr)
        self.device = device

    def update(
        self,
        batch: Batch,
        cumulant: Tensor,
        slot: Tensor,
        next_slot: Tensor,
        *,
        gamma: float | Tensor,
        rate: float,
    ) -> dict[str, Tensor]:
        level = batch.level
        with torch.no_grad():
            next_value = self.popart.denormalise(
                self.target(batch.next_obs, level, next_slot), level
            )
            y = gvf_target(cumulant, next_value, batch.terminated, gamma)
            self.popart.update(y, level, self.online.head, self.target.head)
        prediction = self.online(random_crop(batch.obs, self.rng), level, slot)
        loss = F.mse_loss(prediction, self.popart.normalise(y, level))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.online.parameters(), strict=True):
                old.copy_(ema(old, new, rate))
        return {"gvf/loss": loss.detach(), "gvf/target": y.mean()}

    @torch.no_grad()
    def values(self, dataset: Dataset, rows: Array, level: Array) -> Array:
        """G of uncropped observations, float32 [n,slots,d]; NaN for levels never trained on."""
        value = np.empty((len(rows), self.shape["n_slots"], self.shape["d"]), np.float32)
        with progress("values", len(rows), "transitions") as advance:
            for start in range(0, len(rows), VALUE_BATCH):
                part = slice(start, start + VALUE_BATCH)
                obs = dataset.observations(rows[part]).to(self.device)
                x = self.online.hidden(self.online.encoder(obs))
                own = torch.as_tensor(level[part], device=self.device)
                for slot in range(value.shape[1]):
                    out = self.online.head(x, own, torch.full_like(own, slot))
                    value[part, slot] = self.popart.denormalise(out, own).cpu().numpy()
                advance(start + len(own))
        value[(self.popart.debias == 0).cpu().numpy()[level]] = np.nan
        return value

    def state(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "online": self.online.state_dict(),
            "target": self.target.state_dict(),
            "popart": self.popart.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rng": json.dumps(self.rng.bit_generator.state),
        }

    def load(self, state: dict[str, Any]) -> None:
        for name in ("online", "target", "popart", "optimizer"):
            getattr(self, name).load_state_dict(state[name])
        self.rng.bit_generator.state = parse_json(state["rng"])


CHECKPOINT = {
    "shape": {
        "obs_shape": SHAPE,
        "encoder": str,
        "levels": LEVELS,
        "n_slots": POSITIVE,
        "d": POSITIVE,
    },
    **dict.fromkeys(("online", "target", "popart", "optimizer"), dict),
    "rng": str,
    "step": POSITIVE,
}


def load_learner(fit: Path, device: str = "cpu") -> TDLearner:
    """The networks of a finished TD fit."""
    path = fit / "checkpoint.pt"
    state = load_checkpoint(path, CHECKPOINT)
    with fitting(path):
        learner = TDLearner(state["shape"], seed=0, lr=0.0, device=device)
        learner.load(state)
    return learner


def next_rows(dataset: Dataset) -> Array:
    """Row of the next transition in the same episode, -1 where there is none.  int64 [n]."""
    n = len(dataset)
    following = np.full(n, -1, np.int64)
    same = np.asarray(dataset.episode[1:] == dataset.episode[:-1])
    same &= np.asarray(dataset.has_next[:-1])
    following[:-1][same] = np.flatnonzero(same) + 1
    return following


def usable_rows(dataset: Dataset, q: bool) -> Array:
    """Rows with a TD target: terminated ones, and those whose next observation is there.

    SARSA also needs the next action: the last row before an imported final frame has none.
    """
    usable = np.asarray(dataset.has_next) & ((next_rows(dataset) >= 0) | (not q))
    return np.flatnonzero(usable | np.asarray(dataset.terminated))


class Ahead:
    """What a row's target adds up: its next `n` logged steps, or fewer to an end or a cut."""

    def __init__(self, dataset: Dataset, cumulants: Array, n: int, q: bool) -> None:
        self._dataset, self._cumulants, self._n = dataset, cumulants, n
        self.following = next_rows(dataset)
        self.rows = usable_rows(dataset, q)
        if not len(self.rows):
            raise UserError(f"{dataset.path} has no transition with a next observation or an end.")
        at_end = np.append(self.following[self.rows[:-1]] != self.rows[1:], True)
        ends = np.flatnonzero(at_end)
        self._last = np.zeros(len(dataset), np.int64)  # with a target, in the same episode
        self._last[self.rows] = np.repeat(self.rows[ends], np.diff(ends, prepend=-1))

    def batch(self, rows: Array, gamma: float) -> tuple[Batch, Tensor, Tensor, Array]:
        """The rows' batch, whose next observation is the one after the last step added up; the
        sum [n,d]; the discount of what follows [n,1]; and the rows of the last steps."""
        last = np.minimum(rows + self._n - 1, self._last[rows])
        step = rows[:, None] + np.arange(self._n)
        taken = step <= last[:, None]
        total = gvf_sum(self._cumulants[np.where(taken, step, rows[:, None])], taken, gamma)
        batch = self._dataset.gather(rows)
        if self._n > 1:
            then = self._dataset.gather(last)
            batch = dataclasses.replace(
                batch,
                next_obs=then.next_obs,
                has_next=then.has_next,
                terminated=then.terminated,
                truncated=then.truncated,
            )
        discount = torch.as_tensor(gamma ** (last - rows + 1.0))[:, None]
        return batch, torch.as_tensor(total), discount, last


def learn(dataset: Dataset, cumulants: Array, config: "FitConfig", out: Path) -> TDLearner:
    """Trains for `config.grad_steps`, from the checkpoint in `out` if there is one."""
    q = config.q and cumulants.shape[1] == 1
    shape = {
        "obs_shape": list(dataset.obs_shape),
        "encoder": config.encoder,
        "code": encoders.find(config.encoder).code,
        "levels": list(dataset.levels),
        "n_slots": dataset.n_actions if q else 1,
        "d": cumulants.shape[1],
    }
    keep_freed_memory()
    learner = TDLearner(shape, config.seed, config.lr, config.device)
    for net in (learner.online, learner.target):
        net.encoder.trunk.bf16 = config.precision == "bf16"
    ahead = Ahead(dataset, cumulants, config.n_steps, q)
    slot_of = dataset.action.astype(np.int64) if q else np.zeros(len(dataset), np.int64)

    def step() -> dict[str, Tensor]:
        rows = ahead.rows[learner.rng.integers(len(ahead.rows), size=config.batch)]
        batch, total, discount, final = ahead.batch(rows, config.gamma)
        slots = slot_of[rows], slot_of[ahead.following[final]]  # -1: no next action is needed
        return learner.update(
            batch.to(config.device),
            total.to(config.device),
            *(torch.as_tensor(x, device=config.device) for x in slots),
            gamma=discount.to(config.device),
            rate=config.target_rate,
        )

    Loop(
        out=out,
        name="fit",
        of=config.cumulant,
        total=("fit", "grad_steps", config.grad_steps),
        step=step,
        state=learner.state,
        load=learner.load,
        modules=[learner.online],
        read=lambda path: load_checkpoint(path, CHECKPOINT),
        save_every=config.checkpoint_every,
        advice="Try a lower --lr or --gamma in another --out.",
    ).run()
    return learner
