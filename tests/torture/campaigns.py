"""One campaign, in whichever process."""

import importlib
import sys
import tempfile
import time
from pathlib import Path

from torture.figures import Row


def run(name: str, share: float, seed: int) -> list[Row]:
    started = time.monotonic()
    campaign = importlib.import_module(f"torture.{name}").campaign
    with tempfile.TemporaryDirectory(prefix="torture-") as home:
        rows: list[Row] = campaign(Path(home), share, seed)
    print(f"{name}: {time.monotonic() - started:,.0f} s", file=sys.stderr)
    return rows
