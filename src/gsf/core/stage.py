"""What a stage's directory says of itself: its manifest, its digest, and whether it is done."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gsf import __version__
from gsf.core.errors import UserError
from gsf.core.files import digest, write_atomic

# Options that say where things lie and what works on them; `inputs` says what they are.
_WHERE = {"recording", "source", "dataset", "gvf", "labels", "policy", "bootstrap", "against"}
_WHERE |= {"out", "threads", "device"}


def write_manifest(
    directory: Path,
    kind: str,
    version: int,
    *,
    config: Mapping[str, Any],
    inputs: Mapping[str, str],
    **facts: Any,
) -> dict[str, Any]:
    """`digest` identifies this output to the next stage; `inputs` holds those it was made of.

    The same made elsewhere, or by another number of threads, is the same.
    """
    manifest = {
        "kind": kind,
        "format": version,
        "gsf": __version__,
        "commit": _git_commit(),
        "config": dict(config),
        "inputs": dict(inputs),
        **facts,
    }
    body = {k: v for k, v in manifest.items() if k not in ("gsf", "commit")}
    body["config"] = {k: v for k, v in config.items() if k not in _WHERE}
    manifest["digest"] = digest(json.dumps(body, sort_keys=True))
    write_atomic(directory / "manifest.json", json.dumps(manifest, indent=1) + "\n")
    return manifest


def read_manifest(directory: Path, kind: str, version: int) -> dict[str, Any]:
    path = Path(directory) / "manifest.json"
    if not path.is_file():
        raise UserError(f"{directory} is not a {kind}: it has no manifest.json.")
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
        found, found_version = manifest["kind"], manifest["format"]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is damaged; make the {kind} again.") from None
    if found != kind:
        raise UserError(f"{directory} holds a {found}, not a {kind}.")
    if found_version != version:
        raise UserError(
            f"{directory} has {kind} format {found_version}; this gsf reads format {version}."
        )
    return manifest


def require_input(manifest: Mapping[str, Any], name: str, found: str, advice: str) -> None:
    """Refuses an input other than the one the manifest was made of."""
    expected = manifest["inputs"].get(name)
    if expected != found:
        raise UserError(f"made from another {name} ({expected}, not {found}): {advice}")


def _git_commit() -> str | None:
    """The commit of a source checkout; None for an installed package."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "--verify", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def mark_done(directory: Path, **facts: Any) -> None:
    write_atomic(directory / "DONE", json.dumps(facts) + "\n")


def is_done(directory: Path) -> bool:
    return (directory / "DONE").is_file()


RUN_FORMAT = 1  # of a training run's manifest


# Options of a run that do not change what is learnt: it may go on with others.
FREE = ("dataset", "labels", "out", "device", "log_every", "checkpoint_every")
