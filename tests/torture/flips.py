"""Flips over every artefact by kind: what is read then is named, or the same as before.

Bits and bytes that flip, runs of zeros as of a lost sector, and files cut short, each followed by
the reader that the stages use.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from gsf.behaviour.policy import load_policy
from gsf.core.errors import UserError
from gsf.core.logs import progress, read_metrics
from gsf.core.sealed import load_checkpoint, read_json
from gsf.core.stage import check_files, is_whole, read_any_manifest
from gsf.data.dataset import Dataset
from gsf.data.format import COLUMN_DTYPES
from gsf.data.recording import Recording
from gsf.evaluation.rows import read_rows, write_rows
from gsf.gvf.training_labels import load_labels
from torture import forks, stages
from torture.figures import Row

FLIPS = 600  # of each kind of artefact, with share 1
Reader = Callable[[Path], Any]


def campaign(home: Path, share: float = 1.0, seed: int = 0) -> list[Row]:
    made, rng, rows = forks.made(home), np.random.default_rng(seed), []
    kinds = _kinds(made)
    with progress("flips", len(kinds), "kinds") as advance:
        for done, (name, (files, read)) in enumerate(kinds.items(), 1):
            rows.append(_attack(name, files, read, max(1, round(FLIPS * share)), rng))
            advance(done)
    return rows


def _kinds(made: Path) -> dict[str, tuple[list[Path], Reader]]:
    """Files of each kind of artefact, and what reads them."""
    data, run, policy = made / "materialise/data", made / "train/run", made / "collect"
    td, labels = made / "td/gvf", made / "label/labels"
    dataset = Dataset.open(data)
    returns = next((made / "sweep").rglob("seed0/returns.csv"))
    parquet = returns.with_suffix(".parquet")
    write_rows(parquet, read_rows(returns))
    return {
        "manifests": (sorted(made.rglob("manifest.json")), lambda x: read_any_manifest(x.parent)),
        "DONE": (sorted(made.rglob("DONE")), _done),
        "run: checkpoint": ([run / "checkpoint.pt"], load_checkpoint),
        "run: kept networks": (sorted(run.glob("checkpoints/*.pt")), load_checkpoint),
        "fit: td checkpoint": ([td / "checkpoint.pt"], load_checkpoint),
        "fit: values": ([td / "values.npy"], _listed),
        "collect: training state": ([policy / "checkpoint.pt"], load_checkpoint),
        "collect: policy": ([policy / "policy.pt"], _policy),
        "recordings": ([policy / f"{stages.GAME}.gsfrec"], Recording.load),
        "dataset: columns": ([data / f"{x}.npy" for x in COLUMN_DTYPES], _columns),
        "dataset: checksums": ([data / "checksum.npy"], _frames),
        "dataset: frames": ([data / "obs.npy"], _frames),
        "labels": (sorted(labels.glob("*.npy")), lambda x: _fields(load_labels(x.parent, dataset))),
        "metrics": (sorted(made.rglob("metrics.jsonl")), read_metrics),
        "returns, csv": (sorted(made.rglob("returns.csv")), _rows),
        "returns, parquet": ([parquet], _rows),
        "report": (sorted((made / "report/report").rglob("*.*ml")), _listed),
        "similar": (sorted((made / "similar/similar").glob("similar.*")), _listed),
    }


def _done(path: Path) -> Any:
    is_whole(path.parent, read_any_manifest(path.parent))
    return read_json(path, dict)


def _policy(path: Path) -> Any:
    policy = load_policy(path)
    return policy.provenance, policy.net.state_dict()


def _columns(path: Path) -> Any:
    dataset = Dataset.open(path.parent)
    return {name: np.array(getattr(dataset, name)) for name in COLUMN_DTYPES}


def _frames(path: Path) -> Any:
    return np.array(Dataset.open(path.parent).obs[:])


def _fields(found: Any) -> Any:
    return {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}


def _rows(path: Path) -> Any:
    return read_rows(path)


def _listed(path: Path) -> Any:
    """A file whose checksum is in a manifest."""
    folder = next(x for x in path.parents if (x / "manifest.json").is_file())
    check_files(folder, read_any_manifest(folder))
    return path.read_bytes()


def _attack(name: str, files: list[Path], read: Reader, n: int, rng: np.random.Generator) -> Row:
    row = Row("flips", name)
    assert files, name
    before = {file: read(file) for file in files}
    for file in (files[i] for i in rng.integers(len(files), size=n)):
        whole = file.read_bytes()
        case, damaged = _damage(whole, rng)
        if damaged == whole:
            continue
        row.tried += 1
        file.write_bytes(damaged)
        try:
            if not _same(before[file], read(file)):
                row.fail("silently changed", f"{file.name}: {case}")
        except UserError:
            pass
        except Exception as error:
            row.fail("tracebacks", f"{file.name}: {case}: {type(error).__name__}: {error}")
        finally:
            file.write_bytes(whole)
    return row


def _damage(whole: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    data, at, how = bytearray(whole), int(rng.integers(len(whole))), rng.random()
    if how < 0.6:
        bit = int(rng.integers(8))
        data[at] ^= 1 << bit
        return f"bit {bit} of byte {at}", bytes(data)
    if how < 0.8:
        data[at] = int(rng.integers(256))
        return f"byte {at} became {data[at]}", bytes(data)
    if how < 0.9:
        data[at : at + 512] = bytes(len(data[at : at + 512]))
        return f"zeros from byte {at}", bytes(data)
    return f"cut at byte {at}", bytes(data[:at])


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        one, other = one.numpy(), torch.as_tensor(other).numpy()
    if isinstance(one, np.ndarray):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and one.tobytes() == other.tobytes()
        )
    if isinstance(one, pd.DataFrame):
        return bool(one.equals(other))
    if isinstance(one, Recording):
        return one.to_bytes() == other.to_bytes()
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(x, other[k]) for k, x in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
