"""Frames that PPO plays and learns from in a second of one core, ours beside CleanRL's.

CleanRL's is a program: it runs as it is, in a process of its own, and is watched from outside. It
prints a line after every update; the system says how much of a core it has used by then.
"""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gsf.behaviour.hold import held
from gsf.behaviour.options import ON_CPU, PPOConfig
from gsf.behaviour.ppo import PPO
from gsf.bench.measure import medians, ratio, show, take_turns
from gsf.bench.options import BenchCollectConfig as BenchCollectConfig
from gsf.core.errors import UserError
from gsf.core.processes import starting
from gsf.nets.precision import PRECISIONS
from gsf.suites import facts_of, find_game, make_env

PROGRAM = Path("cleanrl/ppo_procgen.py")
NEEDS = ("gym", "procgen", "torch", "tyro", "tensorboard", "numpy")
LACKS = "import importlib.util as u, sys; print(*[x for x in sys.argv[1:] if not u.find_spec(x)])"
# Published, and CleanRL's defaults; `n_steps` is that of the benchmark.
SCHEDULE: dict[str, Any] = {"n_envs": 64, "minibatches": 8, "epochs": 3, "view": "game"}


def bench_collect(config: BenchCollectConfig) -> dict[str, float]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with contextlib.ExitStack() as stack:
            theirs = stack.enter_context(_cleanrl(config)) if config.against else None
            updates: dict[str, Callable[[], float]] = {"CleanRL, impala": theirs} if theirs else {}
            for name, schedule in _ours(config).items():
                for precision in PRECISIONS:
                    options = PPOConfig(**schedule, precision=precision, device="cpu")
                    ppo = _ppo(config.game, options)
                    stack.callback(ppo.env.close)
                    updates[f"ours, {name}, {precision}"] = _timed(ppo, options.frames_per_update)
            seconds = take_turns(updates, config.rounds, "bench collect")
    finally:
        torch.set_num_threads(threads)
    median = medians(seconds)
    numbers = {f"{name}, frames per core-second": 1 / x for name, x in median.items()}
    if theirs:
        for name in list(seconds)[1:]:
            numbers |= ratio(f"{name} / CleanRL", seconds["CleanRL, impala"], seconds[name])
    show("gsf bench collect", numbers, config.out)
    return numbers


def _ours(config: BenchCollectConfig) -> dict[str, dict[str, Any]]:
    """Schedules by name: CleanRL's with several networks, and what `gsf collect` does here."""
    theirs = {x: SCHEDULE | {"n_steps": config.n_steps, "encoder": x} for x in config.encoders}
    return theirs | ({"gsf collect without a GPU": ON_CPU} if config.default else {})


def _ppo(game: str, options: PPOConfig) -> PPO:
    suite, schedule = find_game(game)[0], options.schedule
    drawn = suite.drawn(schedule.view)
    env = make_env(game, range(200), schedule.n_envs, 0, copy=False, **drawn)
    facts = facts_of(game)
    learnt_in = held(env, schedule.hold, facts.noop)
    return PPO(options, learnt_in, np.random.default_rng(0), facts.action_ids("all"))


def _timed(ppo: PPO, frames: int) -> Callable[[], float]:
    """Its core-seconds for a frame."""

    def update() -> float:
        start = time.process_time()
        ppo.iterate()
        return (time.process_time() - start) / frames

    return update


@contextlib.contextmanager
def _cleanrl(config: BenchCollectConfig) -> Iterator[Callable[[], float]]:
    """Yields a function that lets it do one update and returns its core-seconds for a frame."""
    program, frames = _checked(config), int(SCHEDULE["n_envs"]) * config.n_steps
    command = [*(str(config.python), "-u", str(program), "--env-id", config.game, "--no-cuda")]
    command += ["--num-steps", str(config.n_steps), "--total-timesteps", str(10**9)]
    with (
        tempfile.TemporaryDirectory(prefix="gsf-bench-") as home,
        open(Path(home) / "errors", "w+") as errors,
        starting(OMP_NUM_THREADS="1"),
        subprocess.Popen(
            command, cwd=home, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        lines = process.stdout

        def update() -> float:
            start = _core_seconds(process.pid)
            process.send_signal(signal.SIGCONT)
            for line in lines:
                if line.startswith("SPS:"):
                    process.send_signal(signal.SIGSTOP)
                    return (_core_seconds(process.pid) - start) / frames
            errors.seek(0)
            said = (errors.read().strip().splitlines() or ["it says nothing"])[-1]
            raise UserError(
                f"{program} cannot be run: {said} (it was written for gym 0.23.1; --python names "
                "an interpreter that has it)."
            )

        try:
            update()  # now, not when all of ours has been measured
            yield update
        finally:
            process.kill()


def _checked(config: BenchCollectConfig) -> Path:
    """The program in the checkout; one sentence if it is not there, or what it needs is not."""
    assert config.against is not None
    program = (config.against / PROGRAM).resolve()
    if not program.is_file():
        raise UserError(f"--against {config.against}: no checkout of CleanRL is there.")
    try:
        with starting():
            asked = [str(config.python), "-c", LACKS, *NEEDS]
            done = subprocess.run(asked, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise UserError(f"--python {config.python} is no Python that runs.") from None
    if lacking := done.stdout.split():
        raise UserError(
            f"CleanRL's ppo_procgen needs {', '.join(lacking)}, which {config.python} lacks; "
            "install that, or name another --python."
        )
    return program


def _core_seconds(pid: int) -> float:
    """Of a process and its threads so far; where Procgen runs there is /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = map(int, fields[11:13])
    return (user + system) / os.sysconf("SC_CLK_TCK")
