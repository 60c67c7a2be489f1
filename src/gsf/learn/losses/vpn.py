"""VPN: actions rolled out in latent space have to tell rewards, discounts and values.

Oh, Singh and Lee (2017), "Value Prediction Network". s_0 = z and s_{l+1} = s_l + g(s_l, a_{t+l}):
    L = E_{l<K} H(r(s_l, a_{t+l}) - r_{t+l}) + E_{l<K} H(d(s_l, a_{t+l}) - d_{t+l})
      + E_{l<=K} H(v(s_l) - R_{t+l}),   d = gamma (1 - terminated),   R_{t+l} = r + d R_{t+l+1}
H is Huber's loss; R_{t+K} = v~(f~(o_{t+K})) of an EMA value head on the EMA encoder. The actions
are the logged ones, so v is the value of the behaviour.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import huber_loss, one_hot

from gsf.core.options import Rate, between
from gsf.data.dataset import Batch, Dataset
from gsf.learn.losses import AuxiliaryLoss, Context, Info, Released, Spec
from gsf.nets.heads import mlp
from gsf.nets.runtime import frozen_copy, update_target


def value_targets(reward: Tensor, discount: Tensor, bootstrap: Tensor) -> Tensor:
    """R_l = r_l + d_l R_{l+1} with R_K = bootstrap.  [n,K], [n,K], [n] -> [n,K+1]."""
    values = [bootstrap]
    for r, d in zip(reward.T.flip(0), discount.T.flip(0), strict=True):
        values.append(r + d * values[-1])
    return torch.stack(values[::-1], 1)


def masked_huber(prediction: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    error = huber_loss(prediction, target, reduction="none")
    return torch.where(mask, error, 0).sum() / mask.sum().clamp(min=1)


class VPN(AuxiliaryLoss):
    name = "vpn"
    colour = "#8268ed"
    released: ClassVar[Released] = Released(stop_gradient=True)

    @dataclass(frozen=True)
    class Config(AuxiliaryLoss.Config):
        n_steps: Annotated[int, between(1, 1000)] = 3
        """Steps rolled out in latent space."""
        target_rate: Rate = 0.005
        """Each step the target value head moves by this share towards the online one."""

    def __init__(self, config: Config, spec: Spec) -> None:
        super().__init__(config, spec)
        self.config, self.spec = config, spec
        self.value = mlp(spec.z_dim, 1)
        self.target_value = frozen_copy(self.value)
        self.outcome = mlp(spec.z_dim + spec.n_actions, 2)  # reward and discount
        self.change = mlp(spec.z_dim + spec.n_actions, spec.z_dim)

    def draw(self, dataset: Dataset, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """The n_steps rows from each of the batch's on; where the episode ends, its last again.

        Starting anywhere, not only n_steps before an end: else no rollout would ever see one.
        """
        rows, taken = dataset.ahead(batch.index, self.config.n_steps)  # [n,K]
        last = dataset.gather(rows[:, -1])
        return {
            "action": torch.from_numpy(dataset.action[rows].astype(np.int64)),
            "reward": torch.from_numpy(dataset.reward[rows]),
            "terminated": torch.from_numpy(dataset.terminated[rows]),
            "taken": torch.from_numpy(taken),  # [n,K]: the step is inside the episode
            "last_obs": last.next_obs,
            "alive": last.has_next & ~last.terminated,  # the last step led to a state
            "known": last.has_next | last.terminated,  # else a cut: the future is not 0
        }

    def forward(self, context: Context) -> tuple[Tensor, Info]:
        drawn, taken = context.drawn, context.drawn["taken"]
        # Past the episode's end nothing happens: what the last step leads to is handed on.
        reward = torch.where(taken, self.spec.scaled(drawn["reward"]), 0)
        discount = torch.where(taken, self.spec.gamma * ~drawn["terminated"], 1)
        target = value_targets(reward, discount, self.bootstrap(context))  # [n,K+1]
        known = taken & drawn["known"][:, None]
        reached = taken[:, -1:] & drawn["alive"][:, None]  # the state after the last step

        s, values, outcomes = context.z, [self.value(context.z)], []
        for action in drawn["action"].T:
            x = torch.cat([s, one_hot(action, self.spec.n_actions)], 1)
            outcomes.append(self.outcome(x))
            s = s + self.change(x)
            values.append(self.value(s))
        rewards, discounts = torch.stack(outcomes, 1).unbind(2)  # [n,K] each
        terms = {
            "reward": masked_huber(rewards, reward, taken),
            "discount": masked_huber(discounts, discount, taken),
            "value": masked_huber(torch.cat(values, 1), target, torch.cat([known, reached], 1)),
        }
        info: Info = {name: term.detach() for name, term in terms.items()}
        info["target"] = (target[:, 0] * known[:, 0]).sum() / known[:, 0].sum().clamp(min=1)
        return torch.stack(list(terms.values())).sum(), info

    @torch.no_grad()
    def bootstrap(self, context: Context) -> Tensor:
        """The value of where the last step led; means nothing where it ended the episode.  [n]."""
        last_z = context.target_encoder(context.crop(context.drawn["last_obs"]))
        value: Tensor = self.target_value(last_z)[:, 0]
        return value

    def after_step(self) -> None:
        update_target(self.target_value, self.value, self.config.target_rate)
