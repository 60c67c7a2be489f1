"""PPO, the behaviour policy: formulas, network, and one iteration of play and learning.

The published Procgen settings (the paper's appendix on data collection). In: a vector env and a
`PPOConfig`. Out: a `PPO` whose `state_dict` is all it takes to go on bit for bit elsewhere.
"""

import json
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gsf.behaviour.options import PPOConfig as PPOConfig
from gsf.core.logs import console
from gsf.core.schema import parse_json
from gsf.nets import acting, encoders
from gsf.nets.encoders import Architecture, ConvTrunk
from gsf.nets.runtime import pick_device, seeded
from gsf.suites import ReplayableEnv

CPU_CHUNK = 256  # on a CPU larger activations fall out of the cache and are mapped anew each time
N_RECENT = 100  # episodes in the return that is shown
SETTLED = 2  # episodes of each env after which those that end are no longer the short ones


def gae(
    reward: Tensor, value: Tensor, ended: Tensor, last_value: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """A_t = delta_t + gamma lam (1 - d_t) A_{t+1},  delta_t = r_t + gamma (1 - d_t) V_{t+1} - V_t.

    reward, value, ended [T,n] (ended: this step was its episode's last), last_value [n] of the
    observation after the last step -> advantage, returns = A + V, both [T,n].
    """
    alive = 1.0 - ended.to(value)
    next_value = torch.cat([value[1:], last_value[None]])
    delta = reward + gamma * alive * next_value - value
    carry = gamma * lam * alive
    advantage = torch.empty_like(value)
    ahead = torch.zeros_like(last_value)
    for t in reversed(range(len(value))):
        advantage[t] = ahead = delta[t] + carry[t] * ahead
    return advantage, advantage + value


def policy_loss(
    log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """-E[min(rho A, clip(rho, 1 - c, 1 + c) A)],  rho = pi(a|o) / pi_old(a|o).  All [n]."""
    log_ratio = log_prob - old_log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
    with torch.no_grad():
        kl = (ratio - 1 - log_ratio).mean()  # unbiased for KL(old || new), and never negative
        info = {"kl": kl, "clip_fraction": ((ratio - 1).abs() > clip).float().mean()}
    return loss, info


def value_loss(value: Tensor, old_value: Tensor, returns: Tensor, clip: float) -> Tensor:
    """1/2 E[max((V - R)^2, (V_clip - R)^2)],  V_clip = V_old + clip(V - V_old, -c, c).  All [n]."""
    clipped = old_value + (value - old_value).clamp(-clip, clip)
    return 0.5 * torch.maximum((value - returns) ** 2, (clipped - returns) ** 2).mean()


def entropy(logits: Tensor) -> Tensor:
    """H = -sum_a pi(a) log pi(a), mean over all rows.  logits [..., A] -> scalar."""
    log_probs = logits.log_softmax(-1)
    return -(log_probs.exp() * log_probs).sum(-1).mean()


def sample(logits: Tensor, rng: np.random.Generator) -> NDArray[np.int64]:
    """An action of each row, a ~ softmax(logits).  [n,A] -> [n]."""
    return acting.sample(logits.cpu().double().softmax(1).numpy(), rng.random(len(logits)))


class RewardScaler:
    """r / std(G), clipped, where G_t = gamma G_{t-1} + r_t runs along each env's episodes."""

    def __init__(self, n_envs: int, gamma: float, clip: float) -> None:
        self._gamma, self._clip = gamma, clip
        self._ret = np.zeros(n_envs)
        self._mean, self._var, self._count = 0.0, 1.0, 1e-4

    def __call__(
        self, reward: NDArray[np.float32], ended: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        self._ret = self._gamma * self._ret + reward
        self._see(self._ret)
        self._ret[ended] = 0.0
        scaled = reward / np.sqrt(self._var + 1e-8)
        clipped: NDArray[np.float32] = scaled.clip(-self._clip, self._clip).astype(np.float32)
        return clipped

    def _see(self, values: NDArray[np.float64]) -> None:
        """Mean and variance of everything seen so far, values included."""
        n, mean, var = len(values), float(values.mean()), float(values.var())
        total, apart = self._count + n, mean - self._mean
        square = self._var * self._count + var * n + apart**2 * self._count * n / total
        self._mean += apart * n / total
        self._var, self._count = square / total, total

    def state_dict(self) -> dict[str, Any]:
        return {"returns": self._ret.tolist(), "moments": [self._mean, self._var, self._count]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._ret[:] = state["returns"]
        self._mean, self._var, self._count = state["moments"]


class ActorCritic(nn.Module):
    """obs uint8 [n,H,W,C] -> logits [n,A] and value [n], both linear in the trunk's features."""

    def __init__(
        self, encoder: str | Architecture, obs_shape: tuple[int, ...], n_actions: int
    ) -> None:
        super().__init__()
        encoder = encoders.find(encoder).value if isinstance(encoder, str) else encoder
        self.trunk = ConvTrunk(obs_shape, encoder)
        self.policy = nn.Linear(self.trunk.z_dim, n_actions)
        self.value = nn.Linear(self.trunk.z_dim, 1)
        gain = 2**0.5 if encoder.orthogonal else None
        for layer in self.trunk.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                _initialise(layer, gain)
        _initialise(self.policy, 0.01)  # the first policy is close to uniform
        _initialise(self.value, 1.0)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        features = self.trunk(obs)
        return self.policy(features), self.value(features)[:, 0]


@torch.no_grad()
def _initialise(layer: nn.Conv2d | nn.Linear, gain: float | None) -> None:
    """As in the published runs: orthogonal weights with that gain, Glorot's without; no biases."""
    weight = torch.empty(layer.weight.shape)  # orthogonal_ wants another layout than channels_last
    drawn = nn.init.xavier_uniform_(weight) if gain is None else nn.init.orthogonal_(weight, gain)
    layer.weight.copy_(drawn)
    if layer.bias is not None:
        layer.bias.zero_()


class PPO:
    """A learner and its env. Each `iterate` plays n_steps in every env and learns from them."""

    def __init__(
        self,
        config: PPOConfig,
        env: ReplayableEnv,
        rng: np.random.Generator,
        action_ids: NDArray[np.int64],
    ) -> None:
        """`action_ids`: what each of the policy's actions is called by the env."""
        self.config, self.env, self.rng, self.action_ids = config, env, rng, action_ids
        self.device = torch.device(pick_device(config.device))
        obs_shape = env.observe()[0].shape[1:]
        with seeded(rng):
            self.net = ActorCritic(config.schedule.encoder, obs_shape, len(action_ids)).to(
                self.device
            )
        self.net.trunk.bf16 = config.precision == "bf16"
        self.optimizer = torch.optim.Adam(
            self.net.parameters(), lr=config.lr, eps=config.adam_eps, fused=True
        )
        self.frames = 0
        self._gamma = config.gamma**config.schedule.hold  # of a step that is several frames
        self._scale = RewardScaler(config.schedule.n_envs, self._gamma, config.reward_clip)
        self._return = np.zeros(config.schedule.n_envs)  # of the episodes under way
        self._recent: deque[float] = deque(maxlen=N_RECENT)
        self._episodes = np.zeros(config.schedule.n_envs, np.int64)  # that ended in each env
        self._chunk = config.chunk or (
            CPU_CHUNK if self.device.type == "cpu" else config.steps_per_update
        )
        steps = (config.schedule.n_steps, config.schedule.n_envs)
        self._obs = torch.empty((*steps, *obs_shape), dtype=torch.uint8, device=self.device)
        self._logits = torch.empty((*steps, len(action_ids)), device=self.device)
        self._value = torch.empty(steps, device=self.device)
        self._action = np.empty(steps, np.int64)
        self._reward = np.empty(steps, np.float32)
        self._ended = np.empty(steps, np.bool_)

    @property
    def mean_return(self) -> float | None:
        """Of the last 100 episodes in raw rewards; None before the first has ended."""
        return float(np.mean(self._recent)) if self._recent else None

    @property
    def settled_return(self) -> float | None:
        """The same; None before two have ended in every env: the first to end are short ones."""
        settled = len(self._recent) == N_RECENT and self._episodes.min() >= SETTLED
        return self.mean_return if settled else None

    def iterate(self) -> dict[str, float]:
        """Metrics of one update:
        return         mean raw return of the last 100 episodes that ended
        entropy        of the policy on the frames it played, in nats (uniform: log of the actions)
        policy_loss    clipped surrogate, mean over the minibatches, like the next three
        value_loss     clipped, in units of the scaled reward
        kl             estimated KL from the policy that played to the one being trained
        clip_fraction  share of frames whose probability ratio left 1 +- clip
        """
        last_value = self._play()
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
            metrics = self._learn(last_value)
        self.frames += self.config.frames_per_update
        if self.mean_return is not None:
            metrics["return"] = self.mean_return
        return metrics

    @torch.inference_mode()
    def _play(self) -> Tensor:
        """Fills the buffers; returns the values [n_envs] of the observations after them."""
        obs, _ = self.env.observe()
        for t in range(self.config.schedule.n_steps):
            self._obs[t].copy_(torch.from_numpy(obs))
            self._logits[t], self._value[t] = self.net(self._obs[t])
            self._action[t] = sample(self._logits[t], self.rng)
            obs, reward, terminated, truncated, _ = self.env.step(self.action_ids[self._action[t]])
            self._ended[t] = ended = terminated | truncated
            self._reward[t] = self._scale(reward, ended)
            self._return += reward
            self._recent.extend(self._return[ended].tolist())
            self._return[ended] = 0.0
            self._episodes += ended
        last_value: Tensor = self.net(torch.from_numpy(obs).to(self.device))[1]
        return last_value

    def _learn(self, last_value: Tensor) -> dict[str, float]:
        config = self.config
        reward, ended = (torch.from_numpy(x).to(self.device) for x in (self._reward, self._ended))
        advantage, returns = gae(reward, self._value, ended, last_value, self._gamma, config.lam)
        action = torch.from_numpy(self._action).to(self.device).flatten()
        log_prob = self._logits.flatten(0, 1).log_softmax(1).gather(1, action[:, None])[:, 0]
        rows = {
            "obs": self._obs.flatten(0, 1),
            "action": action,
            "log_prob": log_prob,
            "value": self._value.flatten(),
            "advantage": advantage.flatten(),
            "returns": returns.flatten(),
        }
        infos = []
        for _ in range(config.schedule.epochs):
            order = torch.from_numpy(self.rng.permutation(config.steps_per_update))
            for index in order.to(self.device).tensor_split(config.schedule.minibatches):
                infos.append(self._step(rows, index))
        metrics = {k: float(torch.stack([i[k] for i in infos]).mean()) for k in infos[0]}
        return metrics | {"entropy": float(entropy(self._logits))}

    def _step(self, rows: Mapping[str, Tensor], index: Tensor) -> dict[str, Tensor]:
        """One gradient step on the rows of a minibatch, chunk by chunk."""
        config = self.config
        std, mean = torch.std_mean(rows["advantage"].index_select(0, index), correction=0)
        self.optimizer.zero_grad(set_to_none=True)
        means: dict[str, Tensor] = {}
        for part in torch.split(index, self._chunk):
            old = {name: x.index_select(0, part) for name, x in rows.items()}
            logits, value = self.net(old["obs"])
            log_prob = logits.log_softmax(1).gather(1, old["action"][:, None])[:, 0]
            advantage = (old["advantage"] - mean) / (std + 1e-8)
            policy, info = policy_loss(log_prob, old["log_prob"], advantage, config.clip)
            critic = value_loss(value, old["value"], old["returns"], config.clip)
            loss = policy + config.value_weight * critic - config.entropy_weight * entropy(logits)
            share = len(part) / len(index)
            torch.autograd.backward(share * loss)
            info |= {"policy_loss": policy.detach(), "value_loss": critic.detach()}
            means = {k: means.get(k, 0.0) + share * x for k, x in info.items()}
        nn.utils.clip_grad_norm_(self.net.parameters(), config.grad_norm)
        self.optimizer.step()
        return means

    def state_dict(self) -> dict[str, Any]:
        return {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "env": self.env.state_dict(),
            "scaler": self._scale.state_dict(),
            "returns": self._return.tolist(),
            "recent": list(self._recent),
            "episodes": self._episodes.tolist(),
            "rng": json.dumps(self.rng.bit_generator.state),
            "frames": self.frames,
            "threads": torch.get_num_threads(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["threads"] != torch.get_num_threads():
            console.print(
                f"[yellow]warning:[/] begun with {state['threads']} torch threads, now "
                f"{torch.get_num_threads()}: sums are rounded differently, so the result will not "
                "be bit for bit that of one run (OMP_NUM_THREADS sets them)."
            )
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.env.load_state_dict(state["env"])
        self._scale.load_state_dict(state["scaler"])
        self._return[:] = state["returns"]
        self._episodes[:] = state["episodes"]
        self._recent.clear()
        self._recent.extend(state["recent"])
        self.rng.bit_generator.state = parse_json(state["rng"])
        self.frames = state["frames"]
