"""What every `gsf bench` measures with: play to work on, turns, ratios, peaks of memory, a table.

Machines are noisy and differ, so whatever is compared takes turns, and what counts are ratios.
"""

import contextlib
import json
import multiprocessing
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from gsf.core.files import write_atomic
from gsf.core.logs import progress, silence
from gsf.core.processes import starting
from gsf.data.materialise import MaterialiseConfig, materialise
from gsf.data.recording import Recording
from gsf.data.replay import Recorder, play_blocks
from gsf.suites import find_game, make_env

GAME = "coinrun"  # networks and data are of the same size in all of its suite
N_ENVS = 64


def record_random(game: str, transitions: int, seed: int = 0) -> Recording:
    """Uniformly random play on the training levels."""
    suite, game = find_game(game)
    n_actions = len(suite.games[game].actions)
    env = make_env(game, suite.training_levels, N_ENVS, seed, copy=False)
    rng, recorder = np.random.default_rng(seed), Recorder(N_ENVS)
    n_steps = -(-transitions // N_ENVS)
    for block in play_blocks(env, lambda t, obs: rng.integers(0, n_actions, N_ENVS), n_steps):
        recorder.add(block)
    facts = {"policy": {"algorithm": "random"}, "epsilon": {"rule": "always random"}}
    return Recording(game, suite.difficulties[0], (recorder.finish(env, **facts),))


@contextlib.contextmanager
def random_play(transitions: int) -> Iterator[Path]:
    """A temporary directory with `play.gsfrec` and its `dataset`."""
    with tempfile.TemporaryDirectory(prefix="gsf-bench-") as directory:
        home = Path(directory)
        record_random(GAME, transitions).save(home / "play.gsfrec")
        materialise(MaterialiseConfig(str(home / "play.gsfrec"), home / "dataset"))
        yield home


def seconds_of(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def take_turns(
    timers: Mapping[str, Callable[[], float]], rounds: int, what: str
) -> dict[str, list[float]]:
    """The seconds that each timer returns, one call of each per round after one to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in timers}
    with progress(what, (rounds + 1) * len(timers), "turns") as advance:
        for turn in range(rounds + 1):
            for number, (name, timer) in enumerate(timers.items(), 1):
                seconds[name].append(timer())
                advance(turn * len(timers) + number)
    return {name: taken[1:] for name, taken in seconds.items()}


def medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def ratio(what: str, above: list[float], below: list[float]) -> dict[str, float]:
    """Median and quartiles, over the rounds, of the ratio of two that took turns."""
    found = [a / b for a, b in zip(above, below, strict=True)]
    quarters = statistics.quantiles(found, n=4) if len(found) > 1 else found * 3
    names = (f"{what}, lower quartile", what, f"{what}, upper quartile")
    return dict(zip(names, quarters, strict=True))


def peak_megabytes(work: Callable[..., Any], *arguments: Any) -> float:
    """Does the work in a process of its own: a process's peak never falls again."""
    with starting(), ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_peak, work, *arguments).result()


def _peak(work: Callable[..., Any], *arguments: Any) -> float:
    """Megabytes of this process at their peak; NaN where the system does not tell."""
    with silence():
        work(*arguments)
    status = Path("/proc/self/status")
    if status.is_file() and (found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return int(found[1]) / 1024
    if sys.platform == "darwin":
        import resource  # Linux has it, too, but there a process inherits its parent's mark

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return float("nan")


def show(title: str, numbers: Mapping[str, float], out: Path | None) -> None:
    table = Table(title=title)
    table.add_column("quantity")
    table.add_column("value", justify="right")
    for name, value in numbers.items():
        table.add_row(name, f"{value:,.0f}" if value >= 100 else f"{value:.3g}")
    Console().print(table)
    if out is not None:
        write_atomic(out, json.dumps(numbers, indent=1) + "\n")
