"""The attack on gsf: `make torture`. All of it, or `python -m torture kills --share 0.1`.

Each campaign is a module with `campaign(home, share, seed)`: its figures, a `Row` for each thing it
attacks. With share 1 it tries everything it knows. `home` is shared: forks.made(home) is what every
stage makes, at its smallest.
"""

import argparse
import importlib
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: children are forked

CAMPAIGNS = ("kills", "flips", "inputs")
SAMPLES = {"kills": 0.01, "flips": 0.03, "inputs": 0.03}  # of all, in `make test`


def main() -> int:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("campaigns", nargs="*", default=CAMPAIGNS, help=", ".join(CAMPAIGNS))
    parser.add_argument("--sample", action="store_true", help="the little that make test tries")
    parser.add_argument("--share", type=float, default=1.0, help="of all cases")
    parser.add_argument("--seed", type=int, default=0, help="which of them, where not all")
    options = parser.parse_args()
    from torture.figures import faults, table

    rows = []
    with tempfile.TemporaryDirectory(prefix="torture-") as home:
        for name in options.campaigns:
            started = time.monotonic()
            campaign = importlib.import_module(f"torture.{name}").campaign
            share = SAMPLES[name] if options.sample else options.share
            rows += campaign(Path(home), share, options.seed)
            print(f"{name}: {time.monotonic() - started:,.0f} s", file=sys.stderr)
    for fault in faults(rows):
        print(fault, file=sys.stderr)
    print(table(rows))
    return 1 if faults(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
