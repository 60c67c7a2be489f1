import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gsf.equations import ema
from gsf.nets.heads import mlp
from gsf.nets.runtime import frozen_copy, pick_device, seeded, update_target


def test_seeded_draws_from_the_rng_and_leaves_torch_alone() -> None:
    def make(seed: int) -> Tensor:
        with seeded(np.random.default_rng(seed)):
            return mlp(4, 2)[0].weight

    before = torch.get_rng_state()
    assert torch.equal(make(0), make(0))
    assert not torch.equal(make(0), make(1))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("name", "there", "picked"),
    [
        ("auto", {"cuda", "mps"}, "cuda"),
        ("auto", {"mps"}, "cpu"),  # only if asked for
        ("mps", {"cuda", "mps"}, "mps"),
        ("cpu", {"cuda", "mps"}, "cpu"),
    ],
)
def test_devices_are_picked_by_name_or_by_what_there_is(name, there, picked, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in there)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in there)
    assert pick_device(name) == picked


def test_targets_move_by_the_rate_and_take_no_gradient() -> None:
    online = nn.Linear(1, 1)
    target = frozen_copy(online)
    assert torch.equal(target.weight, online.weight)
    assert not any(p.requires_grad for p in target.parameters())
    with torch.no_grad():
        online.weight.fill_(1.0)
        target.weight.fill_(3.0)
    update_target(target, online, 0.25)
    assert target.weight.item() == 2.5
    assert target.weight.item() == ema(np.array(3.0), np.array(1.0), 0.25)
    assert online.weight.item() == 1.0
    assert online.weight.requires_grad


def test_freed_memory_stays_with_the_process() -> None:
    """By the allocator's own account, which no layout of the heap and no neighbour changes."""
    code = """
import ctypes
from gsf.nets.runtime import keep_freed_memory

class Account(ctypes.Structure):  # glibc's struct mallinfo2
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Account
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
keep_freed_memory()
before = libc.mallinfo2()
block = libc.malloc(100 << 20)  # glibc alone would map it, and unmap it when it is freed
mapped = libc.mallinfo2().hblks - before.hblks
libc.free(block)
print(mapped, (libc.mallinfo2().fordblks - before.fordblks) >> 20)
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    mapped, kept = map(int, shown.stdout.split())
    assert mapped == 0
    assert kept >= 99
