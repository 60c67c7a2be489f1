"""Jobs on a Ray cluster; the only module that imports Ray."""

from collections.abc import Callable, Sequence

from gsf.core.errors import UserError
from gsf.sweep.workers import attempt


def on_ray(jobs: Sequence[Callable[[], str | None]]) -> list[str | None]:
    """Runs all jobs on a Ray cluster; the reason of each that failed."""
    try:
        import ray
    except ImportError:
        raise UserError("--ray needs Ray: pip install 'gsf-rl[cluster]'.") from None
    ray.init(ignore_reinit_error=True)
    resources = ray.cluster_resources()
    n_gpus = 1 if resources.get("GPU") else 0  # a task that asks for none gets none
    remote = ray.remote(num_gpus=n_gpus)(attempt)
    reasons: list[str | None] = []
    for answer in [remote.remote(job) for job in jobs]:
        try:
            reasons.append(ray.get(answer))
        except ray.exceptions.RayError as error:  # its process or its machine is gone
            reasons.append(f"{type(error).__name__}: {error}")
    return reasons
