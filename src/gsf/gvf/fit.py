"""Stage: dataset + cumulant -> GVFs of every level (paper: LearnGVF, Algorithm 1).

Out: values.npy, for every transition what is ranked of its level's GVF, float32 [n] or [n,d], NaN
where it is not known. `mc` adds up the logged future, without a network; `td` learns it (td.py)
and keeps checkpoint.pt; with `q` also action_values.npy [n,A]. `--compare`: see compare.py.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gsf.core.code import decided_by
from gsf.core.files import atomic_directory, digest, digest_file, locked, open_own
from gsf.core.logs import console
from gsf.core.registry import Found
from gsf.core.stage import Identity, read_manifest
from gsf.data.dataset import Dataset
from gsf.gvf import cumulants, td
from gsf.gvf.compare import compare
from gsf.gvf.cumulants import Cumulant
from gsf.gvf.diagnostics import diagnose, table, weakness
from gsf.gvf.levels import check_levels
from gsf.gvf.options import FitConfig as FitConfig
from gsf.gvf.trajectories import along_trajectories, logged_slot
from gsf.nets import encoders
from gsf.nets.encoders import Architecture
from gsf.nets.precision import settled
from gsf.nets.runtime import pick_device

Array = npt.NDArray[Any]
# Options that mc ignores.
TD_ONLY = ("grad_steps", "batch", "n_steps", "lr", "target_rate", "encoder", "q")


def fit(config: FitConfig) -> Path:
    """Fits the GVF of a cumulant on every level of a dataset; returns the directory of its values.

    fit(FitConfig(Path("dataset"), out=Path("gvf"), cumulant="reward", gamma=0.99))
    """
    found = cumulants.find(config.cumulant)
    encoder = encoders.find(config.encoder)
    config = dataclasses.replace(config, device=pick_device(config.device))
    dataset = Dataset.open(config.dataset)
    check_levels(dataset, config.allow_small_levels)
    config = _settled(config, dataset)
    if config.compare:
        return compare(dataset, config, fit)
    cumulant, rank = found.value, config.rank or found.value.rank
    identity = _identity(config, dataset, found, encoder)
    if identity.is_done(config.out):
        console.print(f"{config.out} is there already.")
        return config.out
    rows = np.arange(len(dataset))
    with _directory(config, identity) as out:
        c = cumulants.evaluate(cumulant, dataset, rows, config.seed, config.device)
        cumulants.ranked(c, rank, dataset.action)  # refuses before hours of training
        value = (
            along_trajectories(dataset, found, c, rows, config)
            if config.estimator == "mc"
            else _temporal_difference(dataset, c, config, out)
        )
        values = cumulants.ranked(value, rank, dataset.action)
        _save(out / "values.npy", values)
        files = {path.name: digest_file(path) for path in sorted(out.glob("*values.npy"))}
        facts: dict[str, Any] = {"files": files}
        if config.diagnose:
            rng = np.random.default_rng(config.seed)
            logged = None
            if config.estimator == "td":
                future = along_trajectories(dataset, found, c, rows, config)
                logged = cumulants.ranked(future, rank, dataset.action)
            facts["diagnosis"] = diagnose(
                dataset, rows, values, config.n_bins, rng, logged=logged, device=config.device
            ).to_json()
        identity.write(
            out,
            digest(json.dumps(files)),
            in_place=config.estimator == "td",
            cumulant=found.name,
            rank=rank,
            levels=dataset.levels,
            n=len(dataset),
            d=c.shape[1],
            seeded=config.estimator == "td" or cumulant.random,
            unknown=float(np.isnan(values).mean()),
            **facts,
        )
    _print_fit(config.out)
    return config.out


def _settled(config: FitConfig, dataset: Dataset) -> FitConfig:
    if config.estimator == "mc" and config.precision == "auto":  # nothing is trained
        return dataclasses.replace(config, precision="float32")
    made: FitConfig = settled(config, config.out, "gvf", dataset.obs_shape, config.batch)
    return made


def _identity(
    config: FitConfig, dataset: Dataset, found: Found[Cumulant], encoder: Found[Architecture]
) -> Identity:
    inputs = {"dataset": dataset.digest, **found.identity("cumulant")}
    resolved: dict[str, Any] = {"cumulant": found.name, "rank": config.rank or found.value.rank}
    if config.estimator == "td":
        encoder.value.convolutions(dataset.obs_shape)  # refuses images before anything is computed
        inputs |= encoder.identity("encoder")
        resolved["encoder"] = encoder.name
    else:
        resolved |= dict.fromkeys(TD_ONLY)
    if config.bootstrap:
        inputs["bootstrap"] = read_manifest(config.bootstrap, "gvf")["digest"]
    inputs |= decided_by(__name__, found.value.function, encoder.value.build)
    return Identity.of("gvf", config, inputs, **resolved)


@contextlib.contextmanager
def _directory(config: FitConfig, identity: Identity) -> Iterator[Path]:
    """Where to write: aside for mc, which takes seconds; in place for td, which may go on."""
    if config.estimator == "mc":
        with atomic_directory(config.out) as out:
            yield out
        return
    with locked(config.out):
        identity.begin(config.out)
        yield config.out
        identity.finish(config.out)


def _temporal_difference(dataset: Dataset, c: Array, config: FitConfig, out: Path) -> Array:
    learner = td.learn(dataset, c, config, out)
    value = learner.values(dataset, np.arange(len(dataset)), dataset.level.astype(np.int64))
    if value.shape[1] > 1:
        _save(out / "action_values.npy", value[:, :, 0])
    return logged_slot(value, dataset.action)


def _save(path: Path, values: Array) -> None:
    with open_own(path, "wb") as file:
        np.save(file, values, allow_pickle=False)


def _print_fit(out: Path) -> None:
    manifest = read_manifest(out, "gvf")
    unknown = f", {manifest['unknown']:.1%} unknown" if manifest["unknown"] else ""
    print(f"{out}: {manifest['cumulant']} of {manifest['n']:,} transitions{unknown}")
    if "diagnosis" in manifest:
        print(table([{"cumulant": manifest["cumulant"], **manifest["diagnosis"]}]))
        if manifest["seeded"]:
            print("stability: --compare fits two seeds; or fit another one and label --against it")
    if said := weakness(out, manifest):
        console.print(f"[yellow]{said}[/]", soft_wrap=True, highlight=False)
