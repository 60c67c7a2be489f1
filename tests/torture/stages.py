"""Every stage at its smallest, on real data, each from what those before it have made."""

import dataclasses
import itertools
import shutil
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch._dynamo  # these two before forks: they take seconds
import torch.utils.tensorboard

import gsf.behaviour.collect
import gsf.core.loop
import gsf.core.stage
import gsf.data.recording
import gsf.data.replay
from given import given
from gsf.behaviour.collect import CollectConfig, collect
from gsf.core import drawing
from gsf.core.files import atomic_directory, clear_locks, write_atomic
from gsf.data.importers import ExportConfig, ImportConfig, export_data, import_data
from gsf.data.inspect import CutConfig, JoinConfig, cut, join
from gsf.data.materialise import MaterialiseConfig, materialise
from gsf.evaluation.evaluate import EvaluateConfig, evaluate
from gsf.evaluation.video import PlayConfig, play
from gsf.gvf.fit import FitConfig, fit
from gsf.gvf.label import LabelConfig, label
from gsf.learn.train import TrainConfig, train
from gsf.reporting.report import ReportConfig, report
from gsf.studies.similar import SimilarConfig, similar
from gsf.suites import make_env
from gsf.sweep.run import RunConfig, run

GAME, BLOCK = "fruitbot", 32
for module in (gsf.data.recording, gsf.data.replay):
    module.BLOCK = BLOCK  # so that a short recording has several, and something to save
make_env(GAME, range(1), 1, 0, threads=0).close()  # before forks: its pictures take a second
_COLLECT = CollectConfig(
    game=GAME,
    frames=96,
    transitions=2 * 8 * BLOCK,
    n_envs=2,
    n_steps=16,
    minibatches=1,
    epochs=1,
    encoder="nature",
    n_levels=4,
    checkpoint_seconds=0.0,
    device="cpu",
    tensorboard=False,
)
_RANDOM = dataclasses.replace(_COLLECT, player="random")


def _collect(made: Path, out: Path) -> None:
    collect(dataclasses.replace(_COLLECT, out=out))


def _record(made: Path, out: Path) -> None:
    collect(dataclasses.replace(_RANDOM, out=out))


def _cut(made: Path, out: Path) -> None:
    cut(CutConfig(str(made / "record" / f"{GAME}.gsfrec"), 90, out / "cut.gsfrec"))


def _join(made: Path, out: Path) -> None:
    both = tuple(str(made / x / f"{GAME}.gsfrec") for x in ("record", "collect"))
    join(JoinConfig(both, out / "both.gsfrec"))


def _materialise(made: Path, out: Path) -> None:
    recording = str(made / "record" / f"{GAME}.gsfrec")
    materialise(MaterialiseConfig(recording, out / "data", transitions=120, threads=1))


def _import(made: Path, out: Path) -> None:
    import_data(ImportConfig(str(made / "npz"), out / "data", validation=0.5))


def _export(made: Path, out: Path) -> None:
    export_data(ExportConfig(_data(made), out / "minari"))


def _fit(made: Path, out: Path) -> None:
    fit(FitConfig(_data(made), out / "gvf", diagnose=False, allow_small_levels=True))


def _td(made: Path, out: Path) -> None:
    config = FitConfig(_data(made), out / "gvf", estimator="td", encoder="nature", grad_steps=3)
    rest = {"batch": 4, "checkpoint_every": 1, "diagnose": False, "allow_small_levels": True}
    fit(dataclasses.replace(config, device="cpu", **rest))


def _label(made: Path, out: Path) -> None:
    gvf = made / "fit" / "gvf"
    label(LabelConfig(gvf, out / "labels", n_bins=3, allow_small_levels=True))


def _train(made: Path, out: Path) -> None:
    train(
        TrainConfig(
            dataset=_data(made),
            out=out / "run",
            labels=made / "label" / "labels",
            method="gsf-reward",
            encoder="nature",
            grad_steps=4,
            batch=4,
            keep=2,
            log_every=1,
            checkpoint_every=1,
            device="cpu",
        )
    )


def _evaluate(made: Path, out: Path) -> None:
    few = {"n_seen": 1, "n_validation": 0, "n_unseen": 1, "modes": ("greedy",), "threads": 1}
    few |= {"max_frames": 20}
    evaluate(EvaluateConfig("random", out / "random" / "returns.csv", GAME, **few))


def _rows(made: Path, out: Path) -> None:
    if not (out / "run").exists():
        with atomic_directory(out / "run") as aside:
            shutil.copytree(made / "train" / "run", aside, dirs_exist_ok=True)
    clear_locks(out / "run")
    few = {"n_seen": 0, "n_validation": 1, "n_unseen": 0, "modes": ("sampled",), "threads": 1}
    evaluate(EvaluateConfig(str(out / "run"), max_frames=20, device="cpu", **few))


def _play(made: Path, out: Path) -> None:
    play(PlayConfig("random", level=3, out=out / "play.gif", game=GAME, max_steps=4, fps=1))


def _similar(made: Path, out: Path) -> None:
    recording = str(made / "collect" / f"{GAME}.gsfrec")
    config = SimilarConfig(recording, made / "collect", out / "similar", length=1)
    similar(dataclasses.replace(config, transitions=512, max_value_error=9.0, segments=50))


def _report(made: Path, out: Path) -> None:
    options = {"replicates": 10, "videos": False, "explorer": False}
    report(ReportConfig((made / "sweep",), out / "report", **options))


def _sweep(made: Path, out: Path) -> None:
    words = ["materialise.transitions=120", "materialise.threads=1", "fit.diagnose=false"]
    words += ["fit.allow_small_levels=true", "label.allow_small_levels=true", "label.n_bins=3"]
    words += ["train.grad_steps=2", "train.batch=4", "train.keep=1", "evaluate.threads=1"]
    words += ["train.encoder=nature", "evaluate.n_seen=1", "evaluate.n_unseen=1"]
    words += [
        "evaluate.n_validation=0",
        "evaluate.max_frames=20",
        'evaluate.modes=["greedy"]',
        "train.device=cpu",
    ]
    methods, recordings = ("gsf-reward",), (str(made / "record" / f"{GAME}.gsfrec"),)
    config = RunConfig(out / "sweep", "smoke", methods=methods, recordings=recordings)
    run(dataclasses.replace(config, options=given(*words), report=False))


def _data(made: Path) -> Path:
    return made / "materialise" / "data"


STAGES: dict[str, Callable[[Path, Path], None]] = {
    "collect": _collect,
    "record": _record,
    "cut": _cut,
    "join": _join,
    "materialise": _materialise,
    "import": _import,
    "fit": _fit,
    "td": _td,
    "label": _label,
    "train": _train,
    "evaluate": _evaluate,
    "evaluate a run": _rows,
    "play": _play,
    "similar": _similar,
    "sweep": _sweep,
    "report": _report,
    "export": _export,
}


def prepare() -> None:
    """In a process that is to run stages: one thread, time that only counts, figures for free."""
    torch.set_num_threads(1)
    for module in (gsf.core.loop, gsf.behaviour.collect):
        module.time = types.SimpleNamespace(monotonic=itertools.count(1.0).__next__)
    drawing.save = _save
    gsf.core.stage._git_commit = lambda: None  # somebody may commit meanwhile


def _save(figure: object, stem: Path) -> list[Path]:
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    for path in paths:
        write_atomic(path, "<svg/>")
    return paths


def make(made: Path) -> None:
    """All of them, one after the other, into made/<stage>."""
    rng = np.random.default_rng(0)
    for number in range(4):
        home = made / "npz" / f"site-{number % 2}"
        home.mkdir(parents=True, exist_ok=True)
        arrays = {"obs": rng.integers(0, 256, (6, 8, 8, 3), np.uint8), "reward": rng.random(6)}
        np.savez(home / f"{number}.npz", action=rng.integers(3, size=6), **arrays)
    for name, stage in STAGES.items():
        shutil.rmtree(made / name, ignore_errors=True)
        (made / name).mkdir(parents=True)
        stage(made, made / name)
