import subprocess
import sys

import numpy as np
import torch
from torch import Tensor, nn

from gsf.equations import ema
from gsf.nets.heads import mlp
from gsf.nets.runtime import frozen_copy, seeded, update_target


def test_seeded_draws_from_the_rng_and_leaves_torch_alone() -> None:
    def make(seed: int) -> Tensor:
        with seeded(np.random.default_rng(seed)):
            return mlp(4, 2)[0].weight

    before = torch.get_rng_state()
    assert torch.equal(make(0), make(0))
    assert not torch.equal(make(0), make(1))
    assert torch.equal(before, torch.get_rng_state())


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


def test_freed_memory_is_used_again_without_page_faults() -> None:
    code = """
import resource, torch
from gsf.nets.runtime import keep_freed_memory
keep_freed_memory()
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(7 * 1024**2)  # 28 MB, 7,168 pages
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults)
"""  # in a process of its own: what ran before in this one has left its traces in malloc
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(shown.stdout) < 100
