"""A base, alone or with an auxiliary loss on the same encoder: one update (Algorithm 2).

`Learner.update` is a whole training step. Rewards are raw in the dataset; `Spec.scaled` is how they
are learnt from.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gsf.data.dataset import Batch, Dataset
from gsf.equations import gvf_return
from gsf.gvf.labels import load_labels
from gsf.learn.bases import Base
from gsf.learn.context import Context, Info, Spec
from gsf.learn.feed import Drawn
from gsf.learn.losses import AuxiliaryLoss
from gsf.learn.options import AgentConfig as AgentConfig
from gsf.nets.augment import random_crop
from gsf.nets.encoders import Encoder
from gsf.nets.runtime import frozen_copy, seeded, update_target

REWARD_GAMMA = 0.99  # of the return whose spread is the unit of reward: one number per dataset


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
            encoder=config.encoder,
            labels=None if labels is None else load_labels(labels, dataset),
            reward_scale=reward_scale(dataset),
        )
        self.aux: AuxiliaryLoss | None = None
        with seeded(rng):
            self.encoder = Encoder(dataset.obs_shape, config.encoder)
            self.base = method.base.value(config.parts[method.base.name], spec)
            if method.loss is not None:
                self.aux = method.loss.value(config.parts[method.loss.name], spec)
        self.target_encoder = frozen_copy(self.encoder)
        self.modules: dict[str, nn.Module] = {
            "encoder": self.encoder,
            "base": self.base,
            "target_encoder": self.target_encoder,
            **({} if self.aux is None else {"aux": self.aux}),
        }
        for module in self.modules.values():
            module.to(device)
        for network in (self.encoder, self.target_encoder):
            network.trunk.bf16 = config.precision == "bf16"
            if config.compile:
                network.compile()
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

    def draw(
        self, n: int, rng: np.random.Generator, n_levels: int | None = None
    ) -> tuple[Batch, Drawn]:
        """A batch, and what base and auxiliary loss draw beside it, all in the CPU's memory."""
        batch = self.base.sample(self.dataset, n, rng, n_levels or self.n_levels)
        return batch, self._drawn(batch, rng)

    def _drawn(self, batch: Batch, rng: np.random.Generator) -> Drawn:
        parts: list[Base | AuxiliaryLoss] = [self.base, *([] if self.aux is None else [self.aux])]
        return {part.name: part.draw(self.dataset, batch, rng) for part in parts}

    def update(
        self, batch: Batch, rng: np.random.Generator, drawn: Drawn | None = None
    ) -> dict[str, Tensor]:
        """One training step; metrics `<term>/<quantity>` without gradient, on the device.

        drawn: what `draw` returned with the batch; None: it is drawn here, from `rng`.
        """
        drawn = self._to_device(self._drawn(batch, rng) if drawn is None else drawn)
        context = self._context(batch, rng, drawn[self.base.name])
        z = context.z.detach() if self.config.stop_gradient else context.z
        loss, info = self.base(z, context)
        terms, weights = {self.base.name: loss}, {self.base.name: 1.0}
        metrics = self._named(self.base.name, info)
        if self.joint:
            assert self.aux is not None
            context.drawn = drawn[self.aux.name]
            terms[self.aux.name], info = self.aux(context)
            weights[self.aux.name] = self.config.aux_weight
            metrics |= self._named(self.aux.name, info)
        self._step("rl", terms, weights)

        if self.aux is not None and not self.joint:
            context = dataclasses.replace(
                context, z=self.encoder(context.obs), drawn=drawn[self.aux.name]
            )
            terms[self.aux.name], info = self.aux(context)
            metrics |= self._named(self.aux.name, info)
            self._step("aux", {self.aux.name: terms[self.aux.name]}, {self.aux.name: 1.0})

        encoder_rate = None if self.aux is None else self.aux.encoder_rate
        rate = self.config.target_rate if encoder_rate is None else encoder_rate
        update_target(self.target_encoder, self.encoder, rate)
        self.base.after_step(self.config.target_rate)
        if self.aux is not None:
            self.aux.after_step()
        return metrics | {f"{name}/loss": term.detach() for name, term in terms.items()}

    def _to_device(self, drawn: Drawn) -> Drawn:
        return {
            part: {name: x.to(self.device, non_blocking=True) for name, x in tensors.items()}
            for part, tensors in drawn.items()
        }

    def look(self, batch: Batch, rng: np.random.Generator) -> Context:
        """What the auxiliary loss, or without one the base, would see of a batch."""
        drawn = self._to_device(self._drawn(batch, rng))
        return self._context(batch, rng, drawn[(self.aux or self.base).name])

    def _context(
        self, batch: Batch, rng: np.random.Generator, drawn: Mapping[str, Tensor]
    ) -> Context:
        def crop(obs: Tensor) -> Tensor:
            return random_crop(obs, rng, self.config.crop) if self.config.crop else obs

        batch = batch.to(self.device)
        obs = crop(batch.obs)
        return Context(
            batch=batch,
            obs=obs,
            z=self.encoder(obs),
            drawn=drawn,
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

    def _named(self, term: str, info: Info) -> dict[str, Tensor]:
        values = {name: torch.as_tensor(x, device=self.device) for name, x in info.items()}
        return {f"{term}/{name}": x.detach() for name, x in values.items()}

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
