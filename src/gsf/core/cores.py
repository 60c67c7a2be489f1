"""How many cores this process may use: those it is allowed on, and no more than its CPU quota."""

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path


def usable_cores() -> int:
    """Affinity and the CPU quota of the cgroup and those above it, rounded up; at least 1."""
    allowed = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    cores = len(allowed(0)) if allowed else os.cpu_count() or 1
    return max(1, min([cores, *(math.ceil(quota) for quota in _quotas(Path("/proc/self")))]))


def _quotas(process: Path) -> Iterator[float]:
    """Cores' worth of time of each cgroup of a process that has a limit; nothing without cgroups.

    process: its directory in /proc.
    """
    for directory in _directories(process):
        with contextlib.suppress(OSError, ValueError):  # absent, or `max`: no limit
            if (directory / "cpu.max").is_file():  # version 2
                quota, period = map(int, (directory / "cpu.max").read_text().split())
            else:
                quota = int((directory / "cpu.cfs_quota_us").read_text())  # -1: no limit
                period = int((directory / "cpu.cfs_period_us").read_text())
            if quota > 0 and period > 0:
                yield quota / period


def _directories(process: Path) -> Iterator[Path]:
    """Its cgroups that may limit the CPU, each with those above it, as far as they can be seen."""
    try:
        cgroups = (process / "cgroup").read_text().splitlines()
        mounts = (process / "mountinfo").read_text().splitlines()
    except OSError:
        return
    # id:controllers:path; version 2 names no controllers.
    own = [line.split(":", 2)[1:] for line in cgroups]
    for line in mounts:
        left, _, right = line.partition(" - ")
        kind, *_, options = right.split()
        if not kind.startswith("cgroup") or (kind == "cgroup" and "cpu" not in options.split(",")):
            continue
        root, mounted = left.split()[3:5]
        for controllers, path in own:
            if "cpu" in controllers.split(",") if kind == "cgroup" else not controllers:
                # A container sees its own cgroup mounted as if it were the root.
                inside = Path(path).relative_to(root) if Path(path).is_relative_to(root) else ""
                at = Path(mounted) / inside
                yield from [at, *(up for up in at.parents if up.is_relative_to(mounted))]
