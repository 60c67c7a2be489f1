"""What a stage's output is, said once, and whether it is there already.

Its identity: the options that decide its content, the digests of its inputs, and the digest of its
content where it has one. All are in its manifest.json.

Every stage asks here: is the output there? Is it the same? If not, what is the most telling
difference, and may it go on? Most outputs are written aside and renamed: they are whole once they
are there. One made in place may be stopped and go on: it has its manifest from the start, and DONE
at the end.
"""

import contextlib
import functools
import importlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from gsf.core.code import changed, is_code
from gsf.core.errors import UserError
from gsf.core.files import check_place, clear_locks, digest, digest_file, is_vacant, remove
from gsf.core.options import Role, roles, to_json
from gsf.core.schema import (
    ACTIONS,
    DIGEST,
    LEVELS,
    N_ACTIONS,
    SHAPE,
    Form,
    Maybe,
    Where,
    misfit,
    parse_json,
)
from gsf.core.sealed import KEY, check_file, checked, damaged, read_json, write_json
from gsf.core.version import __version__

MANIFEST, DONE, METRICS = "manifest.json", "DONE", "metrics.jsonl"
FILES = {str: DIGEST}  # what lies beside a manifest
WORLD = Where(  # what agents see and do
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
_DONE: Form = {"kind": str, "files": FILES}
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


@dataclass(frozen=True)
class Kind:
    """A kind of output, and what its manifest holds beside what all manifests hold.

    Each stage declares its own in its package's options.py, beside its options.
    """

    name: str
    begun: tuple[Form, ...] = ()  # what it says from the start
    whole: tuple[Form, ...] = ()  # what it says once the output is whole
    format: int = 2  # goes up when older ones can no longer be read
    in_words: str = ""  # in a sentence: "a fit". Default: "a" and the name
    made_by: str = "name another"  # what to do where one is missing

    def __str__(self) -> str:
        return self.in_words or f"a {self.name}"

    def forms(self, whole: bool) -> tuple[Form, ...]:
        return self.begun + self.whole * whole


@functools.cache
def kinds() -> dict[str, Kind]:
    """Every kind that a package declares in its options.py."""
    root = Path(__file__).parents[1]
    packages = sorted(file.parent.name for file in root.glob("*/options.py"))
    modules = [importlib.import_module(f"gsf.{package}.options") for package in packages]
    declared = [x for module in modules for x in vars(module).values() if isinstance(x, Kind)]
    return {kind.name: kind for kind in declared}


@dataclass(frozen=True)
class Identity:
    """What an output is to be, before it is made."""

    kind: str
    inputs: Mapping[str, str] = field(default_factory=dict)  # digests
    config: Mapping[str, Any] = field(default_factory=dict)  # all options
    options: Mapping[str, Any] = field(default_factory=dict)  # those that decide the content
    extendable: frozenset[str] = frozenset()  # those a finished output may be given more of
    any_code: bool = False  # --accept-code-change

    @classmethod
    def of(cls, kind: str, config: Any, inputs: Mapping[str, str], **resolved: Any) -> Self:
        """`resolved`: values instead of options that can be spelt in many ways (./mine.py:f)."""
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
        """Whether `out` is this output, whole. Refuses an `out` that is something else, or that
        cannot be written."""
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
                raise UserError(
                    f"{out} exists and is not {kinds()[self.kind]}; choose another --out."
                )
            return None
        manifest = read_manifest(out, self.kind, whole=False)
        if difference := self._difference(manifest, is_whole(out, manifest)):
            raise UserError(f"{out} {difference}; remove it or choose another --out.")
        if (edited := changed(manifest["inputs"], self.inputs)) and not self.any_code:
            raise UserError(
                f"{out} holds {kinds()[self.kind]} made before {edited[0]} was edited; remove it, "
                "choose another --out, or add --accept-code-change to keep it and go on."
            )
        return manifest

    def _difference(self, manifest: Mapping[str, Any], whole: bool) -> str | None:
        """The most telling one, as the end of a sentence. None: it is this output, or a part of it
        that may still grow."""
        made, made_of = manifest["options"], manifest["inputs"]
        for name, wanted in self.options.items():
            found = made.get(name)
            more = name in self.extendable and (
                not whole or not isinstance(found, int) or found < wanted
            )
            if found != wanted and not more:
                option = name.replace("_", "-")
                return f"holds {kinds()[self.kind]} with --{option} {found}, not {wanted}"
        for name in sorted({*self.inputs, *made_of}):
            if not is_code(name) and self.inputs.get(name) != made_of.get(name):
                return f"holds {kinds()[self.kind]} made from another {name}"
        return None

    def begin(self, out: Path, **facts: Any) -> None:
        """Marks a directory as this output in the making; what is there of it stays."""
        if not self.is_done(out):
            found = self._found(out)
            if found and (edited := changed(found["inputs"], self.inputs)):
                facts["code_changed"] = sorted({*found.get("code_changed", ()), *edited})
            remove(out / DONE)
            self.write(out, in_place=True, **facts)

    def finish(self, out: Path, **facts: Any) -> None:
        """Marks an output made in place as whole."""
        log = out / METRICS
        of_log = {METRICS: digest_file(log)} if log.is_file() else {}  # it grows no more
        write_json(out / DONE, {"kind": self.kind, **facts, "files": of_log})

    def write(self, directory: Path, content: str | None = None, **facts: Any) -> dict[str, Any]:
        """Writes and returns the manifest; `digest` identifies the output to the next stage."""
        manifest = {
            "kind": self.kind,
            "format": kinds()[self.kind].format,
            "digest": self.digest(content),
            "content": content,
            "gsf": __version__,
            "commit": _git_commit(),
            "config": dict(self.config),
            "options": dict(self.options),
            "inputs": dict(self.inputs),
            **facts,
        }
        for form in kinds()[self.kind].forms(not manifest.get("in_place")):
            check_facts(directory, json.loads(json.dumps(manifest)), form)
        write_json(directory / MANIFEST, manifest)
        return manifest


def check_facts(out: Path, facts: Mapping[str, Any], form: Form = WORLD) -> None:
    """Refuses a manifest that could not be read again, before anything is written."""
    if wrong := misfit(facts, form):
        raise UserError(f"{out} cannot be made: {wrong}.")


def _digest(kind: str, options: Any, inputs: Any, content: str | None) -> str:
    return digest(
        json.dumps([kind, kinds()[kind].format, options, inputs, content], sort_keys=True)
    )


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
        there = f"{directory} is not {kinds()[kind]}: it has no {MANIFEST}"
        missing = there if directory.exists() else f"there is no {directory}"
        raise UserError(f"{missing}; {kinds()[kind].made_by}.")
    manifest = read_any_manifest(directory, kind)
    if whole and not is_whole(directory, manifest):
        raise UserError(f"{directory} is not finished; give the command that makes it again.")
    return manifest


def read_any_manifest(directory: Path, wanted: str | None = None) -> dict[str, Any]:
    """A manifest, of any kind or of the one that is wanted, with all that its kind asks for."""
    path = directory / MANIFEST
    try:
        manifest = read_json(path, _MANIFEST)
    except UserError:
        _refuse_older(path)
        raise
    kind = kinds().get(manifest["kind"])
    if kind is None or manifest["format"] != kind.format:
        raise _other_format(path, manifest["kind"], manifest["format"])
    own = _digest(kind.name, manifest["options"], manifest["inputs"], manifest["content"])
    if own != manifest["digest"]:
        raise damaged(path, "its digest is of something else")
    if wanted not in (None, kind.name):
        other = kinds()[str(wanted)]
        raise UserError(f"{directory} holds {kind}, not {other}; {other.made_by}.")
    whole = not manifest.get("in_place") or (directory / DONE).is_file()
    for form in kind.forms(whole):
        checked(path, manifest, form)
    return manifest


def _refuse_older(path: Path) -> None:
    """Says so where a manifest is from before they had checksums."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        said = parse_json(path.read_bytes())
        if KEY not in said and said["format"] != kinds()[said["kind"]].format:
            raise _other_format(path, said["kind"], said["format"])


def _other_format(path: Path, kind: str, found: Any) -> UserError:
    known = kinds()[kind].format if kind in kinds() else "none of it"
    return UserError(f"{path.parent} has {kind} format {found}; this gsf reads format {known}.")


def check_finished(path: Path) -> None:
    """Refuses a file that grew line by line and has changed since its directory was done."""
    done = path.with_name(DONE)
    expected = read_json(done, _DONE)["files"] if done.is_file() else {}
    if path.name in expected:
        check_file(path, expected[path.name])


def check_files(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Refuses files that are not as the manifest beside them says."""
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
