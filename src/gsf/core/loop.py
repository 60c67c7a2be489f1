"""The one training loop: step, log, save, stop, go on. Agents, GVFs and PPO all learn in it.

Out: metrics.jsonl and tensorboard/, checkpoint.pt (everything, to go on bit for bit) and
checkpoints/step_<N>.pt (networks kept on the way). A kill loses what came after the last
checkpoint; Ctrl-C saves first.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gsf.core.errors import UserError
from gsf.core.interrupts import stoppable
from gsf.core.logs import Metrics, console, progress
from gsf.core.presets import shorter_presets
from gsf.core.schema import COUNT, NUMBER
from gsf.core.sealed import checked, fitting, load_checkpoint, save_checkpoint

CHECKPOINT = "checkpoint.pt"
DIVERGED = 1e6  # a loss beyond this never came back


@dataclass
class Position:
    """Where training is, beyond what it trains."""

    step: int = 0
    seconds: float = 0.0  # over all restarts
    sums: dict[str, float] = field(default_factory=dict)  # of metrics since their last row
    n_summed: int = 0


FORM = {"step": COUNT, "seconds": NUMBER, "sums": {str: float}, "n_summed": COUNT}


@dataclass(frozen=True, kw_only=True)
class Loop:
    """What is trained and how far; when it is logged and saved."""

    out: Path
    name: str  # the first word beside the bar, "ppo coinrun", and of metrics, "ppo/seconds"
    of: str  # the second word beside the bar
    total: tuple[str, str, int]  # whose option says how many steps: verb, option, number
    step: Callable[[], Mapping[str, Tensor | float]]  # one step; its metrics
    state: Callable[[], Mapping[str, Any]]  # everything that going on takes
    load: Callable[[dict[str, Any]], None]
    modules: Iterable[nn.Module]  # a weight that is not finite is never saved
    read: Callable[[Path], dict[str, Any]] = load_checkpoint
    stride: int = 1  # how much one call of `step` counts
    log_every: int = 50
    save_every: float = math.inf  # steps
    save_seconds: float = math.inf
    keep: int = 0  # how many checkpoints/step_<N>.pt there will be, evenly over training
    kept: tuple[str, ...] = ()  # which parts of the state they hold
    shown: tuple[str, ...] = ("/loss",)  # ends of metrics' names, beside the bar
    advice: str = "Try a lower --lr."
    tensorboard: bool = True
    wandb: bool = False

    def run(self, begin: int = 0) -> Position:
        """Trains to the end, from the last checkpoint if there is one, else from `begin`."""
        steps, at = self.total[2], self._resume() or Position(begin)
        tally, shown, keep = Tally(at), dict[str, float](), kept_steps(steps, self.keep)
        saved, saved_at = at.step, time.monotonic()
        started = saved_at - at.seconds
        with (
            stoppable() as stop,
            contextlib.closing(
                Metrics(self.out, at.step, tensorboard=self.tensorboard, wandb=self.wandb)
            ) as metrics,
            progress(
                f"{self.name} {self.of}", steps, f"{self._unit}s", shorter_presets(*self.total)
            ) as advance,
        ):
            while at.step < steps:
                tally.add(self.step())
                now = time.monotonic()
                at.step, at.seconds = at.step + self.stride, now - started
                last, stopping = at.step >= steps, stop.asked
                log = last or at.step % self.log_every < self.stride
                save = last or stopping or at.step in keep or now - saved_at >= self.save_seconds
                save |= at.step % self.save_every < self.stride
                if log or save:
                    means = {name: total / tally.n for name, total in tally.sums.items()}
                    self._check(means, at.step, saved)
                if log:
                    metrics.write(at.step, means | {f"{self.name}/seconds": at.seconds})
                    shown = {name: x for name, x in means.items() if name.endswith(self.shown)}
                    tally.n = 0
                if save:
                    at.sums, at.n_summed = tally.sums, tally.n
                    self._save(at, at.step in keep)
                    saved, saved_at = at.step, now
                    stop.kept = f"{self._unit} {saved:,} of {steps:,} is saved in {self.out}"
                advance(at.step, **shown)
                if stopping:
                    break
        return at

    @property
    def _unit(self) -> str:
        return self.total[1].rpartition("_")[2].removesuffix("s")

    def _resume(self) -> Position | None:
        if not (path := self.out / CHECKPOINT).is_file():
            return None
        state = checked(path, self.read(path), FORM)
        at = Position(**{name: state[name] for name in FORM})
        _, option, steps = self.total
        if at.step >= steps + self.stride:
            raise UserError(
                f"{self.out} is at {self._unit} {at.step:,} already; ask for at least as many "
                f"--{option.replace('_', '-')}, or choose another --out."
            )
        with fitting(path):
            self.load(state)
        console.print(f"going on from {self._unit} {at.step:,}.")
        return at

    def _save(self, at: Position, keep: bool) -> None:
        state = {**self.state(), **dataclasses.asdict(at)}
        if keep:
            path = self.out / "checkpoints" / f"step_{at.step}.pt"
            save_checkpoint(path, {name: state[name] for name in (*self.kept, *FORM)})
        save_checkpoint(self.out / CHECKPOINT, state)

    def _check(self, means: Mapping[str, float], step: int, saved: int) -> None:
        """Refuses to log or save what has diverged."""
        losses = {name: x for name, x in means.items() if name.endswith("loss")}
        wrong = [f"{name} is {x:g}" for name, x in losses.items() if not abs(x) <= DIVERGED]  # NaN
        if wrong or not all_finite(self.modules):
            said, latest = [*wrong, "a weight is not finite"][0], self.out / CHECKPOINT
            last = f"the last good checkpoint, of {self._unit} {saved:,}, is {latest}"
            kept = last if latest.is_file() else "nothing is kept"
            at = f"training diverged by {self._unit} {step:,}"
            raise UserError(f"{at}: {said}; {kept}. {self.advice}")


class Tally:
    """Metrics since their last row, summed where they are computed: no step waits for a GPU."""

    def __init__(self, at: Position) -> None:
        self.names, self.n = list(at.sums), at.n_summed
        self._sums = torch.tensor(list(at.sums.values()), dtype=torch.float64)

    def add(self, info: Mapping[str, Tensor | float]) -> None:
        values = torch.stack([_double(x) for x in info.values()])
        if not self.n:
            self.names, self._sums = list(info), torch.zeros_like(values)
        self._sums = self._sums.to(values.device) + values
        self.n += 1

    @property
    def sums(self) -> dict[str, float]:
        return dict(zip(self.names, self._sums.tolist(), strict=True)) if self.n else {}


def _double(x: Tensor | float) -> Tensor:
    on_mps = isinstance(x, Tensor) and x.device.type == "mps"  # which has no float64
    return torch.as_tensor(x, dtype=torch.float64, device="cpu" if on_mps else None)


def all_finite(modules: Iterable[nn.Module]) -> bool:
    return all(bool(p.isfinite().all()) for module in modules for p in module.parameters())


def kept_steps(steps: int, keep: int) -> set[int]:
    return {math.ceil(steps * (i + 1) / keep) for i in range(keep)}
