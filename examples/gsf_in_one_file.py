"""GSF in one file of torch and NumPy: labels, CQL, GSF's loss, training. It needs no gsf.

    python examples/gsf_in_one_file.py dataset --grad-steps 1000 --out weights.pt

In: a dataset of `gsf materialise` or `gsf data import`, read as the plain arrays that it is. Row i
of every <column>.npy is a transition: its observation is obs.npy[frame[i]], its next one, if
has_next[i], obs.npy[frame[i] + 1]; rows of an episode follow each other. Out: weights.
A test trains this file and `gsf train --method gsf-reward` from one seed: the weights are the same.
"""

import argparse
import copy
import itertools
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

Z_DIM = 256
REWARD_GAMMA, REWARD_CLIP = 0.99, 10.0  # rewards are divided by the spread of their discounted sums


@dataclass
class Args:
    dataset: Path
    out: Path = Path("weights.pt")
    grad_steps: int = 1_000
    batch: int = 64
    seed: int = 0
    gamma: float = 0.99  # discount, of labels and of values
    n_bins: int = 7  # of labels, in each level
    tau: float = 0.5  # temperature of GSF's softmax
    alpha: float = 1.0  # weight of CQL's conservative term
    lr: float = 3e-4
    target_rate: float = 0.005  # of the way to the online networks, by every step
    pad: int = 2  # pixels that a random crop may move an image by


# Data


class Data:
    """The columns of a dataset; its images stay on disk."""

    def __init__(self, path: Path) -> None:
        manifest = json.loads((path / "manifest.json").read_text())
        self.n_actions, self.obs_shape = manifest["n_actions"], tuple(manifest["obs_shape"])
        self.obs = np.load(path / "obs.npy", mmap_mode="r")  # uint8 [frames,H,W,C]
        self.frame = np.load(path / "frame.npy")
        self.action = np.load(path / "action.npy").astype(np.int64)
        self.reward = np.load(path / "reward.npy")
        self.level = np.load(path / "level.npy")
        self.terminated = np.load(path / "terminated.npy")
        self.has_next = np.load(path / "has_next.npy")
        episode = np.load(path / "episode.npy")
        self.last = np.append(episode[1:] != episode[:-1], True)  # of its episode


def random_crop(obs: np.ndarray, rng: np.random.Generator, pad: int) -> torch.Tensor:
    """Mirrors the border outwards, then cuts each image out at an own offset.  uint8 [n,H,W,C]."""
    n, height, width, _ = obs.shape
    top, left = rng.integers(2 * pad + 1, size=(2, n))
    padded = np.pad(obs, ((0, 0), (pad, pad), (pad, pad), (0, 0)), "symmetric")
    rows = top[:, None, None] + np.arange(height)[:, None]
    columns = left[:, None, None] + np.arange(width)
    return torch.from_numpy(padded[np.arange(n)[:, None, None], rows, columns])


# Labels: into which part of its level's ranking the future of an observation falls


def monte_carlo(reward: np.ndarray, last: np.ndarray, gamma: float) -> np.ndarray:
    """The GVF of reward along the log: G_t = r_t + gamma G_{t+1}, 0 after the last row.  [n]."""
    value, ahead = np.zeros(len(reward)), 0.0
    for t in reversed(range(len(reward))):
        value[t] = ahead = float(reward[t]) + (0.0 if last[t] else gamma * ahead)
    return value


def forget_what_was_cut(value: np.ndarray, data: Data, gamma: float) -> np.ndarray:
    """NaN near the end of an episode that was cut: what would have come weighs more than 5 %."""
    ends = np.flatnonzero(data.last)
    end = ends[np.searchsorted(ends, np.arange(len(value)))]  # last row of each row's episode
    horizon = math.ceil(math.log(0.05) / math.log(gamma))
    unknown = ~data.terminated[end] & (end + 1 - np.arange(len(value)) < horizon)
    return np.where(unknown, np.nan, value)


def quantile_labels(value: np.ndarray, level: np.ndarray, n_bins: int) -> np.ndarray:
    """floor(n_bins rank / n) among the n known values of a level; equal ones share a middle rank.

    -1, which no loss looks at, where the value is unknown or its level has only one.  [n] -> [n].
    """
    label = np.full(len(value), -1)
    for i in np.unique(level):
        rows = np.flatnonzero((level == i) & ~np.isnan(value))
        ranked = np.sort(value[rows])
        if len(rows) and ranked[0] < ranked[-1]:
            first = np.searchsorted(ranked, value[rows], "left")
            last = np.searchsorted(ranked, value[rows], "right") - 1
            label[rows] = (first + last) * n_bins // (2 * len(rows))
    return label


# Networks


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv2(self.conv1(x.relu()).relu())


class Encoder(nn.Module):
    """impala_small: IMPALA's network on blocks of 2 x 2 pixels. uint8 [n,H,W,C] -> z [n,256]."""

    def __init__(self, obs_shape: tuple[int, ...]) -> None:
        super().__init__()
        layers, c_in = [], 4 * obs_shape[2]
        for c_out in (16, 32, 32):
            pool = nn.MaxPool2d(3, stride=2, padding=1)
            layers += [nn.Conv2d(c_in, c_out, 3, padding=1), pool, Residual(c_out), Residual(c_out)]
            c_in = c_out
        self.convs = nn.Sequential(*layers)
        with torch.no_grad():
            n_flat = self.convs(self.image(torch.zeros(1, *obs_shape))).numel()
        self.fc = nn.Linear(n_flat, Z_DIM)
        self.to(memory_format=torch.channels_last)
        self.embed = nn.Sequential(
            nn.Linear(Z_DIM, Z_DIM), nn.Linear(Z_DIM, Z_DIM), nn.LayerNorm(Z_DIM), nn.Tanh()
        )

    @staticmethod
    def image(obs: torch.Tensor) -> torch.Tensor:
        """[n,H,W,C], 0..255 -> [n,4C,H/2,W/2], 0..1: the pixels of a block become channels."""
        n, height, width, channels = obs.shape
        blocks = obs.reshape(n, height // 2, 2, width // 2, 2, channels).permute(0, 2, 4, 5, 1, 3)
        image = blocks.reshape(n, 4 * channels, height // 2, width // 2)
        return image.to(torch.float32, memory_format=torch.channels_last) / 255

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        features = self.convs(self.image(obs)).relu().permute(0, 2, 3, 1).flatten(1)
        return self.embed(self.fc(features).relu())


def mlp(*sizes: int) -> nn.Sequential:
    """Linear layers of these sizes with ReLUs between them."""
    layers = []
    for n_in, n_out in itertools.pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Critics(nn.Module):
    """Two Q functions on z, of which the smaller one is believed."""

    def __init__(self, n_actions: int) -> None:
        super().__init__()
        self.q1, self.q2 = (mlp(Z_DIM, Z_DIM, Z_DIM, n_actions) for _ in range(2))

    def smaller(self, z: torch.Tensor) -> torch.Tensor:
        return torch.minimum(self.q1(z), self.q2(z))


# Losses


def cql_loss(
    q: torch.Tensor, action: torch.Tensor, y: torch.Tensor, known: torch.Tensor, alpha: float
) -> torch.Tensor:
    """E (Q(o,a) - y)^2, where y is known, + alpha E (LSE_a Q(o,.) - Q(o,a)) of all rows."""
    chosen = q.gather(1, action[:, None])[:, 0]
    td = ((chosen - torch.where(known, y, chosen)) ** 2).sum() / known.sum().clamp(min=1)
    return td + alpha * (q.logsumexp(1) - chosen).mean()


def gsf_loss(logits: torch.Tensor, label: torch.Tensor, tau: float) -> torch.Tensor:
    """-E log softmax(w^T h(z) / tau)_label, over rows that have a label."""
    nll = functional.cross_entropy(logits / tau, label, ignore_index=-1, reduction="sum")
    return nll / (label >= 0).sum().clamp(min=1)


# Training


@torch.no_grad()
def follow(target: nn.Module, online: nn.Module, rate: float) -> None:
    for old, new in zip(target.parameters(), online.parameters(), strict=True):
        old.lerp_(new, rate)


class Agent:
    def __init__(self, args: Args, data: Data, rng: np.random.Generator) -> None:
        self.args, self.data, self.rng = args, data, rng
        value = monte_carlo(data.reward, data.last, args.gamma)
        value = forget_what_was_cut(value, data, args.gamma).astype(np.float32)
        self.label = quantile_labels(value, data.level, args.n_bins)
        self.unit = float(monte_carlo(data.reward, data.last, REWARD_GAMMA).std()) or 1.0
        torch.manual_seed(int(rng.integers(2**63)))
        self.encoder = Encoder(data.obs_shape)
        self.q = Critics(data.n_actions)
        self.h = mlp(Z_DIM, Z_DIM, Z_DIM)
        self.w = nn.Linear(Z_DIM, args.n_bins, bias=False)
        self.target_encoder = copy.deepcopy(self.encoder).requires_grad_(False)
        self.target_q = copy.deepcopy(self.q).requires_grad_(False)
        trained = [p for net in (self.encoder, self.q, self.h, self.w) for p in net.parameters()]
        self.optimizer = torch.optim.Adam(trained, args.lr, fused=True)

    @torch.no_grad()
    def td_target(self, rows: np.ndarray, next_obs: torch.Tensor) -> torch.Tensor:
        """y = r + gamma (1 - terminated) Q~(o', a*), a* being what the online critics choose."""
        best = self.q.smaller(self.encoder(next_obs)).argmax(1, keepdim=True)
        next_q = self.target_q.smaller(self.target_encoder(next_obs)).gather(1, best)[:, 0]
        reward = torch.from_numpy(self.data.reward[rows]) / self.unit
        alive = ~torch.from_numpy(self.data.terminated[rows])
        return reward.clamp(-REWARD_CLIP, REWARD_CLIP) + self.args.gamma * (alive * next_q)

    def update(self, rows: np.ndarray) -> dict[str, float]:
        """One step on the transitions of these rows: both losses at once, one Adam."""
        args, data = self.args, self.data
        obs = random_crop(data.obs[data.frame[rows]], self.rng, args.pad)
        next_obs = data.obs[data.frame[rows] + data.has_next[rows]]
        action = torch.from_numpy(data.action[rows])
        known = torch.from_numpy(data.has_next[rows] | data.terminated[rows])
        y = self.td_target(rows, random_crop(next_obs, self.rng, args.pad))
        z = self.encoder(obs)
        critics = (self.q.q1(z), self.q.q2(z))
        cql = sum(cql_loss(q, action, y, known, args.alpha) for q in critics)
        gsf = gsf_loss(self.w(self.h(z)), torch.from_numpy(self.label[rows]), args.tau)
        self.optimizer.zero_grad()
        (cql + gsf).backward()
        self.optimizer.step()
        follow(self.target_encoder, self.encoder, args.target_rate)
        follow(self.target_q, self.q, args.target_rate)
        return {"cql": cql.item(), "gsf": gsf.item()}

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """The best action for every image, uint8 [n,H,W,C] -> [n]."""
        with torch.no_grad():
            return self.q.smaller(self.encoder(obs)).argmax(1)


def train(args: Args) -> Agent:
    data, rng = Data(args.dataset), np.random.default_rng(args.seed)
    agent = Agent(args, data, rng)
    draw = rng.spawn(1)[0]  # batches have a stream of their own
    started, sums = time.monotonic(), {"cql": 0.0, "gsf": 0.0}
    every = max(args.grad_steps // 20, 1)
    for step in range(1, args.grad_steps + 1):
        losses = agent.update(draw.integers(len(data.action), size=args.batch))
        sums = {name: sums[name] + x for name, x in losses.items()}
        if step % every == 0:
            shown = "  ".join(f"{name} {x / every:.3f}" for name, x in sums.items())
            print(f"step {step:6,}  {shown}  {time.monotonic() - started:.0f} s", flush=True)
            sums = dict.fromkeys(sums, 0.0)
    return agent


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("dataset", type=Path)
    for name, default in vars(Args(Path())).items():
        if name != "dataset":
            flag = "--" + name.replace("_", "-")
            parser.add_argument(
                flag, type=type(default) if name != "out" else Path, default=default
            )
    args = Args(**vars(parser.parse_args()))
    agent = train(args)
    torch.save({"encoder": agent.encoder.state_dict(), "q": agent.q.state_dict()}, args.out)
    print(f"weights are in {args.out}")


if __name__ == "__main__":
    main()
