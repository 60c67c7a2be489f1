"""Pages of the site that are kept elsewhere: files beside the README, and the notebooks.

`make docs` calls the hooks (mkdocs.yml). A notebook becomes its text, code and kept outputs.
Links are written as they are true in the repository, and turned here into those of the site.
"""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = {name: f"{name.lower()}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")}


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    made = {}
    for name, page in PAGES.items():
        made[page] = (ROOT / f"{name}.md").read_text().replace("](docs/", "](")
    for notebook in (ROOT / "examples").glob("*.ipynb"):
        made[f"examples/{notebook.stem}.md"] = notebook_page(json.loads(notebook.read_text()))
    for script in (ROOT / "examples").glob("*.py"):
        made[f"examples/{script.name}"] = script.read_text()
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    for name, made in PAGES.items():
        markdown = re.sub(rf"\]\((?:\.\./)?{name}\.md\)", f"]({made})", markdown)
    markdown = re.sub(r"\]\(\.\./examples/(\w+)\.ipynb\)", r"](examples/\1.md)", markdown)
    markdown = markdown.replace("](../examples/", "](examples/")
    return re.sub(r"\[([^\]]*)\]\((?:\.\./)?LICENSE\)", r"\1", markdown)


def notebook_page(notebook: dict[str, Any]) -> str:
    return "\n\n".join(part for cell in notebook["cells"] for part in _parts(cell)) + "\n"


def _parts(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source.replace("](../docs/", "](../").replace(".ipynb)", ".md)")]
    return [f"```python\n{source}\n```", *(_shown(output) for output in cell["outputs"])]


def _shown(output: dict[str, Any]) -> str:
    """An output as Markdown: a picture if there is one, else its table or its text."""
    data = output.get("data", {})
    if "image/png" in data:
        return f"![](data:image/png;base64,{''.join(data['image/png']).strip()})"
    if "text/html" in data:
        return re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.S)
    text = "".join(data.get("text/plain", output.get("text", "")))
    return f"```text\n{text.rstrip()}\n```"
