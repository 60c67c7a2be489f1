"""What a stage's output is, said once, and whether it is there already.

It is the options that decide its content, the digests of its inputs, and the digest of its content
where it has one. Its manifest.json holds them.

Every stage asks here: is it there, is it the same, if not what is the most telling difference, may
it go on. An output written aside is whole once it is there; one made in place, which may be stopped
and go on, has its manifest from the start and DONE at the end.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from gsf.core.errors import UserError
from gsf.core.files import digest, is_leftover, remove, write_atomic
from gsf.core.options import Role, roles, to_json
from gsf.core.version import __version__

MANIFEST, DONE = "manifest.json", "DONE"
FORMATS = {  # of every kind of directory: a number that goes up when old ones can no longer be read
    "policy": 1,
    "recording": 1,
    "dataset": 1,
    "gvf": 1,
    "labels": 1,
    "run": 1,
    "tuning": 1,
    "similar": 1,
    "report": 1,
}


@dataclass(frozen=True)
class Identity:
    """What an output is to be, before it is made."""

    kind: str
    inputs: Mapping[str, str] = field(default_factory=dict)  # digests
    config: Mapping[str, Any] = field(default_factory=dict)  # all options
    options: Mapping[str, Any] = field(default_factory=dict)  # those that decide the content
    extendable: frozenset[str] = frozenset()  # those a finished output may be given more of

    @classmethod
    def of(cls, kind: str, config: Any, inputs: Mapping[str, str], **resolved: Any) -> Self:
        """`resolved`: what options come to whose spelling does not matter, as in ./mine.py:f."""
        by_role = roles(type(config))
        aside = {name for name, role in by_role.items() if role is not Role.EXTENDABLE}
        options = {name: x for name, x in to_json(config).items() if name not in aside}
        options |= resolved
        return cls(kind, inputs, to_json(config), options, frozenset({*by_role} - aside))

    def digest(self, content: str | None = None) -> str:
        """The same for the same output, wherever, whenever and however fast it was made."""
        said = [self.kind, FORMATS[self.kind], self.options, self.inputs, content]
        return digest(json.dumps(said, sort_keys=True))

    def is_done(self, out: Path) -> bool:
        """Whether `out` is this output, whole; anything else in its place is refused."""
        manifest = self._found(out)
        if manifest is None or not is_whole(out, manifest):
            return False
        made = manifest["options"]
        return all(made.get(name) == self.options[name] for name in self.extendable)

    def _found(self, out: Path) -> dict[str, Any] | None:
        """The manifest in `out`, of this output or of one that may go on to become it."""
        if not (out / MANIFEST).is_file():
            if out.exists() and not (out.is_dir() and all(map(is_leftover, out.iterdir()))):
                raise UserError(f"{out} exists and is not {_a(self.kind)}; choose another --out.")
            return None
        manifest = read_manifest(out, self.kind, whole=False)
        if difference := self._difference(manifest, is_whole(out, manifest)):
            raise UserError(f"{out} {difference}; remove it or choose another --out.")
        return manifest

    def _difference(self, manifest: Mapping[str, Any], whole: bool) -> str | None:
        """The most telling one, as the end of a sentence. How long is open until it is whole."""
        made, made_of = manifest["options"], manifest["inputs"]
        for name, wanted in self.options.items():
            found = made.get(name)
            more = name in self.extendable and (not whole or found is None or found < wanted)
            if found != wanted and not more:
                option = name.replace("_", "-")
                return f"holds {_a(self.kind)} with --{option} {found}, not {wanted}"
        for name in sorted({*self.inputs, *made_of}):
            if self.inputs.get(name) != made_of.get(name):
                return f"holds {_a(self.kind)} made from another {name}"
        return None

    def begin(self, out: Path, **facts: Any) -> None:
        """Marks a directory as this output in the making; what is there of it stays."""
        if not self.is_done(out):
            remove(out / DONE)
            self.write(out, in_place=True, **facts)

    def finish(self, out: Path, **facts: Any) -> None:
        """Marks an output made in place as whole."""
        write_atomic(out / DONE, json.dumps(facts) + "\n")

    def write(self, directory: Path, content: str | None = None, **facts: Any) -> dict[str, Any]:
        """Writes and returns the manifest; `digest` identifies the output to the next stage."""
        manifest = {
            "kind": self.kind,
            "format": FORMATS[self.kind],
            "digest": self.digest(content),
            "gsf": __version__,
            "commit": _git_commit(),
            "config": dict(self.config),
            "options": dict(self.options),
            "inputs": dict(self.inputs),
            **facts,
        }
        write_atomic(directory / MANIFEST, json.dumps(manifest, indent=1) + "\n")
        return manifest


def _a(kind: str) -> str:
    """A kind as it stands in a sentence."""
    return {"gvf": "a fit", "labels": "labels"}.get(kind, f"a {kind}")


def is_whole(directory: Path, manifest: Mapping[str, Any]) -> bool:
    return not manifest.get("in_place") or (directory / DONE).is_file()


def read_manifest(directory: Path, kind: str, whole: bool = True) -> dict[str, Any]:
    """The manifest of a directory of this kind; with `whole` an unfinished one is refused."""
    path = Path(directory) / MANIFEST
    if not path.is_file():
        raise UserError(f"{directory} is not {_a(kind)}: it has no {MANIFEST}.")
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
        found, found_version = manifest["kind"], manifest["format"]
        if not all(isinstance(manifest[x], dict) for x in ("config", "options", "inputs")):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is damaged; make {_a(kind)} again.") from None
    if found != kind:
        raise UserError(f"{directory} holds {_a(found)}, not {_a(kind)}.")
    if found_version != FORMATS[kind]:
        raise UserError(
            f"{directory} has {kind} format {found_version}; this gsf reads format {FORMATS[kind]}."
        )
    if whole and not is_whole(Path(directory), manifest):
        raise UserError(f"{directory} is not finished; give the command that makes it again.")
    return manifest


def _git_commit() -> str | None:
    """The commit of a source checkout; None for an installed package."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "--verify", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None
