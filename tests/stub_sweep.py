"""What a cluster's driver costs: python stub_sweep.py HOST:PORT OUT N hands out N runs of nothing.

Prints seconds per run and the driver's memory (docs/cluster.md).
"""

import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from gsf.core.files import atomic_directory, write_atomic
from gsf.sweep.cluster import connected
from gsf.sweep.options import RunConfig
from gsf.sweep.units import Unit


@dataclass(frozen=True)
class NoData:
    key: str = "dataset-none"
    at: Path = Path("stub/dataset")

    def make(self, fetch, out: Path) -> None:
        with atomic_directory(out) as aside:
            (aside / "nothing").touch()


@dataclass(frozen=True)
class Stub:
    """Writes what a run writes, at a thousandth of its size."""

    out: str

    def __call__(self) -> None:
        for name in ("manifest.json", "checkpoint.pt", "returns.csv", "DONE"):
            write_atomic(Path(self.out, name), bytes(10_000))


class Stubs:
    inputs: dict[str, Path] = {}  # noqa: RUF012
    code: dict[str, str] = {}  # noqa: RUF012


def stub(number: int) -> Unit:
    name = f"stub/method{number % 12}/seed{number // 12}"
    return Unit(name, f"key{number}", NoData(), Stub(name))


def main(address: str, out: Path, n: int) -> None:
    with connected(RunConfig(out=out, cluster=address), Stubs()) as cluster:
        cluster.prepare([])
        begun = time.monotonic()
        failed = cluster.drive([stub(number) for number in range(n)])
        seconds = time.monotonic() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF)
    print(
        f"{n} runs, {len(failed)} failed, {seconds:.0f} s: {1e3 * seconds / n:.0f} ms a run; "
        f"driver {peak.ru_utime + peak.ru_stime:.0f} s of CPU, {peak.ru_maxrss / 1e3:.0f} MB"
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
