"""`import gsf`: plain names, the same whatever else is imported, each with a docstring."""

import ast
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import gsf

ORDERS = """
import importlib, pkgutil, random, sys
import gsf
names = ["gsf"] + [m.name for m in pkgutil.walk_packages(gsf.__path__, "gsf.")]
names = [n for n in names if n not in ("gsf.__main__", "gsf.sweep.cluster")]
random.Random(0).shuffle(names)
for name in names:
    importlib.import_module(name)
for name in gsf.__all__:
    value = getattr(gsf, name)
    assert value is getattr(sys.modules[gsf._home[name]], name), name
    assert type(value).__name__ != "module", name
"""


def test_importing_modules_in_any_order_never_changes_a_public_name():
    subprocess.run([sys.executable, "-W", "error", "-c", ORDERS], check=True)


def test_no_module_of_the_package_has_a_public_name():
    modules = {m.name for m in pkgutil.iter_modules(gsf.__path__)}
    assert not modules & set(gsf.__all__)
    assert {"core", "data", "gvf", "learn"} <= modules


def test_every_name_teaches():
    for name in gsf.__all__:
        value = getattr(gsf, name)
        doc = value.__doc__ or ""
        assert not doc.startswith(f"{name}("), f"{name} has only what dataclass wrote"
        assert len(doc) > 30, f"{name} has no docstring that teaches"
        if inspect.isfunction(value):
            assert f"{name}(" in doc, f"{name} shows no example"


def test_editors_see_the_names_that_are_there():
    tree = ast.parse(Path(gsf.__file__).read_text())
    seen = {
        alias.asname: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == gsf._home
    assert set(gsf.__all__) <= set(dir(gsf))
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        gsf.trian  # noqa: B018


def test_import_is_light():
    code = "import gsf, sys; print([m for m in ('torch', 'numpy', 'pandas') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
