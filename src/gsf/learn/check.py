"""`gsf check file.py:Name`: whether somebody's own code keeps what gsf relies on.

In: the name of a loss, a base, an encoder, a cumulant or a suite. Out: a sentence for each promise,
kept or broken. What learns is tried on a small made-up dataset; gsf's own are tested by the same
functions. Here are those of what learns; promises/ has the others.
"""

import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gsf.core.errors import FoundWrongError, UserError
from gsf.core.logs import silence
from gsf.core.sealed import load_checkpoint, save_checkpoint
from gsf.data.dataset import Dataset
from gsf.learn import bases, corridor, losses, methods
from gsf.learn.bases import Base
from gsf.learn.context import Context, Info, Past
from gsf.learn.learner import Learner
from gsf.learn.losses import AuxiliaryLoss
from gsf.learn.options import AgentConfig
from gsf.learn.options import CheckConfig as CheckConfig
from gsf.learn.promises import BrokenError, require, suites
from gsf.learn.promises import cumulants as of_cumulants
from gsf.nets import encoders

STEPS, PATIENCE, BATCH = 20, 10, 16
LEARNT = 0.02  # of itself: how much a loss has to fall


@dataclass(frozen=True)
class Subject:
    """What is checked, and what it is tried with."""

    kind: Any
    spec: str
    dataset: Dataset
    method: str = "bc"
    encoder: str = "impala_small"
    labels: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # while it learns

    def learner(self, seed: int = 0, **options: Any) -> Learner:
        config = AgentConfig(method=self.method, encoder=self.encoder, **options)
        return Learner(config, self.dataset, np.random.default_rng(seed), self.labels)

    def part(self, learner: Learner) -> Base | AuxiliaryLoss:
        return next(iter(learner.losses.values()), learner.base)

    def loss(self, learner: Learner, seed: int = 0, n: int = 32) -> tuple[Tensor, Info, Context]:
        rng = np.random.default_rng(seed)
        batch = learner.base.sample(self.dataset, n, rng, learner.n_levels)
        context = learner.look(batch, rng)
        arguments = (context,) if learner.losses else (context.z, context)
        loss, info = self.part(learner)(*arguments)
        return loss, info, context

    def step(self, learner: Learner, seed: int) -> dict[str, float]:
        rng = np.random.default_rng(seed)
        batch, drawn = learner.draw(BATCH, rng)
        return {name: float(x) for name, x in learner.update(batch, rng, drawn).items()}


def describes_itself(subject: Subject) -> None:
    """It has a name, and a frozen dataclass Config whose options all have defaults."""
    kind, config = subject.kind, getattr(subject.kind, "Config", None)
    require(isinstance(getattr(kind, "name", None), str), "there is no class attribute `name`")
    require(dataclasses.is_dataclass(config), "there is no dataclass `Config` in it")
    frozen = config.__dataclass_params__.frozen  # type: ignore[union-attr]
    require(frozen, "Config is not frozen: write @dataclass(frozen=True)")
    config()  # type: ignore[misc]


def is_a_finite_scalar(subject: Subject) -> None:
    """Its loss is one finite number, and so is each of its metrics."""
    loss, info, _ = subject.loss(subject.learner())
    require(loss.shape == (), f"the loss has shape {list(loss.shape)}")
    require(bool(loss.isfinite()), f"the loss is {loss.item()}")
    for name, value in info.items():
        require("/" not in name, f"metric {name!r} has a slash; gsf puts the name before it")
        number = torch.as_tensor(value).detach().item()
        require(bool(np.isfinite(number)), f"metric {name} is {number}")


def trains_the_encoder_and_no_target(subject: Subject) -> None:
    """Its gradient reaches the encoder and whatever it trains, and no target network."""
    learner = subject.learner()
    loss, _, _ = subject.loss(learner)
    require(loss.requires_grad, "the loss has no gradient at all")
    loss.backward()  # type: ignore[no-untyped-call]
    first = next(learner.encoder.parameters())
    require(first.grad is not None and bool(first.grad.any()), "no gradient reaches the encoder")
    frozen = all(p.grad is None for p in learner.target_encoder.parameters())
    require(frozen, "a gradient reaches the target encoder: encode under torch.no_grad()")
    if learner.losses:
        own = all(p.grad is None for p in learner.base.parameters())
        require(own, "a gradient reaches the base's heads, which are not its to train")
    for name, p in subject.part(learner).named_parameters():
        still = "target" in name and p.requires_grad
        require(not still, f"{name} is called a target but can be trained: use frozen_copy")
        reached = p.requires_grad == (p.grad is not None)
        require(reached, f"{name} can be trained but no gradient reaches it: freeze it")


def same_seed_same_value(subject: Subject) -> None:
    """The same seed gives the same numbers, another seed others; no global stream is drawn from."""

    def run(seed: int) -> list[dict[str, float]]:
        learner = subject.learner(seed)
        return [subject.step(learner, seed + i) for i in range(3)]

    torch_before, numpy_before = torch.get_rng_state(), _numpy_stream()
    first = run(0)
    drawn = not torch.equal(torch_before, torch.get_rng_state())
    require(not drawn, "it draws from torch's global stream: take random numbers from `rng`")
    drawn = not np.array_equal(numpy_before, _numpy_stream())
    require(not drawn, "it draws from numpy's global stream: take random numbers from `rng`")
    require(first == run(0), "two runs of one seed differ")
    require(first != run(1), "runs of two seeds are the same")


def _numpy_stream() -> Any:
    return np.append(*(np.random.get_state(legacy=False)["state"][x] for x in ("key", "pos")))  # noqa: NPY002


def says_what_it_needs(subject: Subject) -> None:
    """Without what it says it needs, it refuses with a sentence."""
    spec: Any = subject.learner().spec
    config = subject.kind.Config()
    for need in subject.kind.needs:
        try:
            subject.kind(config, dataclasses.replace(spec, **{need: None}))
        except UserError:
            continue
        raise BrokenError(
            f"without {need} it is made all the same: call super().__init__(config, spec)"
        )


def falls_as_it_is_learnt(subject: Subject) -> None:
    """Its loss falls within 200 steps on data that is easy to learn."""
    learner = subject.learner(**subject.options)

    def measure() -> float:  # on the same batches and crops
        with torch.no_grad():
            values = [subject.loss(learner, seed)[0].item() for seed in range(3)]
        return float(np.mean(values))

    before, rng = measure(), np.random.default_rng(0)
    for _ in range(PATIENCE):  # most have learnt it after the first of these
        for _ in range(STEPS):
            subject.step(learner, int(rng.integers(2**31)))
        after = measure()
        if before - after > LEARNT * abs(before):
            return
    raise BrokenError(f"it went from {before:.4g} to {after:.4g}")


def goes_on_from_what_was_saved(subject: Subject) -> None:
    """Saved, loaded and trained on, it is what it would have been, bit for bit."""
    whole, resumed = subject.learner(0), subject.learner(1)
    for seed in range(2):
        subject.step(whole, seed)
    with tempfile.TemporaryDirectory(prefix="gsf-check-") as directory:
        save_checkpoint(Path(directory) / "checkpoint.pt", whole.state())
        resumed.load(load_checkpoint(Path(directory) / "checkpoint.pt"))
    for seed in (2, 3):
        same = subject.step(whole, seed) == subject.step(resumed, seed)
        require(same, "something it learns or remembers is no parameter and no buffer")


def scores_every_action(subject: Subject) -> None:
    """Its scores are a finite number for each action of each observation."""
    learner = subject.learner()
    _, _, context = subject.loss(learner, n=8)
    scores, wanted = context.scores, [8, subject.dataset.n_actions]
    require(list(scores.shape) == wanted, f"scores have shape {list(scores.shape)}, not {wanted}")
    require(bool(scores.isfinite().all()), "some scores are not finite")


def acts_by_its_own_episode(subject: Subject) -> None:
    """What it remembers of its episode is all that its scores depend on beside the image."""
    learner = subject.learner()
    _, _, context = subject.loss(learner, n=8)
    n_steps, n = max(1, learner.base.memory), len(context.z)
    z, action = context.z.detach(), context.batch.action
    now = torch.arange(n, device=z.device) % n_steps
    past = Past(
        z[:, None].repeat(1, n_steps, 1),
        action[:, None].repeat(1, n_steps),
        torch.zeros(n, n_steps, device=z.device),
        now,
    )
    with torch.no_grad():
        scores = learner.base.scores_in(past)
        behind = torch.arange(n_steps, device=z.device) > now[:, None]
        for x in (past.z, past.action, past.received):
            x[behind] = 0 * x[behind] + 1
        require(
            torch.allclose(scores, learner.base.scores_in(past), atol=1e-5),
            "scores depend on steps that are still to come",
        )
        alone = learner.base.scores_in(past.map(lambda x: x[:3]))
    require(torch.allclose(scores[:3], alone, atol=1e-5), "slots know of each other")


def learns_from_the_z_it_is_given(subject: Subject) -> None:
    """Where z is cut from the encoder, no gradient finds another way there."""
    learner = subject.learner()
    _, _, context = subject.loss(learner)
    learner.base(context.z.detach(), context)[0].backward()
    cut = all(p.grad is None for p in learner.encoder.parameters())
    require(cut, "it looks at context.z or encodes with gradient: use the z it is given")


def carries_an_auxiliary_loss(subject: Subject) -> None:
    """An auxiliary loss trains on top of it, in one step and alternating."""
    for update in ("joint", "alternating"):
        config = AgentConfig(
            method="curl", on=subject.method, update=update, encoder="impala_small"
        )
        learner = Learner(config, subject.dataset, np.random.default_rng(0))
        values = subject.step(learner, 0).values()
        require(all(map(np.isfinite, values)), f"--update {update}: a metric is not finite")


def says_what_to_tune(subject: Subject) -> None:
    """`tuning` is a grid of four settings of options that there are, the first the default."""
    tuning = subject.kind.tuning
    known = {f.name: f.default for f in dataclasses.fields(subject.kind.Config)}
    known |= {f"train.{f.name}": f.default for f in dataclasses.fields(AgentConfig)}
    for option, values in tuning.items():
        require(option in known, f"there is no option {option}")
        require(float(values[0]) == known[option], f"{option} does not begin with its default")
    sizes = [len(values) for values in tuning.values()]
    require(int(np.prod(sizes)) == 4, f"a grid of {sizes} does not make four settings")
    require(sizes[0] >= 2, "the first option needs two values, to be tried with a loss's")


def sees_each_image_by_itself(subject: Subject) -> None:
    """An image's z is the same alone and among others, finite, and trains every weight."""
    encoder = subject.learner().encoder
    obs = subject.dataset.observations(np.arange(8))
    z = encoder(obs)
    require(bool(z.isfinite().all()), "z is not finite")
    near = torch.allclose(encoder(obs[:1])[0], z[0], atol=1e-5)
    require(near, "z depends on the other images of the batch: no batch normalisation")
    z.square().sum().backward()
    still = [name for name, p in encoder.named_parameters() if p.grad is None]
    require(not still, f"no gradient reaches {', '.join(still)}")


Promise = Callable[[Subject], None]
_LEARNS: tuple[Promise, ...] = (
    is_a_finite_scalar,
    trains_the_encoder_and_no_target,
    same_seed_same_value,
    falls_as_it_is_learnt,
    goes_on_from_what_was_saved,
)
OF_LOSSES: tuple[Promise, ...] = (describes_itself, *_LEARNS, says_what_it_needs)
OF_BASES: tuple[Promise, ...] = (
    describes_itself,
    *_LEARNS,
    scores_every_action,
    acts_by_its_own_episode,
    learns_from_the_z_it_is_given,
    carries_an_auxiliary_loss,
    says_what_to_tune,
)
OF_ENCODERS: tuple[Promise, ...] = (sees_each_image_by_itself, *_LEARNS)  # behaviour cloning on it


def of_loss(spec: str, dataset: Dataset, labels: Path) -> Subject:
    kind = losses.find(spec).value
    alone = {"on": "bc", "stop_gradient": True}  # the loss alone trains the encoder
    if "labels" in kind.needs:
        return Subject(kind, spec, dataset, f"{spec}-reward", labels=labels, options=alone)
    return Subject(kind, spec, dataset, spec, options=alone)


def of_base(spec: str, dataset: Dataset) -> Subject:
    return Subject(bases.find(spec).value, spec, dataset, spec)


def of_encoder(spec: str, dataset: Dataset) -> Subject:
    return Subject(encoders.find(spec).value, spec, dataset, encoder=spec)


def _promised(spec: str, home: Path) -> list[tuple[Callable[[Any], None], Any]]:
    """What the user's `spec` promises, whichever door it is for, and what that is tried on."""
    if suites.owns(spec):
        return [(promise, x) for x in suites.subjects(spec) for promise in suites.of_suite(x)]
    with silence():
        dataset = corridor.write_dataset(home / "dataset")
        labels = corridor.write_labels(home / "labels", dataset)
    if of_cumulants.owns(spec):
        of = of_cumulants.Subject(spec, dataset)
        return [(promise, of) for promise in of_cumulants.OF_CUMULANTS]
    if bases.owns(spec):
        subject, promises = of_base(spec, dataset), OF_BASES
    elif encoders.owns(spec):
        subject, promises = of_encoder(spec, dataset), OF_ENCODERS
    elif losses.owns(spec):
        subject, promises = of_loss(spec, dataset, labels), OF_LOSSES
    elif ".py:" in spec and not spec.startswith("gsf-"):
        raise UserError(f"{spec} is no base, loss, encoder, cumulant or suite (docs/extending.md).")
    else:
        methods.find(spec)  # says what is wrong with it
        raise UserError(f"{spec} is a method; name its loss or its base alone.")
    return [(promise, subject) for promise in promises]


def check(config: CheckConfig) -> None:
    """Prints a sentence for each promise; exit code 1 if one is broken."""
    broken, game = 0, None
    with tempfile.TemporaryDirectory(prefix="gsf-check-") as directory:
        for promise, subject in _promised(config.name, Path(directory)):
            if game != (game := getattr(subject, "game", None)):
                print(f"{game}:")
            why = _attempt(promise, subject)
            broken += why is not None
            print(
                f"{'kept  ' if why is None else 'BROKEN'}  {' '.join(str(promise.__doc__).split())}"
            )
            if why is not None:
                print(f"        {why}")
    print(f"{config.name} breaks {broken}." if broken else f"{config.name} is as gsf expects it.")
    if broken:
        raise FoundWrongError(f"{broken} promises are broken")


def _attempt(promise: Callable[[Any], None], subject: Any) -> str | None:
    """How it is broken, if it is."""
    try:
        promise(subject)
    except (BrokenError, UserError) as error:
        return str(error)
    except Exception as error:  # whatever a user's code may raise
        return f"{type(error).__name__}: {error}"
    return None
