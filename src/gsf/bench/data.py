"""Speed and memory of every stage against what the machine can do, measured in one run.

Machines are noisy and differ, so what counts are ratios within a run: `gsf bench data` sets
materialising against the slowest of stepping, hashing and writing, and sampling against memcpy.
"""

import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from rich.console import Console
from rich.table import Table

from gsf.core.files import write_atomic
from gsf.core.options import Count, Options
from gsf.data.materialise import MaterialiseConfig, materialise
from gsf.data.recording import Recording
from gsf.data.replay import Recorder, play_blocks
from gsf.suites import facts_of, find_game, make_env

N_ENVS = 64
SAMPLE_SECONDS, SAMPLE_ROUNDS = 0.3, 10  # of sampling and of copying, in turn


@dataclass(frozen=True)
class BenchDataConfig(Options):
    """Measure stepping, hashing, writing, materialising and sampling in one run."""

    game: str = "coinrun"
    """Which game to play."""
    transitions: Count = 200_000
    """How much random play to record and materialise."""
    workdir: Path | None = None
    """Where to write: the disk to measure. Default: the system's temporary folder."""
    out: Path | None = None
    """Also write the numbers as JSON to this file."""


def bench_data(config: BenchDataConfig) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="gsf-bench-", dir=config.workdir) as directory:
        numbers = _measure_data(config, Path(directory))
    show("gsf bench data", numbers, config.out)
    return numbers


def _measure_data(config: BenchDataConfig, directory: Path) -> dict[str, float]:
    recording = record_random(config.game, config.transitions)
    path, n = directory / "bench.gsfrec", len(recording)
    recording.save(path)
    frame_bytes = math.prod(facts_of(config.game).obs_shape)
    frames_per_second = {
        "step": n / _seconds(lambda: _step(recording)),
        "hash": n / _seconds(lambda: _hash(n, frame_bytes)),
        "write": n / _seconds(lambda: _write(directory / "plain", n, frame_bytes)),
        "materialise": n
        / _seconds(lambda: materialise(MaterialiseConfig(str(path), directory / "dataset"))),
    }
    slowest = min(frames_per_second[limit] for limit in ("step", "hash", "write"))
    numbers = {f"{name}, frames/s": speed for name, speed in frames_per_second.items()}
    numbers["materialise / slowest of step, hash, write"] = (
        frames_per_second["materialise"] / slowest
    )
    numbers["materialise, peak resident MB"] = _peak_megabytes(path, directory / "again")
    numbers["recording, bytes a transition"] = path.stat().st_size / n
    for batch in (256, 1024):
        numbers |= _measure_sampling(directory / "dataset", batch, frame_bytes)
    return numbers


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


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _step(recording: Recording) -> None:
    take = recording.takes[0]
    env = make_env(recording.game, take.levels, take.n_envs, take.seed, copy=False)
    for action in take.actions:
        env.step(action)


def _hash(n: int, frame_bytes: int) -> None:
    frame = np.zeros(frame_bytes, np.uint8)
    state = xxhash.xxh3_64()
    for _ in range(n):
        state.update(frame.data)


def _write(path: Path, n: int, frame_bytes: int) -> None:
    chunk = np.random.default_rng(0).bytes(64 * frame_bytes)
    with open(path, "wb", buffering=0) as file:
        for _ in range(n // 64):
            file.write(chunk)
        os.fsync(file.fileno())
    path.unlink()


def _peak_megabytes(recording: Path, out: Path) -> float:
    """Of a process of its own: the high-water mark never falls again."""
    argv = ["materialise", str(recording), "--out", str(out)]
    code = f"import gsf.cli, gsf.bench.data as b; gsf.cli.main({argv}); print(b.peak_megabytes())"
    command = [sys.executable, "-P", "-c", code]  # without the current folder
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def peak_megabytes() -> float:
    """Of this process; NaN where the system does not tell."""
    status = Path("/proc/self/status")
    if status.is_file() and (found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return int(found[1]) / 1024
    if sys.platform == "darwin":
        import resource  # not on Linux: its mark is inherited from the process that forked this one

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return float("nan")


def _measure_sampling(path: Path, batch: int, frame_bytes: int) -> dict[str, float]:
    from gsf.data.dataset import Dataset
    from gsf.nets.runtime import keep_freed_memory

    keep_freed_memory()  # as training does
    dataset, rng = Dataset.open(path), np.random.default_rng(0)
    source = np.ones(2 * batch * frame_bytes, np.uint8)  # what obs and next_obs of a batch weigh
    goal = np.zeros_like(source)
    first = _rate(lambda: dataset.sample(batch, rng))
    for start in range(0, len(dataset.obs), batch):
        dataset.obs.check(np.arange(start, min(start + batch, len(dataset.obs))))
    rounds = [
        (_rate(lambda: dataset.sample(batch, rng)), _rate(lambda: np.copyto(goal, source)))
        for _ in range(SAMPLE_ROUNDS)
    ]
    sample, memcpy = np.median(rounds, axis=0)
    return {
        f"sample {batch}, transitions/s": batch * sample,
        f"sample {batch}, while frames are checked, transitions/s": batch * first,
        f"sample {batch}, GB/s": sample * source.nbytes / 1e9,
        f"memcpy of as much, GB/s ({batch})": memcpy * source.nbytes / 1e9,
        f"sample {batch} / memcpy": float(np.median([one / other for one, other in rounds])),
    }


def _rate(work: Callable[[], Any]) -> float:
    """Calls a second."""
    start, n = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < SAMPLE_SECONDS:
        work()
        n += 1
    return n / elapsed


def show(title: str, numbers: dict[str, float], out: Path | None) -> None:
    table = Table(title=title)
    table.add_column("quantity")
    table.add_column("value", justify="right")
    for name, value in numbers.items():
        table.add_row(name, f"{value:,.0f}" if value >= 100 else f"{value:.3g}")
    Console().print(table)
    if out is not None:
        write_atomic(out, json.dumps(numbers, indent=1) + "\n")
