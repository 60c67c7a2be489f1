"""How independent jobs are run on this machine: one after another, or in processes.

In: jobs, picklable callables. Out: of each that raised an error, why; the others go on meanwhile.
Asked to stop, the processes save where they are. They die with the process that started them,
however it dies.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol, TypeVar

from gsf.core import cores, registry
from gsf.core.errors import UserError, is_closed_pipe
from gsf.core.interrupts import Interrupted, interruptible, stoppable
from gsf.core.logs import Beat, console, logged, send_beats
from gsf.core.processes import starting
from gsf.sweep.live import Board


class Work(Protocol):
    @property
    def out(self) -> Path: ...

    def __call__(self) -> None: ...


Job = TypeVar("Job", bound=Work)


def run_all(jobs: Sequence[Job], workers: int = 1) -> dict[Job, str]:
    """Runs all jobs; returns the reasons of those that failed."""
    reasons = _in_processes(jobs, workers) if workers > 1 else list(_here(jobs))
    return {job: reason for job, reason in zip(jobs, reasons, strict=True) if reason}


def _attempt(job: Work) -> str | None:
    """Does a job; what went wrong, if anything."""
    try:
        job()
    except (Exception, SystemExit) as error:  # a user's own code may call exit
        if is_closed_pipe(error):
            raise
        if isinstance(error, (UserError, OSError)):  # an OSError: a full disk, a file that is gone
            return str(error)
        console.print_exception()
        return registry.in_short(error)
    return None


def _here(jobs: Sequence[Job]) -> Iterator[str | None]:
    for number, job in enumerate(jobs, 1):
        console.rule(f"{number}/{len(jobs)} {job}")
        yield _attempt(job)


@dataclass(frozen=True, eq=False)
class _Worker:
    """A process. It does one job after another, as loading torch takes longer than a small job."""

    pipe: Connection
    process: BaseProcess


def _in_processes(jobs: Sequence[Job], workers: int) -> list[str | None]:
    """Runs `workers` jobs at a time, each in a process; what a job prints goes into its log."""
    threads = max(1, cores.threads() // workers)
    waiting = list(reversed(jobs))
    idle: list[_Worker] = []
    running: dict[Connection, tuple[Job, _Worker]] = {}
    reasons: dict[Job, str | None] = {}

    def stop_all() -> None:
        for _, worker in running.values():
            worker.process.terminate()  # which lets it save

    with Board(len(jobs), workers) as board, stoppable(stop_all) as stop:
        try:
            while running or (waiting and not stop.asked):
                while waiting and len(running) < workers and not stop.asked:
                    job = waiting.pop()
                    worker = idle.pop() if idle else _start(threads)
                    running[worker.pipe] = job, worker
                    board.start(str(job))
                    with contextlib.suppress(BrokenPipeError):  # it has died: `_hear` will say so
                        worker.pipe.send(job)
                    if stop.asked:  # while it was sent: stop_all did not know of it
                        worker.process.terminate()  # type: ignore[unreachable]
                ready = wait(list(running)) if running else []
                for pipe in [pipe for pipe in running if pipe in ready]:
                    job, worker = running[pipe]
                    told = _hear(job, worker)
                    if isinstance(told, Beat):
                        board.beat(str(job), told)
                        continue
                    del running[pipe]
                    if worker.process.exitcode is None:
                        idle.append(worker)
                    elif stop.asked and worker.process.exitcode in (0, -signal.SIGTERM):
                        told = "had not begun"  # a job that has begun says how far it got
                    reasons[job] = told
                    if stop.asked and told:
                        board.stop(str(job))
                    else:
                        board.end(str(job), told)
            done = sum(reason is None for reason in reasons.values())
            said = (f"{job}: {reason}" for job, reason in reasons.items() if reason)
            stop.kept = "; ".join([f"{done} of {len(jobs)} runs are done", *said])
        finally:  # a job that is killed goes on from its checkpoint the next time
            for worker in [*idle, *(worker for _, worker in running.values())]:
                worker.process.kill()
                worker.process.join()
    return [reasons[job] for job in jobs]


def _start(threads: int) -> _Worker:
    context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads
    ours, its = context.Pipe()
    process = context.Process(target=_serve, args=(registry.named_files(), its))
    with starting(OMP_NUM_THREADS=str(threads)), _deaf_to_ctrl_c():  # torch and Procgen read it
        process.start()
    its.close()  # only the process has it now: when it dies, reading ends
    return _Worker(ours, process)


@contextlib.contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Processes that are started inside ignore Ctrl-C, which reaches all processes of a terminal:
    this one tells them to stop. A Ctrl-C that comes inside is heard at the end."""
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # else it would start now, and unblock SIGINT
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _hear(job: Work, worker: _Worker) -> Beat | str | None:
    """How far the job is, or, at its end, what went wrong with it."""
    try:
        told: Beat | str | None = worker.pipe.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join()
        return f"its process ended with code {worker.process.exitcode}; see {_log(job)}"
    return told


def _log(job: Work) -> Path:
    return job.out.with_name(f"{job.out.name}.log")


def _serve(named: list[Path], pipe: Connection) -> None:
    """What a worker does: it gets jobs, and sends how far they are and why they failed."""
    os.environ.pop("PYTHONSAFEPATH", None)  # for us, not for what a user's code starts
    threading.Thread(target=_die_with_parent, daemon=True).start()
    registry.allow(named)
    send_beats(pipe.send)
    with contextlib.suppress(Interrupted), interruptible():
        while True:
            job = pipe.recv()
            try:
                with logged(_log(job)):
                    failure = _attempt(job)
                pipe.send(failure)
            except Interrupted as stopped:  # our parent says that it was interrupted
                pipe.send(str(stopped) or "stopped")


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # like a kill: locks are free, and the same command goes on
