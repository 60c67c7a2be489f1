"""What checking costs: its share of each stage's CPU time, in one run on a shipped recording.

python -m torture.cost (with tests/ on the path)
"""

import functools
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gsf.core.sealed
import gsf.core.stage
import gsf.data.format
import gsf.data.frames
import gsf.gvf.fit
import gsf.gvf.label
from gsf.data.materialise import MaterialiseConfig, materialise
from gsf.evaluation.evaluate import EvaluateConfig, evaluate
from gsf.gvf.fit import FitConfig, fit
from gsf.gvf.label import LabelConfig, label
from gsf.learn.train import TrainConfig, train

CHECKING = (
    (gsf.data.format, "frame_checksums"),
    (gsf.data.format, "digest_file"),
    (gsf.data.frames.Frames, "check"),
    (gsf.core.stage, "check_file"),
    (gsf.core.sealed.Seal, "_end"),
    (gsf.core.sealed, "misfit"),
    (gsf.gvf.fit, "digest_file"),
    (gsf.gvf.label, "digest_file"),
)
spent = 0.0


def counted(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*given: Any, **options: Any) -> Any:
        global spent
        started = time.thread_time()
        try:
            return function(*given, **options)
        finally:
            spent += time.thread_time() - started

    return call


def main(transitions: int = 10_000, grad_steps: int = 60) -> None:
    global spent
    for owner, name in CHECKING:
        setattr(owner, name, counted(getattr(owner, name)))
    with tempfile.TemporaryDirectory() as home:
        data, gvf, labels, run = (Path(home) / x for x in ("data", "gvf", "labels", "run"))
        td: dict[str, Any] = {"estimator": "td", "encoder": "nature", "grad_steps": grad_steps}
        small: dict[str, Any] = {"batch": 64, "device": "cpu"}
        few: dict[str, Any] = {"n_seen": 4, "n_validation": 0, "n_unseen": 4, "max_frames": 100}
        stages: dict[str, Callable[[], Any]] = {
            "materialise": lambda: materialise(
                MaterialiseConfig("coinrun", data, transitions=transitions, threads=1)
            ),
            "fit, mc": lambda: fit(FitConfig(data, gvf, allow_small_levels=True)),
            "fit, td": lambda: fit(
                FitConfig(data, Path(home) / "td", **td, **small, allow_small_levels=True)
            ),
            "label": lambda: label(LabelConfig(gvf, labels, allow_small_levels=True)),
            "train": lambda: train(
                TrainConfig(
                    dataset=data,
                    out=run,
                    labels=labels,
                    method="gsf-reward",
                    encoder="nature",
                    grad_steps=grad_steps,
                    **small,
                )
            ),
            "evaluate": lambda: evaluate(EvaluateConfig(str(run), modes=("greedy",), **few)),
        }
        shares = {}
        for name, stage in stages.items():
            spent, started = 0.0, time.process_time()
            stage()
            total = time.process_time() - started
            shares[name] = spent / total, total
    print(f"\n{transitions:,} transitions of coinrun, {grad_steps} steps of 64\n")
    print("| stage | checking, share of its CPU time | CPU seconds |\n|---|---:|---:|")
    for name, (share, total) in shares.items():
        print(f"| {name} | {share:.2%} | {total:.1f} |")


if __name__ == "__main__":
    main()
