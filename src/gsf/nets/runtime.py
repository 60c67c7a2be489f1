"""How networks are run: device, memory, seeds, and target networks that follow online ones."""

import contextlib
import copy
import ctypes
import sys
from collections.abc import Iterator
from typing import Literal, TypeVar

import numpy as np
import torch
from torch import nn

from gsf.core.errors import UserError

Module = TypeVar("Module", bound=nn.Module)


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


def pick_device(name: str) -> Literal["cpu", "cuda", "mps"]:
    """auto: CUDA if there is one. MPS only if asked for: nobody has tried all of gsf on it."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: there is no CUDA device here; use --device cpu.")
    if name == "mps" and not torch.backends.mps.is_available():
        raise UserError("--device mps: there is no GPU of Apple's here; use --device cpu.")
    if name == "mps":
        return "mps"
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"


def keep_freed_memory() -> None:
    """For whatever trains: large blocks that are freed stay with this process.

    glibc hands them back to the system, and getting them again at every step, page by page, is a
    tenth of the step's time on a CPU. The peak of memory is the same.
    """
    if sys.platform != "linux":  # other systems have other allocators
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # as have other C libraries
    # Older versions take at most 32 MB; the second call alone would make matters worse.
    if mallopt and (mallopt(M_MMAP_THRESHOLD, 1 << 30) or mallopt(M_MMAP_THRESHOLD, 1 << 25)):
        mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


@contextlib.contextmanager
def seeded(rng: np.random.Generator) -> Iterator[None]:
    """Modules made inside draw their weights from `rng`; torch's global stream stays untouched."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63)))
        yield


def frozen_copy(online: Module) -> Module:
    """A target network: the same weights, and no gradient ever."""
    return copy.deepcopy(online).requires_grad_(False)


@torch.no_grad()
def update_target(target: nn.Module, online: nn.Module, rate: float) -> None:
    """`equations.ema` of every parameter, in place: a tenth of its time."""
    for old, new in zip(target.parameters(), online.parameters(), strict=True):
        old.lerp_(new, rate)
