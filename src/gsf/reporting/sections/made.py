"""Section "How it was made": versions, commands, configs and digests, from all manifests."""

import importlib.metadata
import json
import platform
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from gsf.core.code import is_code
from gsf.core.naming import split_variant
from gsf.core.results import Results, Stage
from gsf.core.version import __version__
from gsf.learn.legend import in_order
from gsf.reporting.page import Page, Part, part, table, text

_PACKAGES = ("torch", "numpy", "procgen-mirror", "rliable", "pandas", "matplotlib")
# kind of a directory -> the verb that makes it, and which option is given without its name
_MADE_BY = {
    "policy": ("collect", ""),
    "dataset": ("materialise", "recording"),
    "gvf": ("fit", "dataset"),
    "labels": ("label", "gvf"),
    "run": ("train", "dataset"),
}


def made(found: Results, options: Mapping[str, Any], page: Page) -> Iterator[Part]:
    versions = [f"python {platform.python_version()}", f"gsf {__version__}"]
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{package} not installed")
    yield text(f"This page: {', '.join(versions)}.")
    stages = found.of_kind("dataset", "gvf", "labels", "run")
    if stages:
        facts = [s.manifest for s in stages]
        by = sorted({f"gsf {x.get('gsf')}, commit {x.get('commit')}" for x in facts})
        yield text(f"What it shows was made by {'; '.join(by)}.")
    first = _first_of_each(found)
    if commands := [page.brief(words) for stage in first if (words := command(stage))]:
        yield text("The commands, every option spelled out (one of each method):", "note")
        yield part("code", words="\n\n".join(commands))
    rows = [
        {
            "directory": page.brief(str(stage.path)),
            "kind": stage.kind,
            "digest": stage.digest,
            "made of": ", ".join(
                f"{name} {x}" for name, x in stage.inputs.items() if not is_code(name)
            ),
        }
        for stage in stages
    ]
    digests = [table(pd.DataFrame(rows), "digests")] if rows else []
    summary = f"Digests of {len(rows)} directories"
    yield part("details", summary=summary, parts=digests, is_open=False)
    configs = {"report": options} | {str(stage.path): stage.config for stage in first}
    code = part("code", words=page.brief(json.dumps(configs, indent=1)))
    yield part("details", summary="Resolved configs", parts=[code], is_open=False)


def _first_of_each(found: Results) -> list[Stage]:
    """A dataset, a fit and labels of each cumulant and variant, and a run of each method."""
    first: dict[tuple[str, ...], Stage] = {}
    for stage in found.of_kind("policy", "dataset", "gvf", "labels"):
        _, settings = split_variant(stage.path.name)
        what = stage.kind, str(stage.manifest.get("cumulant", "")), *settings
        first.setdefault(what, stage)
    runs = {str(run.manifest.get("method")): run for run in reversed(found.of_kind("run"))}
    return [*first.values(), *(runs[method] for method in in_order(runs))]


def command(stage: Stage) -> str:
    """The command that makes it again, every option spelled out; "" for imported data."""
    verb, positional = _MADE_BY[stage.kind]
    if stage.kind == "dataset" and positional not in stage.config:
        return ""
    first = [str(stage.config[positional])] if positional in stage.config else []
    rest = {name: value for name, value in stage.config.items() if name != positional}
    rest |= rest.pop("parts", {})  # --cql.alpha, not --parts.cql.alpha
    return shlex.join(["gsf", verb, *first, *_words(rest)])


def _words(config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in config.items():
        option = f"{prefix}{name.replace('_', '-')}"
        if isinstance(value, bool):
            yield f"--{'' if value else 'no-'}{option}"
        elif isinstance(value, Mapping):
            yield from _words(value, f"{option}.")
        elif isinstance(value, list):
            yield from [f"--{option}", *map(str, value)] if value else []
        elif value is not None:
            yield from [f"--{option}", str(value)]
