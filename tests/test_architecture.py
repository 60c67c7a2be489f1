"""docs/architecture.md shows the tree as it is: a line per file, the first of its docstring.

And what the source keeps to: no function longer than a screen, no cycle behind a late import.
"""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

from gsf.core.code import _imports

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
SOURCE = ROOT / "src" / "gsf"
MOST_LINES = 60  # of a function


def tree() -> str:
    lines = []
    for path in sorted(SOURCE.rglob("*.py")):
        first, *_ = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines() or [""]
        if first:
            lines.append(f"    {path.relative_to(SOURCE)!s:32} {first}")
    return "\n".join(lines)


def test_the_page_shows_the_tree() -> None:
    assert tree() in PAGE.read_text(), "paste the output of `python tests/test_architecture.py`"


def test_every_module_says_what_it_is() -> None:
    silent = {"__init__.py", "__main__.py", "version.py"}
    for path in SOURCE.rglob("*.py"):
        assert path.name in silent or ast.get_docstring(ast.parse(path.read_text())), path


def test_no_function_is_longer_than_a_screen() -> None:
    functions = ast.FunctionDef, ast.AsyncFunctionDef
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, functions):
                assert (node.end_lineno or 0) - node.lineno < MOST_LINES, f"{path}: {node.name}"


def test_modules_have_an_order_in_which_each_imports_only_earlier_ones() -> None:
    """Imports inside functions count, which could hide a cycle."""
    imported = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        found = {x.partition(":")[0] for x in _imports(ast.parse(path.read_text()))}
        # A package's file is run before its modules, and may name those that it hands on.
        imported[name] = {x for x in found if x != name and not name.startswith(f"{x}.")}
    TopologicalSorter(imported).prepare()  # raises a CycleError that names the cycle


if __name__ == "__main__":
    print(tree())
