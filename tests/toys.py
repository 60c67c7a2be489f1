"""Jobs that end in every way a job can end; in a module that worker processes can import."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from gsf.core.errors import UserError
from gsf.core.interrupts import stoppable


@dataclass(frozen=True)
class Toy:
    out: Path
    act: str = "well"

    def __call__(self) -> None:
        print(f"shown by {self.out.name} in {os.getpid()}")
        if self.act == "crash":
            raise ValueError("a bug")
        if self.act == "full disk":
            raise OSError(28, "No space left on device")
        if self.act == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.act == "exit":
            raise SystemExit(0)
        if self.act == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.act in ("sleep", "deaf"):
            with stoppable() as stop:
                stop.kept = "half of it is saved"
                (self.out.parent / f"{self.out.name}.pid").write_text(str(os.getpid()))
                while not stop.asked:
                    time.sleep(0.05)
        if self.act == "refused":
            raise UserError("bad input")


def toys(home: Path, *acts: str) -> list[Toy]:
    return [Toy(home / f"{number}-{act}", act) for number, act in enumerate(acts)]
