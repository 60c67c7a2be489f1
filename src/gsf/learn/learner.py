"""A base, alone or with auxiliary losses on the same encoder: one update (Algorithm 2).

`Learner.update` is a whole training step. Rewards are raw in the dataset; `Spec.scaled` is how they
are learnt from.
"""

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer

from gsf.core.errors import UserError
from gsf.data.dataset import Batch, Dataset
from gsf.equations import gvf_return
from gsf.gvf.training_labels import load_labels
from gsf.learn.bases import Base
from gsf.learn.context import Context, Info, Optimize, Spec
from gsf.learn.feed import Drawn
from gsf.learn.losses import AuxiliaryLoss
from gsf.learn.options import AgentConfig as AgentConfig
from gsf.nets import encoders
from gsf.nets.augment import augment
from gsf.nets.encoders import Encoder
from gsf.nets.runtime import frozen_copy, seeded, update_target

Part = Base | AuxiliaryLoss
REWARD_GAMMA = 0.99  # of the return whose spread is the unit of reward: one number per dataset


def reward_scale(dataset: Dataset) -> float:
    """Standard deviation over the dataset of the discounted return-to-go; 1 if there is none."""
    reward = np.asarray(dataset.reward, np.float64)
    returns = gvf_return(reward, REWARD_GAMMA, dataset.rows_left == 1)
    return float(returns.std()) or 1.0


def share_of_lr(step: int, warmup: int, ends: int | None) -> float:
    """Of the learning rate in a step, from 0: it rises over `warmup` steps, then falls as a cosine
    to 0 at the step where training `ends`, or stays."""
    if step < warmup:
        return (step + 1) / warmup
    if ends is None:
        return 1.0
    return (1 + math.cos(math.pi * (step - warmup) / max(1, ends - warmup))) / 2


class Learner:
    """Networks, targets and optimisers; `update` is one training step on a batch."""

    def __init__(
        self,
        config: AgentConfig,
        dataset: Dataset,
        rng: np.random.Generator,
        labels: Path | None = None,
        device: str = "cpu",
        grad_steps: int | None = None,
    ) -> None:
        """grad_steps: of the whole training, where a cosine schedule ends."""
        self.config = config = config.resolved()
        self.dataset, self.device = dataset, device
        self.method = method = config.find_method()
        architecture = encoders.find(config.encoder).value
        self.spec = spec = Spec(
            obs_shape=dataset.obs_shape,
            n_actions=dataset.n_actions,
            n_levels=dataset.n_levels,
            gamma=config.gamma,
            z_dim=architecture.z_dim,
            head=config.head,
            encoder=config.encoder,
            labels=None if labels is None else load_labels(labels, dataset),
            reward_scale=reward_scale(dataset),
        )
        with seeded(rng):
            self.encoder = Encoder(dataset.obs_shape, config.encoder)
            self.base = method.base.value(config.parts[method.base.name], spec)
            self.losses: dict[str, AuxiliaryLoss] = {
                loss.name: loss.value(config.parts[loss.name], spec) for loss in method.losses
            }
        self.base.prepare(dataset)
        self.weights = {name: config.parts[name].weight for name in self.losses}
        self.n_levels: int | None = self._agreed("n_levels")  # of a batch; None: any
        rate: float | None = self._agreed("encoder_rate")
        self.encoder_rate = config.target_rate if rate is None else rate
        self.target_encoder = frozen_copy(self.encoder)
        self.modules: dict[str, nn.Module] = {
            "encoder": self.encoder,
            "base": self.base,
            "target_encoder": self.target_encoder,
            **{f"loss.{name}": loss for name, loss in self.losses.items()},
        }
        for module in self.modules.values():
            module.to(device)
        for network in (self.encoder, self.target_encoder):
            network.trunk.bf16 = config.precision == "bf16"
            if config.compile:
                network.compile()
        if config.lr_schedule == "cosine" and grad_steps is None:
            raise UserError("--lr-schedule cosine has to know how many steps there will be.")
        self.ends = grad_steps if config.lr_schedule == "cosine" else None
        self.n_updates = 0
        self.joint = config.update == "joint"
        self.steps = self._steps()
        self.optimizers = {name: x for step in self.steps.values() for name, x in step.items()}
        self.lrs = {name: [g["lr"] for g in x.param_groups] for name, x in self.optimizers.items()}

    def _steps(self) -> dict[str, dict[str, Optimizer]]:
        """The optimisers of each step: one for everything, or one for the base and one for the
        auxiliary losses, both through the encoder; and those that parts have of their own."""
        config = self.config
        kind: Any = AdamW if config.optimizer == "adamw" else Adam
        optimizer = partial(kind, weight_decay=config.weight_decay, fused=True)

        def optimizers(name: str, lr: float | None, *parts: Part) -> dict[str, Optimizer]:
            own = {f"{x.name}.{key}": o for x in parts for key, o in _own(x, optimizer).items()}
            apart = set(_optimized(own))
            rest = [*self.encoder.parameters(), *_trained(*parts)]
            return {name: optimizer([p for p in rest if p not in apart], lr), **own}

        losses = self.losses.values()
        steps = {"rl": optimizers("rl", config.lr, self.base, *(losses if self.joint else ()))}
        if losses and not self.joint:
            steps["aux"] = optimizers("aux", config.aux_lr, *losses)
        return steps

    def _agreed(self, name: str) -> Any:
        """What the losses that say anything of it say alike; None: none does."""
        said = {loss: getattr(self.losses[loss], name) for loss in self.losses}
        said = {loss: value for loss, value in said.items() if value is not None}
        if len({*said.values()}) > 1:
            wishes = ", ".join(f"{loss} wants {value:g}" for loss, value in said.items())
            raise UserError(
                f"losses of one run share {name}, but {wishes}; set their options alike."
            )
        return next(iter(said.values()), None)

    def draw(
        self, n: int, rng: np.random.Generator, n_levels: int | None = None
    ) -> tuple[Batch, Drawn]:
        """A batch, and what base and auxiliary losses draw beside it, all in the CPU's memory."""
        batch = self.base.sample(self.dataset, n, rng, n_levels or self.n_levels)
        return batch, self._drawn(batch, rng)

    def _drawn(self, batch: Batch, rng: np.random.Generator) -> Drawn:
        parts: dict[str, Part] = {self.base.name: self.base, **self.losses}
        return {name: part.draw(self.dataset, batch, rng) for name, part in parts.items()}

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
        metrics = self._named(self.base.name, loss, info)
        if self.joint or not self.losses:
            aux = self._aux(context, drawn, metrics)
            self._step("rl", [loss, *aux])
        else:
            self._step("rl", [loss])
            context = dataclasses.replace(context, z=self.encoder(context.obs))
            self._step("aux", self._aux(context, drawn, metrics))
        update_target(self.target_encoder, self.encoder, self.encoder_rate)
        self.base.after_step(self.config.target_rate)
        for part in self.losses.values():
            part.after_step()
        self.n_updates += 1
        return metrics

    def _aux(self, context: Context, drawn: Drawn, metrics: dict[str, Tensor]) -> list[Tensor]:
        """The auxiliary losses by their weights; each sees what it has drawn itself."""
        terms = []
        for name, part in self.losses.items():
            context.drawn = drawn[name]
            loss, info = part(context)
            metrics |= self._named(name, loss, info)
            terms.append(self.weights[name] * loss)
        return terms

    def _to_device(self, drawn: Drawn) -> Drawn:
        return {
            part: {name: x.to(self.device, non_blocking=True) for name, x in tensors.items()}
            for part, tensors in drawn.items()
        }

    def look(self, batch: Batch, rng: np.random.Generator) -> Context:
        """What the first auxiliary loss, or without one the base, would see of a batch."""
        drawn = self._to_device(self._drawn(batch, rng))
        return self._context(batch, rng, drawn[next(iter(self.losses), self.base.name)])

    def _context(
        self, batch: Batch, rng: np.random.Generator, drawn: Mapping[str, Tensor]
    ) -> Context:
        def crop(obs: Tensor) -> Tensor:
            return augment(obs, rng, self.config.augment, self.config.crop)

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

    def _step(self, step: str, terms: list[Tensor]) -> None:
        optimizers, clip = self.steps[step], self.config.clip_grad
        for optimizer in optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        torch.stack(terms).sum().backward()  # type: ignore[no-untyped-call]
        share = share_of_lr(self.n_updates, self.config.warmup, self.ends)
        for name, optimizer in optimizers.items():
            for group, lr in zip(optimizer.param_groups, self.lrs[name], strict=True):
                group["lr"] = share * lr
                if clip is not None:
                    nn.utils.clip_grad_norm_(group["params"], clip)
            optimizer.step()

    def _named(self, part: str, loss: Tensor, info: Info) -> dict[str, Tensor]:
        values = {name: torch.as_tensor(x, device=self.device) for name, x in info.items()}
        return {f"{part}/{name}": x.detach() for name, x in {**values, "loss": loss}.items()}

    def state(self) -> dict[str, Any]:
        """What going on needs."""
        return {
            **{name: module.state_dict() for name, module in self.modules.items()},
            "optimizers": {name: x.state_dict() for name, x in self.optimizers.items()},
            "n_updates": self.n_updates,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        for name, module in self.modules.items():
            module.load_state_dict(state[name])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        self.n_updates = state["n_updates"]


def _trained(*modules: nn.Module) -> list[nn.Parameter]:
    return [p for module in modules for p in module.parameters() if p.requires_grad]


def _optimized(optimizers: Mapping[str, Optimizer]) -> list[nn.Parameter]:
    return [p for x in optimizers.values() for group in x.param_groups for p in group["params"]]


def _own(part: Part, optimizer: Optimize) -> Mapping[str, Optimizer]:
    own = part.optimizers(optimizer)
    if len(parameters := _optimized(own)) > len({*parameters} & {*_trained(part)}):
        raise UserError(
            f"{part.name}: its optimisers may have each parameter that it trains once, and nothing "
            "else; mend its `optimizers`."
        )
    return own
