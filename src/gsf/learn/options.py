"""What `gsf train` and `gsf check` may be told; read without torch, so that help is fast."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import tyro

from gsf.core.errors import UserError
from gsf.core.naming import LONGEST, directory_name
from gsf.core.options import (
    BatchSize,
    CodedOptions,
    Count,
    Device,
    Extendable,
    Group,
    Incidental,
    Input,
    Options,
    PrecisionOrAuto,
    Rate,
    Seed,
    StepSize,
    above,
    between,
    check,
    from_json,
)
from gsf.core.schema import NUMBER, SEED, TEXT
from gsf.core.stage import WORLD, Kind
from gsf.learn.legend import AUXILIARY, BASES, REFERENCES

if TYPE_CHECKING:
    from gsf.learn.methods import Method

OTHERS = (*REFERENCES, "pixels", "chance")  # rows of tables that are no runs

RUN = Kind(
    "run",
    format=3,
    made_by="`gsf train` makes one",
    begun=(
        {
            "game": TEXT,
            "method": TEXT,
            "seed": SEED,
            "reward_scale": NUMBER,
            "config": {
                "dataset": str,
                "gamma": NUMBER,
                "head": str,
                "on": str,
                "encoder": str,
                "parts": {str: {str: object}},
            },
            "options": {"on": str},
        },
        WORLD,
    ),
)


@dataclass(frozen=True, kw_only=True)
class AgentConfig(Options):
    """What is learnt, whatever the data."""

    method: Annotated[
        str,
        tyro.conf.arg(
            help=f"A base ({', '.join(BASES)}), or an auxiliary loss on one "
            f"({', '.join(AUXILIARY)}), several as gsf-reward+curl; your own as file.py:Name, or "
            "gsf-file.py:cumulant. Each has options of its own, as --cql.alpha: `gsf train "
            "--method NAME --help` lists them."
        ),
    ] = "cql"
    name: str | None = None
    """What tables call it, to tell it from others of the method. Default: the method's name."""
    on: str | None = None
    """The base that auxiliary losses are added to. Default: cql."""
    encoder: str = "impala"
    """impala (the paper's), impala_small (about 4x faster on a CPU), nature, or your own as
    file.py:name (docs/extending.md)."""
    head: Annotated[Literal["mlp", "linear"], Group.METHOD] = "mlp"
    """The base's heads: layers of 256-256-|A| on z, or linear as in the paper's text."""
    gamma: Rate = 0.99
    """Discount."""
    augment: Literal["crop", "shift", "colour", "none"] = "crop"
    """What is done to each image: moved at random, mirrored at the border (crop) or its border
    repeated (shift); crop and other colours (colour); or nothing."""
    crop: Annotated[int, between(0, 64)] = 2
    """By how many pixels at most an image moves; 0: not at all."""
    stop_gradient: bool = False
    """The base does not train the encoder; the auxiliary loss alone does."""
    released: bool = False
    """The setting of the authors' research code for this method (see docs/methods.md)."""
    lr: Annotated[StepSize, Group.LEARNING] = 3e-4
    """Adam's learning rate."""
    optimizer: Literal["adam", "adamw"] = "adam"
    """adamw: --weight-decay shrinks weights directly, not through the gradient."""
    weight_decay: Annotated[float, between(0, 1)] = 0.0
    """How much weights are pulled towards 0."""
    lr_schedule: Literal["constant", "cosine"] = "constant"
    """cosine: learning rates fall to 0 by the last of --grad-steps, of which a run then cannot be
    given more."""
    warmup: Annotated[int, between(0, 10**9)] = 0
    """First steps, over which learning rates rise evenly to their own."""
    clip_grad: Annotated[float, above(0, 10**6)] | None = None
    """Longest gradient of a step, by its norm; a longer one is scaled to it. Default: any."""
    target_rate: Rate = 0.005
    """Each step the target networks move by this share towards the online ones."""
    update: Literal["joint", "alternating"] = "joint"
    """One step on the weighted sum of all losses, or one of the base and one of the auxiliary
    losses' sum, with an optimiser each (Algorithm 2)."""
    aux_lr: StepSize | None = None
    """alternating: the auxiliary losses' learning rate. Default: lr."""
    precision: Annotated[PrecisionOrAuto, Group.MACHINE] = "float32"
    """bf16: the encoder's convolutions compute in bfloat16, about 1.6 times as fast where the
    processor has it (`avx512_bf16`, `amx_bf16`, GPUs); weights, heads and losses stay float32.
    auto: a trial of two seconds decides, and its choice is kept. No default before returns of both
    were compared."""
    compile: Incidental[bool] = False
    """Compile the encoder (torch.compile): half a minute at the start, for long runs on a GPU. On a
    CPU it needs a C++ compiler and gains nothing (docs/speed.md)."""
    parts: Annotated[Mapping[str, Any], tyro.conf.Suppress] = field(default_factory=dict)
    """Options of the base and of auxiliary losses by their names, as in {"cql": {"alpha": 2}};
    on the command line --cql.alpha 2."""

    def find_method(self) -> "Method":
        from gsf.learn import methods

        method = methods.find(self.method, self.on)
        if self.name in (None, method.name):
            return method
        if self.name in (*methods.all_methods(), *OTHERS):
            raise UserError(f"--name {self.name}: something else is called so; choose another.")
        if not 0 < len(self.name) <= LONGEST or directory_name(self.name) != self.name:
            allowed = f"at most {LONGEST} letters, digits and . _ = + -"
            raise UserError(f"--name {self.name} is not as names are: {allowed}.")
        return dataclasses.replace(method, name=self.name)

    def resolved(self) -> Self:
        """With every default that depends on another option filled in, and checked."""
        from gsf.nets import encoders

        encoders.find(self.encoder)
        method, stop = self.find_method(), self.stop_gradient
        parts = _options(self.parts, method)
        base = method.base.name
        if self.released and not method.losses:
            parts[base] = _replace_defaults(parts[base], method.base.value.released)
        elif self.released:
            if len(method.losses) > 1:
                raise UserError(
                    f"--released is the setting of one loss; {method.spec} has several."
                )
            [loss] = method.losses
            released = loss.value.released
            of_base = released.base.get(base, method.base.value.released_with_loss)
            stop = stop or released.stop_gradient
            parts[base] = _replace_defaults(parts[base], of_base)
            parts[loss.name] = _replace_defaults(parts[loss.name], released.config)
        config = dataclasses.replace(
            self,
            on=method.base.spec,
            stop_gradient=stop,
            aux_lr=self.lr if self.aux_lr is None else self.aux_lr,
            parts=parts,
        )
        if stop and not method.losses:
            raise UserError("--stop-gradient needs an auxiliary loss to train the encoder.")
        return config


@dataclass(frozen=True, kw_only=True)
class TrainConfig(AgentConfig, CodedOptions):
    """Train an agent offline: a base such as BC or CQL, alone or with an auxiliary loss."""

    dataset: Input[tyro.conf.Positional[Path]]
    """A dataset directory (`gsf materialise` or `gsf data import` make one)."""
    out: Incidental[Path]
    """Run directory to make; the same command goes on where it was stopped."""
    labels: Input[Path | None] = None
    """A labels directory (`gsf label` makes one), for gsf-<cumulant>."""
    seed: Seed = 0
    """Of weights, batches and crops."""
    grad_steps: Annotated[Extendable[Count], Group.SIZE] = 5_000
    """Gradient steps (paper: 1M). With more of them, a finished run goes on to exactly the weights
    it would have had."""
    batch: BatchSize = 256
    """Transitions per step (paper: 1024)."""
    n_levels: Count | None = None
    """Draw each batch from so many levels; by default from all, unless the loss asks for few."""
    keep: Annotated[int, between(1, 10_000)] = 1
    """Networks kept, evenly over training, the last step always: for learning curves. A run that
    goes on for longer keeps those it had, too."""
    checkpoint_every: Incidental[Count] = 500
    """Steps between checkpoints: what a kill can lose; Ctrl-C saves first."""
    wandb: Annotated[Incidental[bool], Group.OUTPUT] = False
    """Also log to Weights & Biases (pip install 'gsf-rl[wandb]'): offline, unless WANDB_MODE says
    otherwise."""
    log_every: Incidental[Count] = 50
    """Steps between rows of metrics, which are means over these steps."""
    device: Annotated[Incidental[Device], Group.MACHINE] = "auto"
    """Where networks run; auto: CUDA if there is one. mps: a GPU of Apple's, if asked for."""
    prefetch: Incidental[Annotated[int, between(0, 1000)] | None] = None
    """Batches drawn ahead by a thread; the result is the same. Default: 2 for a GPU, else 0."""

    @classmethod
    def owners(cls, given: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """The parts of the chosen method, with options of their own: --cql.alpha, --gsf.tau."""
        method, on = given.get("method"), given.get("on")
        if "help" in given and not (method or on):
            return {}  # without the files of a method, which need torch
        from gsf.learn import methods

        found = methods.find(method[0] if method else cls.method, on[0] if on else None)
        return {name: part.value.Config for name, part in found.parts.items()}

    @classmethod
    def owned(cls, options: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Options of owners as an option of this config."""
        return {"parts": options}

    def resolved(self) -> Self:
        cumulant = self.find_method().cumulant
        if cumulant is not None and self.labels is None:  # they would say whether it is theirs
            from gsf.gvf import cumulants

            cumulants.find(cumulant)
        return super().resolved()


def _options(given: Any, method: "Method") -> dict[str, Any]:
    """Of every part of the method, by its name: as given, else the defaults."""
    if strange := sorted(given.keys() - method.parts.keys()):
        known = ", ".join(method.parts)
        raise UserError(f"method {method.spec} has no {strange[0]} to take options, only {known}.")
    parts = {}
    for name, part in method.parts.items():
        options, expected, where = given.get(name, {}), part.value.Config, f"{name}."
        if isinstance(options, Mapping):
            options = from_json(expected, options, where)
        if not isinstance(options, expected):
            raise UserError(f"{name} takes options of its own, not {options!r}.")
        check(options, where)
        parts[name] = options
    return parts


def _replace_defaults(options: Any, values: Mapping[str, Any]) -> Any:
    """The values, except where an option already differs from its default: someone chose it."""
    kept = {f.name for f in dataclasses.fields(options) if getattr(options, f.name) == f.default}
    return dataclasses.replace(options, **{k: v for k, v in values.items() if k in kept})


@dataclass(frozen=True)
class CheckConfig(Options):
    """Check what gsf expects of your own base, loss, encoder, cumulant or suite."""

    name: tyro.conf.Positional[str]
    """file.py:Name, or the name of one that gsf has; file.py:Suite/game for one game alone."""
