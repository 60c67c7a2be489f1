"""Generalized Similarity Functions for offline reinforcement learning, and offline Procgen.

Names load on first use, so that reports need no torch and training on imported data no Procgen.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gsf.core.version import __version__ as __version__

_HOME = {
    "make_env": "gsf.suites",
    "Recording": "gsf.data.recording",
    "Dataset": "gsf.data.dataset",
    "train": "gsf.learn.train",
    "evaluate": "gsf.evaluation.evaluate",
    "load_agent": "gsf.learn.agent",
}
__all__ = ["Dataset", "Recording", "evaluate", "load_agent", "make_env", "train"]

if TYPE_CHECKING:
    from gsf.data.dataset import Dataset as Dataset
    from gsf.data.recording import Recording as Recording
    from gsf.suites import make_env as make_env


class _Package(ModuleType):
    """gsf.train is the function, although importing gsf/train.py would bind the module there."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'gsf' has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOME[name]), name)
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
