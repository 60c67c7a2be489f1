"""What a busy neighbour costs: every stage with the machine to itself and beside another process.

Quiet and busy take turns. On n cores a neighbour that keeps one busy leaves n/(n + 1) of the time
to a process with n threads; a loss beyond that is threads waiting for each other.
"""

import contextlib
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from gsf.behaviour.collect import collect
from gsf.behaviour.options import CollectConfig
from gsf.bench.measure import GAME, medians, random_play, seconds_of, show, take_turns
from gsf.bench.options import BenchSharedConfig as BenchSharedConfig
from gsf.core import cores
from gsf.core.logs import silence
from gsf.data.materialise import MaterialiseConfig, materialise
from gsf.evaluation.evaluate import EvaluateConfig, evaluate
from gsf.gvf.fit import FitConfig, fit
from gsf.learn.options import TrainConfig
from gsf.learn.train import train

Stage = Callable[[Path], object]  # writes into the directory it is given


def bench_shared(config: BenchSharedConfig) -> dict[str, float]:
    """Speed of each stage beside a busy process, as a share of its speed without."""
    with contextlib.ExitStack() as stack:
        with silence():
            home = stack.enter_context(random_play(config.transitions))
            stages = _stages(config, home)
        outs = (home / f"out{number}" for number in itertools.count())
        timers = {
            f"{name}, {'busy' if busy else 'quiet'}": partial(_time, stage, outs, busy)
            for busy in (False, True)
            for name, stage in stages.items()
        }
        median = medians(take_turns(timers, config.rounds, "bench shared"))
    quiet = {name: median[f"{name}, quiet"] for name in stages}
    numbers = {f"{name}, quiet, seconds": x for name, x in quiet.items()}
    numbers |= {f"{x}, busy / quiet speed": quiet[x] / median[f"{x}, busy"] for x in stages}
    numbers["threads"] = cores.threads()
    show("gsf bench shared", numbers, config.out)
    return numbers


def _stages(config: BenchSharedConfig, home: Path) -> dict[str, Stage]:
    """Each a few seconds long, on the same small data."""
    recording, data, run = home / "play.gsfrec", home / "dataset", home / "run"
    steps, net = config.grad_steps, {"encoder": config.encoder, "batch": config.batch}
    small: Any = {**net, "allow_small_levels": True, "diagnose": False}
    fitted = partial(FitConfig, data, estimator="td", grad_steps=steps, **small)
    long: Any = {**net, "checkpoint_every": 1_000_000}
    trained = partial(TrainConfig, dataset=data, method="cql", **long)
    played = partial(CollectConfig, game=GAME, frames=512 * steps, transitions=64, encoder="nature")
    unseen: Any = {"splits": ("unseen",), "modes": ("sampled",), "n_unseen": 64}
    evaluated = partial(EvaluateConfig, str(run), max_frames=4 * steps, **unseen)
    train(trained(out=run, grad_steps=1))
    return {
        "collect": lambda out: collect(played(out=out)),
        "materialise": lambda out: materialise(MaterialiseConfig(str(recording), out)),
        "fit": lambda out: fit(fitted(out=out)),
        "train": lambda out: train(trained(out=out, grad_steps=steps)),
        "evaluate": lambda out: evaluate(evaluated(out=out / "rows.csv")),
    }


def _time(stage: Stage, outs: Iterator[Path], busy: bool) -> float:
    with silence(), _neighbour() if busy else contextlib.nullcontext():
        return seconds_of(lambda: stage(next(outs)))


@contextlib.contextmanager
def _neighbour() -> Iterator[None]:
    """A process that keeps one core busy."""
    process = subprocess.Popen([sys.executable, "-P", "-c", "while True: pass"])
    try:
        time.sleep(0.2)
        yield
    finally:
        process.kill()
        process.wait()
