"""The documentation: every link leads somewhere, the site builds, notebooks and commands run."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gsf import cli
from gsf.core.command_line import parse
from gsf.core.version import __version__
from gsf.data.tiers import list_shipped

ROOT = Path(__file__).parents[1]
WITH_COMMANDS = ["quickstart", "notebook", "looks", "methods", "cumulants", "cluster", "benchmark"]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *NOTEBOOKS]
SMALL = {"GSF_STEPS": "2", "GSF_LEVELS": "1", "GSF_TRANSITIONS": "2000", "MPLBACKEND": "Agg"}


def text_of(page: Path) -> str:
    """Its Markdown without code."""
    text = page.read_text()
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return re.sub(r"(?s)```.*?```|(?<!`)`[^`\n]*`(?!`)", "", text)


def anchors(page: Path) -> set[str]:
    """Those that GitHub gives to headings."""
    headings = re.findall(r"(?m)^#+ (.*)$", re.sub(r"(?s)```.*?```", "", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)[^)]*\)", text_of(page)):
        if re.match(r"\w+:", target):
            assert target.startswith("https://"), target
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_relative_to(ROOT), f"{target} leads out of the repository"
        assert file.is_file(), f"{target} does not exist"
        if anchor:
            assert anchor in anchors(file), f"{target}: no such heading"


def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for page in ("index.html", "api.html", "examples/first_look.html", "changelog.html"):
        html = (tmp_path / page).read_text()
        assert not re.search(r'<(?:script|img|iframe)[^>]* src="?https?:', html), page
        assert not re.search(r'<link[^>]* href="?https?:', html), page
    assert "gsf.TrainConfig" in (tmp_path / "api.html").read_text()


def test_every_shipped_recording_is_on_its_page():
    page = (ROOT / "docs" / "data.md").read_text()
    shipped = [path.stem for path in list_shipped()]
    names = [name for name in shipped if not name.endswith("-validation")]
    assert [name for name in names if f"\n| {name} |" not in page] == []
    assert "coinrun" in names


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, value in SMALL.items():
        monkeypatch.setenv(name, value)
    cells = json.loads(notebook.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    (tmp_path / "cells.py").write_text("\n".join(code))
    runpy.run_path("cells.py")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_show_what_they_gave(notebook):
    cells = [c for c in json.loads(notebook.read_text())["cells"] if c["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs
    assert "error" not in {output["output_type"] for output in outputs}


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{name}.md" for name in WITH_COMMANDS)])
def test_commands_of_a_page_have_only_options_that_exist(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = re.sub(r"\$\w+", "1", (ROOT / page).read_text()).replace("GAME", "coinrun")
    lines = "".join(re.findall(r"(?s)```sh\n(.*?)```", text)).splitlines()
    lines += re.findall(r"(?m)^    (gsf .*)$", text)
    commands = [line.partition("  #")[0].split() for line in lines]
    assert commands
    for _, *words in commands:
        if words[0].startswith("-"):
            continue
        name = " ".join(words[:2]) if " ".join(words[:2]) in cli.VERBS else words[0]
        for word in words[1:] if name == "report" else []:  # it looks whether runs are there
            Path(word).mkdir(parents=True, exist_ok=True)
        parse(name, cli.config_of(cli.VERBS[name]), words[len(name.split()) :])


def test_the_citation_is_of_this_version_and_names_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    paper = citation["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == [
        "Mazoure",
        "Kostrikov",
        "Nachum",
        "Tompson",
    ]
    page = (ROOT / "docs" / "cite.md").read_text()
    assert f"version = {{{__version__}}}" in page
    assert paper["url"] in page
    assert " ".join(paper["title"].split()) in " ".join(page.split())
