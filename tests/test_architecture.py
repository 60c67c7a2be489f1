"""docs/architecture.md shows the tree as it is: a line per file, the first of its docstring."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"


def tree() -> str:
    lines = []
    for path in sorted((ROOT / "src" / "gsf").rglob("*.py")):
        first, *_ = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines() or [""]
        if first:
            lines.append(f"    {path.relative_to(ROOT / 'src' / 'gsf')!s:32} {first}")
    return "\n".join(lines)


def test_the_page_shows_the_tree() -> None:
    assert tree() in PAGE.read_text(), "paste the output of `python tests/test_architecture.py`"


def test_every_module_says_what_it_is() -> None:
    silent = {"__init__.py", "__main__.py", "version.py"}
    for path in (ROOT / "src" / "gsf").rglob("*.py"):
        assert path.name in silent or ast.get_docstring(ast.parse(path.read_text())), path


if __name__ == "__main__":
    print(tree())
