"""What a stage's output is, said once, and whether it is there already.

It is the options that decide its content, the digests of its inputs, and the digest of its content
where it has one. Its manifest.json holds them.

Every stage asks here: is it there, is it the same, if not what is the most telling difference, may
it go on. An output written aside is whole once it is there; one made in place, which may be stopped
and go on, has its manifest from the start and DONE at the end.
"""

import contextlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from gsf.core.code import is_code
from gsf.core.errors import UserError
from gsf.core.files import check_place, clear_locks, digest, digest_file, is_vacant, remove
from gsf.core.options import Role, roles, to_json
from gsf.core.schema import (
    ACTIONS,
    COUNT,
    DIGEST,
    LEVELS,
    N_ACTIONS,
    NUMBER,
    POSITIVE,
    SEED,
    SHAPE,
    TEXT,
    Form,
    Maybe,
    Where,
    misfit,
    parse_json,
)
from gsf.core.sealed import KEY, check_file, checked, damaged, read_json, write_json
from gsf.core.version import __version__

MANIFEST, DONE, METRICS = "manifest.json", "DONE", "metrics.jsonl"
FORMATS = {  # of every kind of directory: a number that goes up when old ones can no longer be read
    "policy": 2,
    "recording": 2,
    "dataset": 2,
    "gvf": 2,
    "labels": 2,
    "run": 3,
    "tuning": 2,
    "similar": 2,
    "report": 2,
}
_FILES = {str: DIGEST}
_PLACE = Where(
    {
        "obs_shape": SHAPE,
        "n_actions": N_ACTIONS,
        "levels": LEVELS,
        "actions": Maybe((None, ACTIONS)),
        "difficulty": Maybe((None, str)),
    },
    "one with an id for each action",
    lambda x: len(x.get("actions") or range(x["n_actions"])) == x["n_actions"],
)
_DONE: Form = {"kind": str, "files": _FILES}
_MANIFEST: Form = {
    "kind": str,
    "format": int,
    "digest": DIGEST,
    "content": (None, str),
    "gsf": str,
    "commit": (None, str),
    "config": {str: object},
    "options": {str: object},
    "inputs": {str: str},
}
# What a manifest of each kind has beside, from the start or once it is whole.
_BEGUN: dict[str, Form] = {
    "run": {
        "game": TEXT,
        "method": TEXT,
        "seed": SEED,
        "reward_scale": NUMBER,
        "config": {
            "dataset": str,
            "gamma": NUMBER,
            "head": str,
            "on": str,
            "encoder": str,
            "parts": {str: {str: object}},
        },
        "options": {"on": str},
    },
    "report": {"files": _FILES},
    "policy": {"game": TEXT},
    "recording": {"game": TEXT},
}
_WHOLE: dict[str, Form] = {
    "dataset": {
        "name": TEXT,
        "n": POSITIVE,
        "n_frames": POSITIVE,
        "episodes": POSITIVE,
        "mean_return": (None, NUMBER),
        "regions": [[COUNT]],
        "files": _FILES,
    },
    "gvf": {
        "cumulant": str,
        "rank": str,
        "levels": LEVELS,
        "n": POSITIVE,
        "d": POSITIVE,
        "seeded": bool,
        "unknown": NUMBER,
        "files": _FILES,
        "inputs": {"dataset": str},
        "config": {"dataset": str, "estimator": str, "gamma": NUMBER, "seed": int},
    },
    "labels": {
        "cumulant": str,
        "levels": LEVELS,
        "n": POSITIVE,
        "n_bins": POSITIVE,
        "n_labels": POSITIVE,
        "files": _FILES,
        "inputs": {"dataset": str},
        "histogram": [COUNT],
        "share_ignored": NUMBER,
        "spearman_time_left": [(None, NUMBER)],
        "config": {"quantiles": str},
    },
    "similar": {"game": TEXT, "files": _FILES},
}


@dataclass(frozen=True)
class Identity:
    """What an output is to be, before it is made."""

    kind: str
    inputs: Mapping[str, str] = field(default_factory=dict)  # digests
    config: Mapping[str, Any] = field(default_factory=dict)  # all options
    options: Mapping[str, Any] = field(default_factory=dict)  # those that decide the content
    extendable: frozenset[str] = frozenset()  # those a finished output may be given more of
    any_code: bool = False  # it may have been made by gsf's code as it was before an edit

    @classmethod
    def of(cls, kind: str, config: Any, inputs: Mapping[str, str], **resolved: Any) -> Self:
        """`resolved`: what options come to whose spelling does not matter, as in ./mine.py:f."""
        by_role = roles(type(config))
        aside = {name for name, role in by_role.items() if role is not Role.EXTENDABLE}
        options = {name: x for name, x in to_json(config).items() if name not in aside}
        for parts in [options.pop(x) for x, its in [*options.items()] if isinstance(its, Mapping)]:
            options |= {f"{part}.{x}": value for part in parts for x, value in parts[part].items()}
        options |= resolved
        any_code = getattr(config, "accept_code_change", False)
        return cls(kind, inputs, to_json(config), options, frozenset({*by_role} - aside), any_code)

    def digest(self, content: str | None = None) -> str:
        """The same for the same output, wherever, whenever and however fast it was made."""
        return _digest(self.kind, self.options, self.inputs, content)

    def is_done(self, out: Path) -> bool:
        """Whether `out` is this output, whole; anything else in its place is refused, and where
        nothing can be written."""
        manifest = self._found(out)
        if manifest is None or not is_whole(out, manifest) or self._grows(manifest["options"]):
            check_place(out)
            return False
        clear_locks(out)
        return True

    def _grows(self, made: Mapping[str, Any]) -> bool:
        return any(made.get(name) != self.options[name] for name in self.extendable)

    def _found(self, out: Path) -> dict[str, Any] | None:
        """The manifest in `out`, of this output or of one that may go on to become it."""
        if not (out / MANIFEST).is_file():
            if not is_vacant(out):
                raise UserError(f"{out} exists and is not {_a(self.kind)}; choose another --out.")
            return None
        manifest = read_manifest(out, self.kind, whole=False)
        if difference := self._difference(manifest, is_whole(out, manifest)):
            raise UserError(f"{out} {difference}; remove it or choose another --out.")
        if (changed := self._changed_code(manifest)) and not self.any_code:
            raise UserError(
                f"{out} holds {_a(self.kind)} made before {changed[0]} was edited; remove it, "
                "choose another --out, or add --accept-code-change to keep it and go on."
            )
        return manifest

    def _changed_code(self, manifest: Mapping[str, Any]) -> list[str]:
        """Files of gsf that were others when the output was made."""
        made_of = manifest["inputs"]
        names = sorted({*self.inputs, *made_of})
        return [x for x in names if is_code(x) and self.inputs.get(x) != made_of.get(x)]

    def _difference(self, manifest: Mapping[str, Any], whole: bool) -> str | None:
        """The most telling one, as the end of a sentence. How long is open until it is whole."""
        made, made_of = manifest["options"], manifest["inputs"]
        for name, wanted in self.options.items():
            found = made.get(name)
            more = name in self.extendable and (
                not whole or not isinstance(found, int) or found < wanted
            )
            if found != wanted and not more:
                option = name.replace("_", "-")
                return f"holds {_a(self.kind)} with --{option} {found}, not {wanted}"
        for name in sorted({*self.inputs, *made_of}):
            if not is_code(name) and self.inputs.get(name) != made_of.get(name):
                return f"holds {_a(self.kind)} made from another {name}"
        return None

    def begin(self, out: Path, **facts: Any) -> None:
        """Marks a directory as this output in the making; what is there of it stays."""
        if not self.is_done(out):
            found = self._found(out)
            if found and (changed := self._changed_code(found)):
                facts["code_changed"] = sorted({*found.get("code_changed", ()), *changed})
            remove(out / DONE)
            self.write(out, in_place=True, **facts)

    def finish(self, out: Path, **facts: Any) -> None:
        """Marks an output made in place as whole."""
        log = out / METRICS
        of_log = {METRICS: digest_file(log)} if log.is_file() else {}  # to which nothing is added
        write_json(out / DONE, {"kind": self.kind, **facts, "files": of_log})

    def write(self, directory: Path, content: str | None = None, **facts: Any) -> dict[str, Any]:
        """Writes and returns the manifest; `digest` identifies the output to the next stage."""
        manifest = {
            "kind": self.kind,
            "format": FORMATS[self.kind],
            "digest": self.digest(content),
            "content": content,
            "gsf": __version__,
            "commit": _git_commit(),
            "config": dict(self.config),
            "options": dict(self.options),
            "inputs": dict(self.inputs),
            **facts,
        }
        for form in _forms(self.kind, not manifest.get("in_place")):
            check_facts(directory, json.loads(json.dumps(manifest)), form)
        write_json(directory / MANIFEST, manifest)
        return manifest


def check_facts(out: Path, facts: Mapping[str, Any], form: Form = _PLACE) -> None:
    """Before anything is written: a manifest that could not be read again is refused."""
    if wrong := misfit(facts, form):
        raise UserError(f"{out} cannot be made: {wrong}.")


def _forms(kind: str, whole: bool) -> list[Form]:
    """All that its kind asks of a manifest."""
    found = [_BEGUN.get(kind, {})] + [_WHOLE.get(kind, {})] * whole
    return [*found, _PLACE] if kind in ("run", "dataset") else found


def _digest(kind: str, options: Any, inputs: Any, content: str | None) -> str:
    return digest(json.dumps([kind, FORMATS[kind], options, inputs, content], sort_keys=True))


_MADE_BY = {
    "dataset": "`gsf materialise` and `gsf data import` make one",
    "gvf": "`gsf fit` makes one of a dataset: values of its observations, to be labelled",
    "labels": "`gsf label` makes them of a fit, which `gsf fit` makes of a dataset",
    "run": "`gsf train` makes one",
    "report": "`gsf report` makes one",
}


def _a(kind: str) -> str:
    """A kind as it stands in a sentence."""
    return {"gvf": "a fit", "labels": "labels"}.get(kind, f"a {kind}")


def is_whole(directory: Path, manifest: Mapping[str, Any]) -> bool:
    done = directory / DONE
    if not manifest.get("in_place") or not done.is_file():
        return not manifest.get("in_place")
    try:
        read_json(done, _DONE)
    except UserError as error:
        raise UserError(f"{error} Or remove it: the same command finishes again.") from None
    return True


def read_manifest(directory: Path, kind: str, whole: bool = True) -> dict[str, Any]:
    """The manifest of a directory of this kind; with `whole` an unfinished one is refused."""
    directory = Path(directory)
    if not (directory / MANIFEST).is_file():
        there = f"{directory} is not {_a(kind)}: it has no {MANIFEST}"
        missing = there if directory.exists() else f"there is no {directory}"
        raise UserError(f"{missing}; {_MADE_BY.get(kind, 'name another')}.")
    manifest = read_any_manifest(directory, kind)
    if whole and not is_whole(directory, manifest):
        raise UserError(f"{directory} is not finished; give the command that makes it again.")
    return manifest


def read_any_manifest(directory: Path, wanted: str | None = None) -> dict[str, Any]:
    """A manifest that has all that its kind asks for, of any kind or the one that is wanted."""
    path = directory / MANIFEST
    try:
        manifest = read_json(path, _MANIFEST)
    except UserError:
        _refuse_older(path)
        raise
    kind = manifest["kind"]
    if manifest["format"] != FORMATS.get(kind):
        raise _other_format(path, kind, manifest["format"])
    own = _digest(kind, manifest["options"], manifest["inputs"], manifest["content"])
    if own != manifest["digest"]:
        raise damaged(path, "its digest is of something else")
    if wanted not in (None, kind):
        more = _MADE_BY.get(str(wanted), "name another")
        raise UserError(f"{directory} holds {_a(kind)}, not {_a(str(wanted))}; {more}.")
    whole = not manifest.get("in_place") or (directory / DONE).is_file()
    for form in _forms(kind, whole):
        checked(path, manifest, form)
    return manifest


def _refuse_older(path: Path) -> None:
    """One from before manifests had a checksum."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        said = parse_json(path.read_bytes())
        if KEY not in said and said["format"] != FORMATS[said["kind"]]:
            raise _other_format(path, said["kind"], said["format"])


def _other_format(path: Path, kind: str, found: Any) -> UserError:
    known = FORMATS.get(kind, "none of it")
    return UserError(f"{path.parent} has {kind} format {found}; this gsf reads format {known}.")


def check_finished(path: Path) -> None:
    """A file that grew line by line: once its directory is done, all of it is there."""
    done = path.with_name(DONE)
    expected = read_json(done, _DONE)["files"] if done.is_file() else {}
    if path.name in expected:
        check_file(path, expected[path.name])


def check_files(directory: Path, manifest: Mapping[str, Any]) -> None:
    """The files whose digests the manifest holds."""
    for name, expected in manifest["files"].items():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise UserError(f"{directory / MANIFEST} names {name}, which is not in its directory.")
        check_file(directory / name, expected)


def _git_commit() -> str | None:
    """The commit of a source checkout; None for an installed package."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "--verify", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None
