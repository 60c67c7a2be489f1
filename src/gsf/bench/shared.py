"""What a busy neighbour costs: every stage with the machine to itself and beside another process.

Quiet and busy take turns. On n cores a neighbour that keeps one busy leaves n/(n + 1) of the time
to a process with n threads; what is lost beyond that, threads lose by waiting for each other.
"""

import contextlib
import io
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gsf.behaviour.collect import collect
from gsf.behaviour.options import CollectConfig
from gsf.bench.data import record_random, show
from gsf.bench.options import GAME, BenchSharedConfig
from gsf.core import cores
from gsf.core.logs import console, progress
from gsf.data.materialise import MaterialiseConfig, materialise
from gsf.evaluation.evaluate import EvaluateConfig, evaluate
from gsf.gvf.fit import FitConfig, fit
from gsf.learn.options import TrainConfig
from gsf.learn.train import train

Stage = Callable[[Path], object]  # given an empty directory to write in


def bench_shared(config: BenchSharedConfig) -> dict[str, float]:
    """Speed of each stage beside a busy process, as a share of its speed without."""
    with tempfile.TemporaryDirectory(prefix="gsf-bench-") as directory:
        home = Path(directory)
        with _silence():
            stages = _stages(config, home)
        seconds: dict[tuple[str, bool], list[float]] = {}
        turns = [
            (turn, busy, name)
            for turn in range(config.rounds + 1)
            for busy in (False, True)
            for name in stages
        ]
        with progress("bench shared", len(turns), "stages") as advance:
            for number, (turn, busy, name) in enumerate(turns, 1):
                with _neighbour() if busy else contextlib.nullcontext():
                    taken = _time(stages[name], home / f"{turn}-{busy}-{name}")
                if turn:  # the first warms up
                    seconds.setdefault((name, busy), []).append(taken)
                advance(number)
    median = {key: statistics.median(taken) for key, taken in seconds.items()}
    numbers = {f"{name}, quiet, seconds": median[name, False] for name in stages}
    numbers |= {
        f"{name}, busy / quiet speed": median[name, False] / median[name, True] for name in stages
    }
    numbers["threads"] = cores.threads()
    show("gsf bench shared", numbers, config.out)
    return numbers


def _stages(config: BenchSharedConfig, home: Path) -> dict[str, Stage]:
    """Each a few seconds long, on the same small data."""
    recording, data, run = home / "play.gsfrec", home / "dataset", home / "run"
    record_random(GAME, config.transitions).save(recording)
    materialise(MaterialiseConfig(str(recording), data))
    learner: dict[str, Any] = {
        "encoder": config.encoder,
        "batch": config.batch,
        "checkpoint_every": 1_000_000,
    }
    train(TrainConfig(dataset=data, out=run, method="cql", grad_steps=1, **learner))
    steps = config.grad_steps
    return {
        "collect": lambda out: collect(
            CollectConfig(game=GAME, out=out, frames=steps * 512, transitions=64, encoder="nature")
        ),
        "materialise": lambda out: materialise(MaterialiseConfig(str(recording), out)),
        "fit": lambda out: fit(
            FitConfig(
                data,
                out,
                estimator="td",
                grad_steps=steps,
                allow_small_levels=True,
                diagnose=False,
                encoder=config.encoder,
                batch=config.batch,
            )
        ),
        "train": lambda out: train(
            TrainConfig(dataset=data, out=out, method="cql", grad_steps=steps, **learner)
        ),
        "evaluate": lambda out: evaluate(
            EvaluateConfig(
                str(run),
                out=out / "rows.csv",
                splits=("unseen",),
                modes=("sampled",),
                n_unseen=64,
                max_frames=4 * steps,
            )
        ),
    }


def _time(stage: Stage, out: Path) -> float:
    with _silence():
        start = time.perf_counter()
        stage(out)
        return time.perf_counter() - start


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


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Stages say nothing; the bar of the whole stays."""
    before, console.quiet = console.quiet, True
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        console.quiet = before
