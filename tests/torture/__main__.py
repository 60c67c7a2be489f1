"""The attack on gsf: `make torture`. All of it, or `python -m torture kills --share 0.1`.

Each campaign is a module with `campaign(home, share, seed)`: its figures, a `Row` for each thing it
attacks. With share 1 it tries everything it knows. forks.made(home) is what every stage makes, at
its smallest. Campaigns run side by side, as many as there are cores.
"""

import argparse
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: children are forked

CAMPAIGNS = ("kills", "flips", "inputs", "links")
SAMPLES = {
    "kills": 0.01,
    "flips": 0.03,
    "inputs": 0.03,
    "links": 0.005,
}  # in `test-all`


def main() -> int:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("campaigns", nargs="*", default=CAMPAIGNS, help=", ".join(CAMPAIGNS))
    parser.add_argument("--sample", action="store_true", help="the little that make test-all tries")
    parser.add_argument("--share", type=float, default=1.0, help="of all cases")
    parser.add_argument("--seed", type=int, default=0, help="which of them, where not all")
    options = parser.parse_args()
    from torture.campaigns import run
    from torture.figures import faults, table

    shares = [SAMPLES[name] if options.sample else options.share for name in options.campaigns]
    spawn = multiprocessing.get_context("spawn")  # what forks must have no threads
    workers = min(len(options.campaigns), len(os.sched_getaffinity(0)))
    with ProcessPoolExecutor(workers, spawn) as pool:
        seeds = [options.seed] * len(shares)
        rows = [row for part in pool.map(run, options.campaigns, shares, seeds) for row in part]
    for fault in faults(rows):
        print(fault, file=sys.stderr)
    print(table(rows))
    return 1 if faults(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
