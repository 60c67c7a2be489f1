"""docs/api.md is what the code says: signatures, first sentences, options and their defaults.

It is plain Markdown, so that it reads on a code host, too: `python tests/test_api.py` writes it.
"""

import ast
import inspect
import re
from pathlib import Path

import gsf
from gsf.learn.agent import Agent

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
BEGIN = "<!-- from here on written by tests/test_api.py -->\n"
SECTIONS = {
    "Data": "Dataset Recording materialise MaterialiseConfig import_data ImportConfig",
    "Values and labels": "fit FitConfig label LabelConfig load_labels cumulant",
    "Agents": "train TrainConfig load_agent Agent encoder",
    "Play": "make_env evaluate EvaluateConfig evaluate_agent play PlayConfig",
    "Behaviour policies": "collect CollectConfig load_policy",
    "Everything at once": "run RunConfig report ReportConfig",
    "Errors": "UserError",
}


def source(thing) -> ast.FunctionDef | ast.ClassDef:
    return ast.parse(inspect.getsource(thing)).body[0]


def signature(function: ast.FunctionDef) -> str:
    """One line, without self."""
    arguments = ast.unparse(function.args)
    arguments = re.sub(r"^(self|cls)(, )?", "", arguments)
    result = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"{function.name}({arguments}){result}"


def sentences(text: str | None) -> str:
    return " ".join((text or "").split())


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def is_code(text: str) -> bool:
    try:
        return any(isinstance(node, ast.Call) for node in ast.walk(ast.parse(text)))
    except SyntaxError:
        return False


def described(text: str | None) -> str:
    """Paragraphs of a docstring, those that are Python as code."""
    parts = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(f"```python\n{x}\n```" if is_code(x) else sentences(x) for x in parts)


def options(thing: type) -> dict[str, tuple[str, str]]:
    """Of a dataclass: default and description of each field, those it inherits first."""
    found: dict[str, tuple[str, str]] = {}
    for part in reversed(thing.__mro__):
        if not part.__module__.startswith("gsf."):
            continue
        body = source(part).body
        for field, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                text = sentences(after.value.value) if said else ""
                default = f"`{ast.unparse(field.value)}`" if field.value else "must be given"
                found[field.target.id] = default, text
    return {name: row for name, row in found.items() if not name.startswith("_")}


def methods(thing: type) -> dict[str, str]:
    """Signature and description of each public method and property."""
    found = {}
    for part in source(thing).body:
        if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
            is_value = any("property" in ast.unparse(x) for x in part.decorator_list)
            shown = signature(part)
            shown = shown.replace("()", "", 1) if is_value else shown
            found[shown] = sentences(ast.get_docstring(part))
    return found


def entry(name: str) -> str:
    thing = Agent if name == "Agent" else getattr(gsf, name)
    where = "gsf.learn.agent.Agent" if name == "Agent" else f"gsf.{name}"
    if not isinstance(thing, type):
        function = source(thing)
        said = described(ast.get_docstring(function))
        return f"### {where}\n\n```python\n{signature(function)}\n```\n\n{said}\n"
    lines = [f"### {where}\n", described(ast.get_docstring(source(thing))), ""]
    if name.endswith("Config"):
        rows = [
            f"| `{x}` | {cell(default)} | {cell(text)} |"
            for x, (default, text) in options(thing).items()
        ]
        lines += ["| option | default | what it is |", "|---|---|---|", *rows, ""]
    else:
        lines += [f"- `{x}`{': ' if text else ''}{text}" for x, text in methods(thing).items()]
        lines.append("")
    return "\n".join(lines)


def reference() -> str:
    parts = []
    for title, names in SECTIONS.items():
        parts += [f"## {title}\n", *map(entry, names.split())]
    return "\n".join(parts)


def test_the_page_is_what_the_code_says():
    written = PAGE.read_text().partition(BEGIN)[2].strip()
    assert written == reference().strip(), "python tests/test_api.py writes the page anew"


def test_the_page_has_every_public_name():
    assert sorted({*" ".join(SECTIONS.values()).split()} - {"Agent"}) == gsf.__all__


if __name__ == "__main__":
    head = PAGE.read_text().partition(BEGIN)[0]
    PAGE.write_text(head + BEGIN + "\n" + reference().strip() + "\n")
