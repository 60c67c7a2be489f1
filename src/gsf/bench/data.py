"""Speed and memory of the data path against what the machine can do, measured in one run.

Materialising is set against the slowest of stepping, hashing and writing, sampling against memcpy.
"""

import math
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from gsf.bench.measure import (
    medians,
    peak_megabytes,
    ratio,
    record_random,
    seconds_of,
    show,
    take_turns,
)
from gsf.bench.options import BenchDataConfig as BenchDataConfig
from gsf.data.dataset import Dataset
from gsf.data.materialise import MaterialiseConfig, materialise
from gsf.data.recording import Recording
from gsf.nets.runtime import keep_freed_memory
from gsf.suites import facts_of, make_env

SAMPLE_SECONDS, SAMPLE_ROUNDS = 0.3, 10  # of sampling and of copying, in turn


def bench_data(config: BenchDataConfig) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="gsf-bench-", dir=config.workdir) as directory:
        numbers = _measure(config, Path(directory))
    show("gsf bench data", numbers, config.out)
    return numbers


def _measure(config: BenchDataConfig, home: Path) -> dict[str, float]:
    recording = record_random(config.game, config.transitions)
    path, n = home / "bench.gsfrec", len(recording)
    recording.save(path)
    frame_bytes = math.prod(facts_of(config.game).obs_shape)
    whole = MaterialiseConfig(str(path), home / "dataset")
    limits: dict[str, Callable[[], Any]] = {
        "step": partial(_step, recording),
        "hash": partial(_hash, n, frame_bytes),
        "write": partial(_write, home / "plain", n, frame_bytes),
    }
    speeds = {name: n / seconds_of(work) for name, work in limits.items()}
    slowest = min(speeds.values())
    speeds["materialise"] = n / seconds_of(lambda: materialise(whole))
    again = MaterialiseConfig(str(path), home / "again")
    return {
        **{f"{name}, frames/s": speed for name, speed in speeds.items()},
        "materialise / slowest of step, hash, write": speeds["materialise"] / slowest,
        "materialise, peak resident MB": peak_megabytes(materialise, again),
        "recording, bytes a transition": path.stat().st_size / n,
        **_sampling(home / "dataset", 256, frame_bytes),
        **_sampling(home / "dataset", 1024, frame_bytes),
    }


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


def _sampling(path: Path, batch: int, frame_bytes: int) -> dict[str, float]:
    keep_freed_memory()  # as training does
    dataset, rng = Dataset.open(path), np.random.default_rng(0)
    source = np.ones(2 * batch * frame_bytes, np.uint8)  # what obs and next_obs of a batch weigh
    goal = np.zeros_like(source)
    sample = partial(_seconds_a_call, lambda: dataset.sample(batch, rng))
    first = sample()
    for start in range(0, len(dataset.obs), batch):
        dataset.obs.check(np.arange(start, min(start + batch, len(dataset.obs))))
    timers = {"sample": sample, "memcpy": partial(_seconds_a_call, lambda: np.copyto(goal, source))}
    taken = take_turns(timers, SAMPLE_ROUNDS, f"bench data, sample {batch}")
    seconds = medians(taken)
    return {
        f"sample {batch}, transitions/s": batch / seconds["sample"],
        f"sample {batch}, while frames are checked, transitions/s": batch / first,
        f"sample {batch}, GB/s": source.nbytes / seconds["sample"] / 1e9,
        f"memcpy of as much, GB/s ({batch})": source.nbytes / seconds["memcpy"] / 1e9,
        f"sample {batch} / memcpy": ratio("sample", taken["memcpy"], taken["sample"])["sample"],
    }


def _seconds_a_call(work: Callable[[], Any]) -> float:
    start, n = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < SAMPLE_SECONDS:
        work()
        n += 1
    return elapsed / n
