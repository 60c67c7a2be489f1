"""A base, alone or with an auxiliary loss on the same encoder: one update (Algorithm 2).

`Learner.update` is a whole training step. Rewards are raw in the dataset; `Spec.scaled` is how they
are learnt from.
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
from gsf.equations import gvf_return
from gsf.gvf.labels import load_labels
from gsf.learn import methods
from gsf.learn.context import Context, Info, Spec
from gsf.learn.losses import AuxiliaryLoss
from gsf.learn.methods import Method
from gsf.nets import encoders
from gsf.nets.augment import random_crop
from gsf.nets.encoders import Encoder
from gsf.nets.heads import HeadKind
from gsf.nets.runtime import frozen_copy, seeded, update_target

REWARD_GAMMA = 0.99  # of the return whose spread is the unit of reward: one number per dataset


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """What is learnt, whatever the data."""

    method: str = "cql"
    """A base (bc, cql, ...) or an auxiliary loss on one: curl, gsf-reward (gsf-<cumulant>), ...;
    your own as file.py:Name."""
    on: str | None = None
    """The base that an auxiliary loss is added to. Default: cql."""
    encoder: str = "impala"
    """impala (the paper's), impala_small (about 4x faster on a CPU), nature, or your own as
    file.py:name (docs/extending.md)."""
    head: HeadKind = "mlp"
    """The base's heads: layers of 256-256-|A| on z, or linear as in the paper's text."""
    gamma: float = 0.99
    """Discount."""
    lr: float = 3e-4
    """Adam's learning rate."""
    target_rate: float = 0.005
    """Each step the target networks move by this share towards the online ones."""
    stop_gradient: bool = False
    """The base does not train the encoder; the auxiliary loss alone does."""
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
    base: Any = None
    """Options of the base."""
    loss: Any = None
    """Options of the auxiliary loss."""

    def find_method(self) -> Method:
        return methods.find(self.method, self.on)

    def resolved(self) -> Self:
        """With every default that depends on another option filled in, and checked."""
        encoders.find(self.encoder)
        method, stop = self.find_method(), self.stop_gradient
        base = _options(self.base, method.base.value.Config, f"base {method.base.name}", "base.")
        loss = None
        if method.loss is not None:
            name = f"auxiliary loss {method.loss.name}"
            loss = _options(self.loss, method.loss.value.Config, name, "loss.")
        elif self.loss:
            raise UserError(f"method {self.method} has no auxiliary loss to take options.")
        if self.released and method.loss is None:
            base = _replace_defaults(base, method.base.value.released)
        elif self.released and method.loss is not None:
            released = method.loss.value.released
            of_base = released.base.get(method.base.name, method.base.value.released_with_loss)
            stop = stop or released.stop_gradient
            base, loss = _replace_defaults(base, of_base), _replace_defaults(loss, released.config)
        config = dataclasses.replace(
            self,
            on=method.base.spec,
            stop_gradient=stop,
            aux_lr=self.lr if self.aux_lr is None else self.aux_lr,
            base=base,
            loss=loss,
        )
        require_positive(config, "lr", "aux_lr", "target_rate", "gamma")
        if config.gamma > 1 or config.target_rate > 1:
            raise UserError("--gamma and --target-rate must be at most 1.")
        if min(config.aux_weight, config.crop) < 0:
            raise UserError("--aux-weight and --crop must not be negative.")
        if stop and method.loss is None:
            raise UserError("--stop-gradient needs an auxiliary loss to train the encoder.")
        return config


def _options(given: Any, expected: type[Any], owner: str, where: str) -> Any:
    if isinstance(given, Mapping):
        return from_json(expected, given, where)
    if given is not None and not isinstance(given, expected):
        raise UserError(f"the {owner} takes options of its own, not {given!r}.")
    return expected() if given is None else given


def _replace_defaults(options: Any, values: Mapping[str, Any]) -> Any:
    """The values, except where an option already differs from its default: someone chose it."""
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
        self.method = method = config.find_method()
        self.spec = spec = Spec(
            obs_shape=dataset.obs_shape,
            n_actions=dataset.n_actions,
            n_levels=dataset.n_levels,
            gamma=config.gamma,
            head=config.head,
            labels=None if labels is None else load_labels(labels, dataset),
            reward_scale=reward_scale(dataset),
        )
        self.aux: AuxiliaryLoss | None = None
        with seeded(rng):
            self.encoder = Encoder(dataset.obs_shape, config.encoder)
            self.base = method.base.value(config.base, spec)
            if method.loss is not None:
                self.aux = method.loss.value(config.loss, spec)
        self.target_encoder = frozen_copy(self.encoder)
        self.modules: dict[str, nn.Module] = {
            "encoder": self.encoder,
            "base": self.base,
            "target_encoder": self.target_encoder,
            **({} if self.aux is None else {"aux": self.aux}),
        }
        for module in self.modules.values():
            module.to(device)
        rl, aux = [*self.encoder.parameters(), *_trained(self.base)], _trained(self.aux)
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
        z = context.z.detach() if self.config.stop_gradient else context.z
        loss, info = self.base(z, context)
        terms, weights = {self.base.name: loss}, {self.base.name: 1.0}
        metrics = _named(self.base.name, info)
        if self.joint:
            assert self.aux is not None
            terms[self.aux.name], info = self.aux(context)
            weights[self.aux.name] = self.config.aux_weight
            metrics |= _named(self.aux.name, info)
        self._step("rl", terms, weights)

        if self.aux is not None and not self.joint:
            context = dataclasses.replace(context, z=self.encoder(context.obs))
            terms[self.aux.name], info = self.aux(context)
            metrics |= _named(self.aux.name, info)
            self._step("aux", {self.aux.name: terms[self.aux.name]}, {self.aux.name: 1.0})

        update_target(self.target_encoder, self.encoder, self.config.target_rate)
        self.base.after_step(self.config.target_rate)
        if self.aux is not None:
            self.aux.after_step()
        return metrics | {f"{name}/loss": term.detach() for name, term in terms.items()}

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
            drawn={name: x.to(self.device) for name, x in drawn.items()},
            base=self.base,
            encoder=self.encoder,
            target_encoder=self.target_encoder,
            crop=crop,
        )

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
        return {name: self.modules[name].state_dict() for name in ("encoder", "base")}

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


def _trained(module: nn.Module | None) -> list[nn.Parameter]:
    return [] if module is None else [p for p in module.parameters() if p.requires_grad]


def _named(term: str, info: Info) -> dict[str, Tensor]:
    return {f"{term}/{name}": torch.as_tensor(x).detach() for name, x in info.items()}
