"""How independent jobs are run: one after another, in processes, or on Ray (its only import).

In: jobs, each a picklable callable that returns what went wrong, if anything. Out: the reasons.
"""

import contextlib
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Protocol, TypeVar

from gsf.runs import UserError, console, progress


class Work(Protocol):
    @property
    def out(self) -> Path: ...

    def __call__(self) -> str | None: ...


Job = TypeVar("Job", bound=Work)


def spread(jobs: Sequence[Job], workers: int = 1, ray: bool = False) -> dict[Job, str]:
    """Runs all jobs; returns the reasons of those that failed."""
    if ray:
        reasons = _on_ray(jobs)
    elif workers > 1:
        reasons = _in_processes(jobs, workers)
    else:
        reasons = list(_here(jobs))
    return {job: reason for job, reason in zip(jobs, reasons, strict=True) if reason}


def _here(jobs: Sequence[Job]) -> Iterator[str | None]:
    for number, job in enumerate(jobs, 1):
        console.rule(f"{number}/{len(jobs)} {job}")
        yield job()


def _in_processes(jobs: Sequence[Job], workers: int) -> list[str | None]:
    """What a job would have shown goes into <its out>.log."""
    threads = max(1, (os.cpu_count() or 1) // workers)
    context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads
    with (
        ProcessPoolExecutor(workers, context, _share_cores, (threads,)) as pool,
        progress(f"{workers} at a time", len(jobs), "runs") as advance,
    ):
        futures = {pool.submit(_run_logged, job): job for job in jobs}
        try:
            for done, future in enumerate(as_completed(futures), 1):
                advance(done, last=str(futures[future]))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]


def _share_cores(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


def _run_logged(job: Work) -> str | None:
    log = job.out.with_name(f"{job.out.name}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a") as file, contextlib.redirect_stdout(file):
        shown, console.file = console.file, file
        try:
            return job()
        finally:
            console.file = shown


def _on_ray(jobs: Sequence[Job]) -> list[str | None]:
    try:
        import ray
    except ImportError:
        raise UserError("--ray needs Ray: pip install 'gsf[cluster]'.") from None
    ray.init(ignore_reinit_error=True)
    remote = ray.remote(_run_job)
    reasons: list[str | None] = ray.get([remote.remote(job) for job in jobs])
    return reasons


def _run_job(job: Work) -> str | None:
    return job()
