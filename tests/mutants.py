"""Small wrong changes to gsf, each of which one test must notice: `make mutants`.

mutants.txt has them by file: a name and the test that notices, what stands there and what is put
there instead. Each is tried on a copy of the sources, made of links, that Python finds before gsf.
"""

import argparse
import compileall
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: children are forked

import pandas  # noqa: F401
import pytest
import scipy.stats  # noqa: F401
import torch  # noqa: F401

from forked import forked

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "gsf"
TABLE = Path(__file__).with_suffix(".txt")
FAILED = 1  # pytest's exit code where tests ran and failed; others are no answer


class Mutant(NamedTuple):
    file: str  # below src/gsf
    name: str
    test: str  # below tests
    old: str
    new: str

    @property
    def fault(self) -> str | None:
        """Why it cannot be tried."""
        n = (SOURCES / self.file).read_text().count(self.old)
        return f"{self.name}: {self.old!r} is {n} times in {self.file}" if n != 1 else None


def read(table: str) -> list[Mutant]:
    found, file = list[Mutant](), ""
    blocks = [block.splitlines() for block in table.split("\n\n") if not block.startswith("#")]
    for lines in blocks:
        if len(lines) == 1:
            [file] = lines
            continue
        (name, test), old, new = lines[0].split(), *lines[1:]
        assert (old[:2], new[:2]) == ("- ", "+ "), lines
        found.append(Mutant(file, name, test, old[2:], new[2:]))
    return found


def run(tests: set[str], sources: Path) -> tuple[int, str]:
    """pytest's exit code and words; the tests see gsf as it is in `sources`."""

    def work() -> int:
        os.chdir(ROOT)
        os.environ["PYTHONPATH"] = str(sources)  # for what the tests start
        sys.path.insert(0, str(sources))
        named = (f"tests/{test}" for test in sorted(tests))
        return pytest.main(["-x", "-p", "no:cacheprovider", *named])

    return forked(work)  # from this process, which has all that takes long to import, and no gsf


@contextlib.contextmanager
def copy() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as home:
        shutil.copytree(SOURCES, Path(home) / "gsf", copy_function=os.symlink)
        yield Path(home)


def caught(mutant: Mutant) -> bool:
    with copy() as home:
        changed = home / "gsf" / mutant.file
        text = changed.read_text()
        changed.unlink()
        changed.write_text(text.replace(mutant.old, mutant.new))
        code, words = run({mutant.test}, home)
    if code not in (0, FAILED):
        raise SystemExit(f"{mutant.name}: {mutant.test} cannot be run.\n{words}")
    return code == FAILED


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--only", metavar="NAME", nargs="+", help="these, or all of these files")
    options = parser.parse_args()
    mutants = read(TABLE.read_text())
    if options.only:
        mutants = [x for x in mutants if {x.name, x.file} & set(options.only)]
    if faults := [x.fault for x in mutants if x.fault] or ([] if mutants else ["there is none"]):
        raise SystemExit("\n".join(faults))
    sys.dont_write_bytecode = False
    compileall.compile_dir(SOURCES, quiet=1)  # once: a copy has links to what is compiled, too
    with copy() as home:
        code, words = run({x.test for x in mutants}, home)
    if code:
        raise SystemExit(f"the tests fail without any change.\n{words}")
    survived, started = list[Mutant](), time.monotonic()
    for n, mutant in enumerate(mutants, 1):
        noticed = caught(mutant)
        survived += [] if noticed else [mutant]
        left = (time.monotonic() - started) / n * (len(mutants) - n)
        said = f"caught by {mutant.test}" if noticed else f"SURVIVED {mutant.test}"
        print(f"{n}/{len(mutants)}  {mutant.name}: {said}  ({left:.0f} s left)", flush=True)
    print(f"{len(mutants) - len(survived)} of {len(mutants)} caught")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
