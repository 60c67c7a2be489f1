"""Generalized Similarity Functions for offline reinforcement learning, and offline Procgen.

Each verb of the command line is a function of its options: `gsf.train(gsf.TrainConfig(...))`.
Names load on first use, so that reports need no torch and training on imported data no Procgen.
"""

import importlib
import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:  # python -m gsf: `gsf` has it not, either
    del sys.path[0]  # the current folder, before anything is imported from there

from typing import TYPE_CHECKING, Any

from gsf.core.cores import be_a_good_neighbour
from gsf.core.version import __version__ as __version__

if TYPE_CHECKING:
    from gsf.behaviour.collect import CollectConfig as CollectConfig
    from gsf.behaviour.collect import collect as collect
    from gsf.behaviour.policy import load_policy as load_policy
    from gsf.core.errors import UserError as UserError
    from gsf.data.dataset import Dataset as Dataset
    from gsf.data.importers import ImportConfig as ImportConfig
    from gsf.data.importers import import_data as import_data
    from gsf.data.materialise import MaterialiseConfig as MaterialiseConfig
    from gsf.data.materialise import materialise as materialise
    from gsf.data.recording import Recording as Recording
    from gsf.evaluation.episodes import evaluate_agent as evaluate_agent
    from gsf.evaluation.evaluate import EvaluateConfig as EvaluateConfig
    from gsf.evaluation.evaluate import evaluate as evaluate
    from gsf.evaluation.video import PlayConfig as PlayConfig
    from gsf.evaluation.video import play as play
    from gsf.gvf.cumulants import cumulant as cumulant
    from gsf.gvf.fit import FitConfig as FitConfig
    from gsf.gvf.fit import fit as fit
    from gsf.gvf.label import LabelConfig as LabelConfig
    from gsf.gvf.label import label as label
    from gsf.gvf.training_labels import load_labels as load_labels
    from gsf.learn.agent import load_agent as load_agent
    from gsf.learn.train import TrainConfig as TrainConfig
    from gsf.learn.train import train as train
    from gsf.nets.encoders import encoder as encoder
    from gsf.reporting.report import ReportConfig as ReportConfig
    from gsf.reporting.report import report as report
    from gsf.suites import make_env as make_env
    from gsf.sweep.options import RunConfig as RunConfig
    from gsf.sweep.run import run as run

_HOMES = {
    "behaviour.collect": ("CollectConfig", "collect"),
    "behaviour.policy": ("load_policy",),
    "core.errors": ("UserError",),
    "data.dataset": ("Dataset",),
    "data.importers": ("ImportConfig", "import_data"),
    "data.materialise": ("MaterialiseConfig", "materialise"),
    "data.recording": ("Recording",),
    "evaluation.episodes": ("evaluate_agent",),
    "evaluation.evaluate": ("EvaluateConfig", "evaluate"),
    "evaluation.video": ("PlayConfig", "play"),
    "gvf.cumulants": ("cumulant",),
    "gvf.fit": ("FitConfig", "fit"),
    "gvf.label": ("LabelConfig", "label"),
    "gvf.training_labels": ("load_labels",),
    "learn.agent": ("load_agent",),
    "learn.train": ("TrainConfig", "train"),
    "nets.encoders": ("encoder",),
    "reporting.report": ("ReportConfig", "report"),
    "suites": ("make_env",),
    "sweep.run": ("run",),
    "sweep.options": ("RunConfig",),
}
_home = {name: f"gsf.{module}" for module, names in _HOMES.items() for name in names}
__all__ = sorted(_home)


def __getattr__(name: str) -> Any:
    if name not in _home:
        raise AttributeError(f"module 'gsf' has no attribute {name!r}")
    be_a_good_neighbour()  # before what the name stands for loads torch
    value = globals()[name] = getattr(importlib.import_module(_home[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_home})
