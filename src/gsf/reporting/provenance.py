"""How a report was made: versions, commands, configs and digests, from all stages' manifests."""

import importlib.metadata
import json
import platform
from collections.abc import Iterator, Mapping
from typing import Any

from gsf.core.version import __version__
from gsf.reporting import page
from gsf.reporting.artifacts import Artifacts
from gsf.reporting.returns import in_order
from gsf.reporting.sources import Sources, Stage

_PACKAGES = ("gsf", "torch", "numpy", "procgen-mirror", "rliable", "pandas", "matplotlib")


def provenance(sources: Sources, made: Artifacts, options: Mapping[str, Any]) -> Iterator[str]:
    """Versions, commands, configs and digests."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = __version__ if package == "gsf" else "not installed"
    stages = [s for kind in ("dataset", "gvf", "labels", "run") for s in sources.of(kind)]
    made_by = sorted(
        {f"gsf {s.manifest.get('gsf')}, commit {s.manifest.get('commit')}" for s in stages}
    )
    shown = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield page.paragraph(f"This page: {shown}.")
    if made_by:
        yield page.paragraph(f"What it shows was made by {'; '.join(made_by)}.")
    first = _first_of_each(sources)
    commands = [x for x in (made.brief(stage.command()) for stage in first) if x]
    if commands:
        yield page.paragraph("The commands, every option spelled out (one of each method):", "note")
        yield page.code("\n\n".join(commands))
    rows = [_digests(stage, made) for stage in stages]
    yield page.details(
        f"Digests of {len(rows)} directories", page.plain_table(rows, "digests") if rows else ""
    )
    configs = {made.brief(str(s.path)): s.config for s in first}
    text = made.brief(json.dumps({"report": options, **configs}, indent=1))
    yield page.details("Resolved configs", page.code(text))


def _first_of_each(sources: Sources) -> list[Stage]:
    """One dataset, fit and labels per cumulant, one run per method."""
    found: dict[tuple[str, str], Stage] = {}
    for kind in ("policy", "dataset", "gvf", "labels"):
        for stage in sources.of(kind):
            found.setdefault((kind, str(stage.manifest.get("cumulant", ""))), stage)
    runs = {str(run.manifest.get("method")): run for run in reversed(sources.of("run"))}
    return [*found.values(), *(runs[method] for method in in_order(runs))]


def _digests(stage: Stage, made: Artifacts) -> dict[str, str]:
    return {
        "directory": made.brief(str(stage.path.resolve())),
        "kind": stage.kind,
        "digest": str(stage.manifest.get("digest", "")),
        "made of": ", ".join(f"{name} {x}" for name, x in stage.inputs.items()),
    }
