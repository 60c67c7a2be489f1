"""Manifests without what they are of, and changed ones: whole by checksum, whatever they say."""

import json
from pathlib import Path
from typing import Any

from gsf.core.files import digest_file
from gsf.core.sealed import write_json
from gsf.core.stage import Identity, _digest, kinds

_PLACE = {"obs_shape": [64, 64, 3], "n_actions": 15, "levels": [0]}
_CONFIG = {"dataset": "data", "gamma": 0.99, "head": "mlp", "on": "cql", "encoder": "impala"}
_CONFIG |= {"estimator": "mc", "seed": 0, "quantiles": "dataset", "parts": {}}
_FACTS: dict[str, dict[str, Any]] = {
    "run": {"game": "maze", "method": "cql", "seed": 0, "reward_scale": 1.0, **_PLACE}
    | {"difficulty": "easy", "actions": None},
    "dataset": {"name": "maze", "n": 1, "n_frames": 1, "episodes": 1, "mean_return": None}
    | {"regions": [[0, 1]], "files": {}, **_PLACE},
    "gvf": {"cumulant": "reward", "rank": "value", "levels": [0], "n": 1, "d": 1, "seeded": False}
    | {"unknown": 0.0, "files": {}},
    "labels": {"cumulant": "reward", "levels": [0], "n": 1, "n_bins": 7, "n_labels": 1}
    | {"files": {}, "histogram": [1], "share_ignored": 0.0, "spearman_time_left": [None]},
    "report": {"files": {}},
    "similar": {"game": "maze", "files": {}},
    "policy": {"game": "maze"},
}


def identity(kind: str, config: Any = None, inputs: Any = None, options: Any = None) -> Identity:
    return Identity(kind, inputs or {}, _CONFIG | (config or {}), {"on": "cql", **(options or {})})


def write(kind: str, path: Path, config: Any = None, inputs: Any = None, **facts: Any) -> Any:
    inputs = inputs or ({"dataset": "0" * 16} if kind in ("gvf", "labels") else {})
    return write_as(identity(kind, config, inputs), path, **facts)


def write_as(who: Identity, path: Path, **facts: Any) -> Any:
    return who.write(path, **{**_FACTS.get(who.kind, {}), **facts})


def change(directory: Path, **changes: Any) -> None:
    """Other facts (None: none), and the digests of the files as they are now."""
    manifest = json.loads((directory / "manifest.json").read_text()) | changes
    manifest.pop("checksum")
    if "digest" not in changes and manifest["kind"] in kinds():
        own = (manifest[name] for name in ("kind", "options", "inputs", "content"))
        manifest["digest"] = _digest(*own)
    for name in manifest.get("files", {}):
        if (directory / name).is_file():
            manifest["files"][name] = digest_file(directory / name)
    for name in (name for name, value in changes.items() if value is None):
        del manifest[name]
    write_json(directory / "manifest.json", manifest)
