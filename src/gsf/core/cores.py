"""How many cores this process may use, and how its threads wait for each other.

Torch reads both once, when it is loaded, so they are set before: by the command line, or when the
first name of `gsf` is used in Python.
"""

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path

# A thread that waits spins, by default for so long that beside one other busy process everything is
# ten times slower. This short it costs nothing when the machine is quiet (docs/speed.md).
SPIN_COUNT = 1_000


def be_a_good_neighbour() -> None:
    """As many threads as cores, which sleep while they wait. What the user has set stays."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "passive"
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPIN_COUNT))
    os.environ.setdefault("OMP_NUM_THREADS", str(usable_cores()))


def threads() -> int:
    """How many this process shall use: OMP_NUM_THREADS, which a sweep sets for its workers, or one
    per core."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    return int(said) if said.isdecimal() and int(said) else usable_cores()


def usable_cores() -> int:
    """What the system allows: the process's affinity and its cgroups' CPU quotas; at least 1."""
    allowed = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    cores = len(allowed(0)) if allowed else os.cpu_count() or 1
    return max(1, min([cores, *(math.ceil(quota) for quota in _quotas(Path("/proc/self")))]))


def _quotas(process: Path) -> Iterator[float]:
    """How many cores each of a process's cgroups allows, of those that limit it.

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
    """Folders of the cgroups that may limit its CPU, and of those above them that can be seen."""
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
