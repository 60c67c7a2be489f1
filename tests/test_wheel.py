"""What others install: the wheel, alone in an environment of its own, does everything."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy: setuptools writes beside the sources."""
    home = tmp_path_factory.mktemp("wheel")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", home / "source/src", ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, home / "source")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", home)
    subprocess.run([*PIP, "wheel", *options, home / "source"], check=True)
    (found,) = home.glob("*.whl")
    return found


def test_the_wheel_has_everything_and_asks_for_procgen_only_where_it_can_be_had(wheel):
    assert re.fullmatch(r"gsf_rl-[\d.]+-py3-none-any\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        metadata = next(name for name in inside if name.endswith("METADATA"))
        needs = [
            line
            for line in archive.read(metadata).decode().splitlines()
            if line.startswith("Requires-Dist: procgen")
        ]
    files = [path for path in (ROOT / "src").rglob("*") if path.is_file()]
    kept = {str(p.relative_to(ROOT / "src")) for p in files if p.suffix not in (".pyc",)}
    assert {name for name in kept if "egg-info" not in name} <= inside
    (need,) = needs
    assert 'sys_platform == "linux" and platform_machine == "x86_64"' in need


@pytest.mark.slow
@pytest.mark.procgen
def test_smoke_runs_from_the_wheel(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    python = tmp_path / "env/bin/python"
    subprocess.run(
        [*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel], check=True
    )
    (site,) = (tmp_path / "env/lib").glob("python*/site-packages")
    # Everything else comes from the environment of the tests, behind the wheel's own files.
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    clean = {name: x for name, x in os.environ.items() if not name.startswith("PYTHON")}
    found = subprocess.run(
        [python, "-c", "import gsf; print(gsf.__file__)"],
        env=clean,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()).is_relative_to(site)
    gsf = tmp_path / "env/bin/gsf"
    done = subprocess.run(
        [gsf, "run", "--preset", "smoke"],
        env=clean,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "gsf-reward" in done.stdout
    assert (tmp_path / "results/smoke/report/report.html").is_file()


def test_nobody_is_told_to_install_another_project():
    """`gsf` on the package index is somebody else's."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    pages += (ROOT / "src").rglob("*.py")
    for page in pages:
        for said in re.findall(r"pip install[^\n`]*", page.read_text()):
            assert not re.search(r"(?<![\w-])gsf(?!-rl)\b", said), f"{page}: {said}"
