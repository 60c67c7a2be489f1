"""Doors: what a user may name, and what a name stands for.

A name is a file of one of gsf's folders, an entry point of an installed package, or `file.py:Name`,
a name in a file of the user's own, which is run.

A folder is the only list of names there is: to add a thing is to add a file. What a manifest
names is never run: a user has to have named the file in this process (`allow`, or any option).
"""

import ast
import contextlib
import functools
import importlib
import importlib.metadata
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from gsf.core.errors import UserError, did_you_mean
from gsf.core.files import digest, digest_file

T = TypeVar("T")
_FILE = re.compile(r"(?P<path>.+\.py):(?P<name>\w+)")
_PREFIX = "gsf_user_"  # of the modules of such files
SOURCE = "__source__"  # of such a module
_named: dict[str, Path] = {}  # digest -> file that the user has named in this process
_spelled: dict[str, str] = {}  # as the user wrote it -> digest
_stand_ins: dict[str, Path] = {}  # as the user wrote it, on another machine -> the file here


@dataclass(frozen=True)
class Found(Generic[T]):
    """What a name stands for."""

    spec: str  # as the user wrote it
    name: str  # short, in tables and directories
    value: T
    code: str | None = None  # digest of the user's file it came from

    def identity(self, role: str) -> dict[str, str]:
        """The digest of the user's file, an input of what is made with it; none of gsf's."""
        return {} if self.code is None else {role: self.code}


class Registry(Generic[T]):
    """The things of one kind: `what` they are called, the `package` whose folder holds them (None:
    gsf has none of its own), and `accepts`, which tells one of them from anything else in a module.

    A thing says its own `name`; in the folder the file is named like it.
    """

    def __init__(
        self,
        what: str,
        package: str | None,
        accepts: Callable[[Any], bool],
        group: str | None = None,
    ) -> None:
        self.what, self._package, self._accepts = what, package, accepts
        self._one = f"{'an' if what[0] in 'aeiou' else 'a'} {what}"
        self.group = group or f"gsf.{str(package).rpartition('.')[2]}"  # of entry points

    def built_in(self) -> list[str]:
        if self._package is None:
            return []
        folder = importlib.import_module(self._package).__path__
        return sorted(m.name for m in pkgutil.iter_modules(folder) if not m.name.startswith("_"))

    def _installed(self) -> dict[str, importlib.metadata.EntryPoint]:
        found = _entry_points(self.group, tuple(sys.path))
        if clash := sorted(set(found) & set(self.built_in())):
            raise UserError(
                f"an installed package calls {self._one} {clash[0]!r}, which gsf has already; "
                "remove the package or rename its entry point."
            )
        return found

    def names(self) -> list[str]:
        """Those that need no file: gsf's own and those of installed packages."""
        return [*self.built_in(), *sorted(self._installed())]

    def owns(self, spec: str) -> bool:
        """Whether `spec` names a thing of this kind; a user's file is run to find out."""
        if match := _FILE.fullmatch(spec):
            return self._accepts(getattr(_run(Path(match["path"])), match["name"], None))
        return spec in self.names()

    def find(self, spec: str) -> Found[T]:
        """The thing that `spec` names, or an error that says what there is."""
        if match := _FILE.fullmatch(spec):
            return self._from_file(spec, Path(match["path"]), match["name"])
        if spec in self.built_in():
            module = importlib.import_module(f"{self._package}.{spec}")
            return Found(spec, spec, self._only(module, spec, str(module.__file__)))
        if entry := self._installed().get(spec):
            value = guarded(entry.load, f"the installed {self.what} {spec!r}")
            return Found(spec, spec, self._checked(value, spec, entry.value))
        raise UserError(self._unknown(spec))

    def find_again(self, spec: str, code: str | None) -> Found[T]:
        """What a manifest names. Code of a file runs only if the user has named that file."""
        if not _FILE.fullmatch(spec):
            return self.find(spec)
        name = spec.rpartition(":")[2]
        if code not in _named or digest_file(_named[code]) != code:
            raise UserError(
                f"{spec} is code of a file; if you trust it, name the file, as it was, with --code."
            )
        return self._from_file(spec, _named[code], name)

    def of_files(self) -> list[T]:
        """Things of this kind in the files that the user has named in this process."""
        latest = {path: code for code, path in _named.items()}
        modules = [sys.modules[_module(path, code)] for path, code in latest.items()]
        return [x for module in modules for x in vars(module).values() if self._accepts(x)]

    def _unknown(self, spec: str) -> str:
        names = self.names()
        there = f"There are {', '.join(names)}, or your own as" if names else "Name your own as"
        meant = did_you_mean(spec, names)
        return f"unknown {self.what} {spec!r}; {meant}{there} file.py:Name."

    def _from_file(self, spec: str, path: Path, name: str) -> Found[T]:
        module = _run(path)
        if not hasattr(module, name):
            raise UserError(f"{path} has no {name!r}; it must define the {self.what} by that name.")
        value = self._checked(getattr(module, name), name, str(path))
        short = str(getattr(value, "name", name))
        if short in self.names():
            raise UserError(f"{spec}: {short!r} is {self._one} of gsf; give yours another name.")
        return Found(spec, short, value, digest_file(_stand_ins.get(str(path), path)))

    def _checked(self, value: Any, name: str, where: str) -> T:
        if not self._accepts(value):
            raise UserError(f"{name!r} of {where} is not {self._one}; see docs/extending.md.")
        found: T = value
        return found

    def _only(self, module: Any, name: str, where: str) -> T:
        """The thing of a file in gsf's folder: the one that says the file's name."""
        named = [v for v in vars(module).values() if getattr(v, "name", None) == name]
        if not named:
            raise ImportError(f"{where} holds no {self.what} with name = {name!r}")
        return self._checked(named[0], name, where)


@functools.cache
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, importlib.metadata.EntryPoint]:
    """Of the packages on the path: read once, as a sweep asks hundreds of times."""
    return {e.name: e for e in importlib.metadata.entry_points(group=group)}


def files_in(folder: Path) -> list[str]:
    """Names of the things in a folder, without running any of them: for help."""
    return sorted(x.name for x in pkgutil.iter_modules([str(folder)]) if x.name[0] != "_")


@functools.cache
def facts_in(folder: Path) -> dict[str, dict[str, Any]]:
    """What each thing in a folder says of itself in plain values (`colour = "#3e2c8b"` in its
    class), without running any of them: for help and reports, which load no torch."""
    return {name: _facts(folder / f"{name}.py") for name in files_in(folder)}


def _facts(file: Path) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for thing in ast.parse(file.read_bytes()).body if file.is_file() else ():
        for line in thing.body if isinstance(thing, ast.ClassDef) else ():
            target = line.targets[0] if isinstance(line, ast.Assign) else getattr(line, "target", 0)
            if isinstance(target, ast.Name):
                with contextlib.suppress(ValueError):  # no plain value
                    facts[target.id] = ast.literal_eval(line.value)  # type: ignore[attr-defined]
    return facts


def named_files() -> list[Path]:
    """The user's files, for another process that shall run the same code."""
    same = ((code, path) for code, path in _named.items() if path.is_file())
    return [path for code, path in same if digest_file(path) == code]


def spellings() -> dict[str, Path]:
    """The same files by what the user called them, for a process on another machine."""
    files = {digest_file(path): path for path in named_files()}
    return {word: files[code] for word, code in _spelled.items() if code in files}


def stand_in(word: str, path: Path) -> None:
    """On another machine than the user's: what they call `word` is this file here."""
    _stand_ins[word] = path
    _run(path)


def allow(files: Sequence[Path]) -> None:
    """The user names files that something was trained with: their code may run again."""
    for path in files:
        _run(path)


def _module(path: Path, code: str) -> str:
    return f"{_PREFIX}{path.stem}_{code}"


def _run(path: Path) -> Any:
    """The module of a user's file, run once for as long as the file stays the same."""
    word, path = str(path), _stand_ins.get(str(path), path)
    if not path.is_file():
        raise UserError(f"no Python file {path}.")
    source = path.read_bytes()  # once: the digest is of what is run, never of bytecode
    code = digest(source)
    unique = _module(path, code)
    if unique not in sys.modules:
        module = ModuleType(unique)
        module.__file__ = str(path)
        vars(module)[SOURCE] = source  # the file may be gone when somebody asks what it imports
        sys.modules[unique] = module  # dataclasses look their module up there
        try:
            guarded(lambda: exec(compile(source, path, "exec"), vars(module)), str(path))  # noqa: S102
        except UserError:
            del sys.modules[unique]
            raise
    _named[code], _spelled[word] = path.resolve(), code
    return sys.modules[unique]


def guarded(act: Callable[[], T], where: str) -> T:
    """Calls a user's code. Whatever it raises, even SystemExit, becomes one sentence."""
    try:
        return act()
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # whatever a user's code may raise, SystemExit too
        raise UserError(f"{where} could not be run ({in_short(error)}).") from error


def in_short(error: BaseException) -> str:
    """An error in one line, and which line of the user's file it came from."""
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{said}; {line}" if (line := users_line(error)) else said


def whose(error: BaseException) -> str:
    """A sentence above a traceback: the error came from the user's code; "": it did not."""
    if users_line(error):
        return f"{in_short(error)}, which is code of yours; this is the way there:"
    if files := ", ".join(str(path) for path in named_files()):
        return f"{in_short(error)}; code of yours was at work ({files}), `gsf check` tries it:"
    return ""


def users_line(error: BaseException) -> str:
    """Where in the user's files an error arose: the last such line of its traceback; "": none."""
    named = {str(sys.modules[x].__file__) for x in sys.modules if x.startswith(_PREFIX)}
    lines = (x for x in traceback.extract_tb(error.__traceback__) if x.filename in named)
    return "".join(f"line {x.lineno} of {x.filename}" for x in list(lines)[-1:])
