"""A stage that is asked to stop while it works."""

import signal
from typing import Any

import pytest

from gsf.core.interrupts import Interrupted


def stopped(stage, config, owner: Any, name: str, at: int) -> str:
    """What a stage says if SIGTERM comes while the `at`-th call of owner.name works."""
    work, calls = getattr(owner, name), 0

    def interrupted(*args, **options):
        nonlocal calls
        calls += 1
        if calls == at:
            signal.raise_signal(signal.SIGTERM)
        return work(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        with pytest.raises(Interrupted) as said:
            stage(config)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    return str(said.value)
