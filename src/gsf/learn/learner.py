"""BC and CQL, alone or with an auxiliary loss on the same encoder: one update, and the agent.

The paper's Algorithm 2. `Learner.update` is a whole training step; `load_agent(run).act(obs)` is
what comes out of it. Rewards are raw in the dataset and scaled here.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from gsf.core.errors import UserError
from gsf.core.options import from_json, require_positive
from gsf.data.dataset import Batch, Dataset
from gsf.equations import bc_loss, cql_loss, gvf_return, td_target
from gsf.gvf.labels import load_labels
from gsf.learn import losses
from gsf.learn.losses import AuxiliaryLoss, Context, Spec
from gsf.nets.augment import random_crop
from gsf.nets.encoders import Encoder, EncoderKind
from gsf.nets.heads import Critic, CriticKind, Policy
from gsf.nets.runtime import frozen_copy, seeded, update_target

REWARD_GAMMA = 0.99  # of the return whose spread is the unit of reward: one number per dataset


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """What is learnt, whatever the data."""

    method: str = "cql"
    """bc, cql, or an auxiliary loss on one of them: curl, gsf-reward (gsf-<cumulant>), ..."""
    base: Literal["cql", "bc"] = "cql"
    """What an auxiliary loss is added to."""
    encoder: EncoderKind = "impala"
    """impala (the paper's), impala_small (about 4x faster on a CPU) or nature."""
    critic: CriticKind = "mlp"
    """Layers of 256-256-|A| on z, or linear as in the paper's text."""
    gamma: float = 0.99
    """Discount."""
    lr: float = 3e-4
    """Adam's learning rate."""
    target_rate: float = 0.005
    """Each step the target networks move by this share towards the online ones."""
    cql_alpha: float | None = None
    """Weight of CQL's conservative term, the paper's lambda. Default 1."""
    double: bool = True
    """The online critics choose the next action (double DQN); else the target's maximum."""
    stop_gradient: bool = False
    """BC or CQL does not train the encoder; the auxiliary loss alone does."""
    crop: int = 2
    """Random crop after padding by so many pixels; 0: none."""
    update: Literal["joint", "alternating"] = "joint"
    """One step on the weighted sum of losses, or two steps with an Adam each (Algorithm 2)."""
    aux_weight: float = 1.0
    """joint: weight of the auxiliary loss."""
    aux_lr: float | None = None
    """alternating: the auxiliary loss's learning rate. Default: lr."""
    released: bool = False
    """The setting of the authors' research code for this method (see docs/methods.md)."""
    loss: Any = None
    """Options of the auxiliary loss."""

    @property
    def learner(self) -> str:
        return "bc" if self.method == "bc" else self.base

    def resolved(self) -> Self:
        """With every default that depends on another option filled in, and checked."""
        name, _ = losses.parse_method(self.method)
        options, cql_alpha, stop = _loss_options(self, name), self.cql_alpha, self.stop_gradient
        if self.released:
            released = losses.find(name).released if name else losses.Released(cql_alpha=0.1)
            cql_alpha = released.cql_alpha if cql_alpha is None else cql_alpha
            stop = stop or released.stop_gradient
            options = _replace_defaults(options, released.config)
        config = dataclasses.replace(
            self,
            cql_alpha=1.0 if cql_alpha is None else cql_alpha,
            stop_gradient=stop,
            aux_lr=self.lr if self.aux_lr is None else self.aux_lr,
            loss=options,
        )
        require_positive(config, "lr", "aux_lr", "target_rate", "gamma")
        if config.gamma > 1 or config.target_rate > 1:
            raise UserError("--gamma and --target-rate must be at most 1.")
        if min(config.cql_alpha or 0, config.aux_weight, config.crop) < 0:
            raise UserError("--cql-alpha, --aux-weight and --crop must not be negative.")
        if stop and name is None:
            raise UserError("--stop-gradient needs an auxiliary loss to train the encoder.")
        return config


def _loss_options(config: AgentConfig, name: str | None) -> Any:
    if name is None:
        if config.loss:
            raise UserError(f"method {config.method} has no auxiliary loss to take options.")
        return None
    expected = losses.find(name).Config
    if isinstance(config.loss, Mapping):
        return from_json(expected, config.loss, "loss.")
    if config.loss is None:
        return expected()
    if not isinstance(config.loss, expected):
        raise UserError(f"method {config.method} takes options of {name}, not {config.loss!r}.")
    return config.loss


def _replace_defaults(options: Any, values: Mapping[str, Any]) -> Any:
    """The values, except where an option already differs from its default: someone chose it."""
    if not values:
        return options
    kept = {f.name for f in dataclasses.fields(options) if getattr(options, f.name) == f.default}
    return dataclasses.replace(options, **{k: v for k, v in values.items() if k in kept})


def reward_scale(dataset: Dataset) -> float:
    """Standard deviation over the dataset of the discounted return-to-go; 1 if there is none."""
    reward = np.asarray(dataset.reward, np.float64)
    returns = gvf_return(reward, REWARD_GAMMA, dataset.rows_left == 1)
    return float(returns.std()) or 1.0


class Learner:
    """Networks, targets and optimisers; `update` is one training step on a batch."""

    def __init__(
        self,
        config: AgentConfig,
        dataset: Dataset,
        rng: np.random.Generator,
        labels: Path | None = None,
        device: str = "cpu",
    ) -> None:
        self.config = config = config.resolved()
        self.dataset, self.device = dataset, device
        name, _ = losses.parse_method(config.method)
        self.spec = spec = Spec(
            obs_shape=dataset.obs_shape,
            n_actions=dataset.n_actions,
            n_levels=dataset.n_levels,
            gamma=config.gamma,
            labels=None if labels is None else load_labels(labels, dataset),
            reward_scale=reward_scale(dataset),
        )
        with seeded(rng):
            self.encoder, self.head = make_networks(config, dataset.obs_shape, dataset.n_actions)
            self.aux: AuxiliaryLoss | None = losses.find(name)(config.loss, spec) if name else None
        self.target_encoder = frozen_copy(self.encoder)
        self.target_head = frozen_copy(self.head)
        self.modules: dict[str, nn.Module] = {
            "encoder": self.encoder,
            "head": self.head,
            "target_encoder": self.target_encoder,
            "target_head": self.target_head,
            **({} if self.aux is None else {"aux": self.aux}),
        }
        for module in self.modules.values():
            module.to(device)
        rl, aux = [*self.encoder.parameters(), *self.head.parameters()], []
        if self.aux is not None:
            aux = [p for p in self.aux.parameters() if p.requires_grad]
        self.joint = self.aux is not None and config.update == "joint"
        trained = rl + aux if self.joint else rl
        self.optimizers = {"rl": torch.optim.Adam(trained, config.lr, fused=True)}
        if self.aux is not None and not self.joint:
            assert config.aux_lr is not None
            trained = [*self.encoder.parameters(), *aux]
            self.optimizers["aux"] = torch.optim.Adam(trained, config.aux_lr, fused=True)

    @property
    def n_levels(self) -> int | None:
        """How many levels a batch should be drawn from; None: any."""
        return None if self.aux is None else self.aux.n_levels

    def update(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """One training step; metrics `<term>/<quantity>` without gradient."""
        context = self._context(batch, rng)
        base = self._bc if self.config.learner == "bc" else self._cql
        z = context.z.detach() if self.config.stop_gradient else context.z
        loss, context.q, info = base(z, context)
        terms, weights = {self.config.learner: loss}, {self.config.learner: 1.0}
        if self.joint:
            assert self.aux is not None
            terms[self.aux.name], aux_info = self.aux(context)
            weights[self.aux.name] = self.config.aux_weight
            info |= _named(self.aux.name, aux_info)
        self._step("rl", terms, weights)

        if self.aux is not None and not self.joint:
            context = dataclasses.replace(context, z=self.encoder(context.obs))
            terms[self.aux.name], aux_info = self.aux(context)
            info |= _named(self.aux.name, aux_info)
            self._step("aux", {self.aux.name: terms[self.aux.name]}, {self.aux.name: 1.0})

        update_target(self.target_encoder, self.encoder, self.config.target_rate)
        update_target(self.target_head, self.head, self.config.target_rate)
        if self.aux is not None:
            self.aux.after_step()
        return info | {f"{name}/loss": term.detach() for name, term in terms.items()}

    def _context(self, batch: Batch, rng: np.random.Generator) -> Context:
        drawn = {} if self.aux is None else self.aux.draw(self.dataset, batch, rng)

        def crop(obs: Tensor) -> Tensor:
            return random_crop(obs, rng, self.config.crop) if self.config.crop else obs

        batch = batch.to(self.device)
        obs = crop(batch.obs)
        return Context(
            batch=batch,
            obs=obs,
            z=self.encoder(obs),
            q=torch.empty(0),  # known once the base has looked at z
            drawn={name: x.to(self.device) for name, x in drawn.items()},
            encoder=self.encoder,
            target_encoder=self.target_encoder,
            crop=crop,
        )

    def _bc(self, z: Tensor, context: Context) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        logits = self.head(z)
        loss, info = bc_loss(logits, context.batch.action)
        return loss, logits.detach(), _named("bc", info)

    def _cql(self, z: Tensor, context: Context) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        batch, config = context.batch, self.config
        q1, q2 = self.head(z)  # [n,A]
        with torch.no_grad():
            next_q_target = torch.minimum(*self.target_head(context.target_next_z))
            next_q = torch.minimum(*self.head(context.next_z)) if config.double else next_q_target
            reward = self.spec.scaled(batch.reward)
            y = td_target(reward, batch.terminated, next_q, next_q_target, config.gamma)
        # A cut episode's last step has no next observation, and its value is not 0: no target.
        known = batch.has_next | batch.terminated
        assert config.cql_alpha is not None
        loss1, info1 = cql_loss(q1, batch.action, y, config.cql_alpha, known)
        loss2, info2 = cql_loss(q2, batch.action, y, config.cql_alpha, known)
        info = {name: (info1[name] + info2[name]) / 2 for name in info1}
        info["target"] = (y * known).sum() / known.sum().clamp(min=1)
        return loss1 + loss2, torch.minimum(q1, q2).detach(), _named("cql", info)

    def _step(self, name: str, terms: dict[str, Tensor], weights: dict[str, float]) -> None:
        assert terms.keys() == weights.keys()
        total = torch.stack([weights[term] * terms[term] for term in terms]).sum()
        self.optimizers[name].zero_grad(set_to_none=True)
        total.backward()  # type: ignore[no-untyped-call]
        self.optimizers[name].step()

    def finite(self) -> bool:
        parameters = (p for module in self.modules.values() for p in module.parameters())
        return all(bool(p.isfinite().all()) for p in parameters)

    def networks(self) -> dict[str, Any]:
        """What acting needs."""
        return {name: self.modules[name].state_dict() for name in ("encoder", "head")}

    def state(self) -> dict[str, Any]:
        """What going on needs."""
        return {
            **{name: module.state_dict() for name, module in self.modules.items()},
            "optimizers": {name: x.state_dict() for name, x in self.optimizers.items()},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        for name, module in self.modules.items():
            module.load_state_dict(state[name])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])


def make_networks(
    config: AgentConfig, obs_shape: tuple[int, ...], n_actions: int
) -> tuple[Encoder, Critic | Policy]:
    head = Policy if config.learner == "bc" else Critic
    return Encoder(obs_shape, config.encoder), head(n_actions, config.critic)


def _named(term: str, info: Mapping[str, Tensor | float]) -> dict[str, Tensor]:
    return {f"{term}/{name}": torch.as_tensor(x).detach() for name, x in info.items()}
