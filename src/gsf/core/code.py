"""gsf's own code as an input of what it makes: whoever edits it in place gets no stale results.

Of every module that decides an output, and of what it imports from gsf, a digest of what is run:
comments, docstrings, layout and colours do not count. `gsf.core` decides no number and is left out.
Of `gsf.equations` only the formulas that are used count, each with those it uses itself. Suites
count for what is played, without Procgen's table of games (names, actions, published returns).
"""

import ast
import functools
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gsf.core.files import digest
from gsf.core.registry import SOURCE

ROOT = Path(__file__).parents[1]
_SUITES = "gsf.suites"
_APART = ("gsf.core", "gsf.cli", "gsf.learn.legend", "gsf.suites._procgen_games")  # none decides
_BY_NAME = "gsf.equations"  # one pure function each


def decided_by(*things: Any) -> dict[str, str]:
    """File -> digest, for the modules of these things (or of these names) and all they import.

    `module:name` is one function or class of a module. A user's own file is not among them, only
    what it imports from gsf: it is an input itself. Suites are among them if one is named.
    """
    names = [thing if isinstance(thing, str) else thing.__module__ for thing in things]
    apart = _APART if any(name.startswith(_SUITES) for name in names) else (*_APART, _SUITES)
    found: dict[str, str] = {}
    seen: set[str] = set()
    while names:
        name = names.pop()
        module, _, function = name.partition(":")
        path = None if module.startswith(apart) else _file(module)
        if name in seen or path is None:
            continue
        seen.add(name)
        own = getattr(sys.modules.get(module), SOURCE, None)  # of a user's file
        code, imported = _read(own or path.read_bytes(), function)
        names += imported
        if path.is_relative_to(ROOT):
            file = f"gsf/{path.relative_to(ROOT).as_posix()}"
            found[f"{file}:{function}" if function else file] = code
    return dict(sorted(found.items()))


def is_code(name: str) -> bool:
    """Whether an input is a file of gsf's code."""
    return name.startswith("gsf/")


def changed(made_of: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """gsf's files that were edited since an output was made of them.

    A file that is new in `now` counts by whoever imports it, which was edited, too.
    """
    return [name for name in sorted(made_of) if is_code(name) and now.get(name) != made_of[name]]


def _file(name: str) -> Path | None:
    """Where a module's code is: gsf's own or a user's file."""
    module = sys.modules.get(name)
    if module is None and name.partition(".")[0] == "gsf":
        spec = importlib.util.find_spec(name)
        return None if spec is None or spec.origin is None else Path(spec.origin)
    return Path(module.__file__) if module and module.__file__ else None


@functools.cache
def _read(source: bytes, function: str) -> tuple[str, list[str]]:
    """The digest of a file's code (or of one function in it), and what it imports from gsf."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            node.body = [x for x in node.body if not _is_colour(x)]
        if isinstance(getattr(node, "body", None), list):
            node.body = [x for x in node.body if not _is_text(x)]  # type: ignore[attr-defined]
    if function:
        tree.body = _used(tree.body, {function})
    return digest(ast.dump(tree)), list(_imports(tree))


def _used(body: list[ast.stmt], names: set[str]) -> list[ast.stmt]:
    """The statements of a module that define these names, and whatever names those use."""
    chosen = [node for node in body if _defines(node) & names or isinstance(node, ast.Import)]
    used = {x.id for node in chosen for x in ast.walk(node) if isinstance(x, ast.Name)}
    return chosen if used <= names else _used(body, names | used)


def _defines(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}
    return set()


def _is_colour(node: ast.stmt) -> bool:
    """`colour = ...` in a class: how figures show it, which decides nothing."""
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    return getattr(targets[0], "id", "") == "colour"


def _is_text(node: ast.stmt) -> bool:
    """A string alone: a docstring, or the words under an option."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _imports(node: ast.AST) -> Iterator[str]:
    """Modules of gsf that are imported when the code runs."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return
    if isinstance(node, ast.Import):
        yield from (x.name for x in node.names if x.name.startswith("gsf."))
    if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "gsf":
        names = [x.name for x in node.names]
        if node.module == _BY_NAME:
            yield from (f"{_BY_NAME}:{name}" for name in names)
        else:
            yield from _modules(str(node.module), names)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child)


def _modules(package: str, names: list[str]) -> list[str]:
    """What `from package import names` loads: the package's own file, and modules among names."""
    folder = ROOT.parent / package.replace(".", "/")
    inside = [x for x in names if (folder / f"{x}.py").is_file() or (folder / x).is_dir()]
    return [package, *(f"{package}.{x}" for x in inside)]
