"""A kill at the k-th open, write, sync, rename or removal, for every k and every stage.

Each in a process forked from this one, which counts what it does to files and kills itself (a
write is cut in half first). Then the same stage again, uninterrupted: the files must be those of
a run that was never killed, byte for byte (checkpoints tensor for tensor, bit for bit), and
nothing else. A second round kills twice, at places drawn at random.
"""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gsf.core.sealed import load_checkpoint
from torture import forks, stages
from torture.figures import Row

TWICE = 12  # cases of each stage that are killed a second time


def campaign(home: Path, share: float = 1.0, seed: int = 0) -> list[Row]:
    return forks.attacked("kills", _attack, home, share, seed)


def _attack(name: str, home: Path, share: float, rng: np.random.Generator) -> Row:
    row = Row("kills", name)
    out = home / "out" / name

    def stage() -> None:
        stages.STAGES[name](home / "made", out)

    said = forks.in_child(stage, home)
    expected, n = _tree(out.parent), forks.counted(home)
    assert not said, f"{name}: {said}"
    for twice in (False, True):
        chosen = np.flatnonzero(rng.random(n) < share) + 1
        if twice:
            chosen = rng.permutation(chosen)[:TWICE]
        for k in chosen if len(chosen) or twice else [n // 2]:
            shutil.rmtree(out.parent)
            kills = [int(k), int(rng.integers(1, n + 1))] if twice else [int(k)]
            case = f"killed at {' and '.join(map(str, kills))} of {n}"
            for at in kills:
                forks.in_child(stage, home, at)
                row.tried += 1
            said = forks.in_child(stage, home)
            found = _tree(out.parent)
            if said:
                row.fail(
                    "refused" if said.startswith("UserError") else "crashed", f"{case}: {said}"
                )
            elif left := sorted(found.keys() - expected.keys()):
                row.fail("left over", f"{case}: {', '.join(left)}")
            elif differing := sorted(x for x in expected if found.get(x) != expected[x]):
                row.fail("differ", f"{case}: {', '.join(differing)}")
    shutil.rmtree(out.parent)
    return row


def _tree(root: Path) -> dict[str, str]:
    """Every file below, and the digest of its content."""
    return {
        str(path.relative_to(root)): hashlib.sha256(_content(path)).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and forks.ASIDE not in path.parts
    }


def _content(path: Path) -> bytes:
    """All bytes; of a checkpoint those of its tensors and numbers: pickle may order them anew."""
    return b"".join(_parts(load_checkpoint(path))) if path.suffix == ".pt" else path.read_bytes()


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, torch.Tensor):
        yield f"{value.dtype} {list(value.shape)}".encode()
        yield value.contiguous().numpy().tobytes()
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            yield repr(key).encode()
            yield from _parts(value[key])
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _parts(item)
    else:
        yield repr(value).encode()
