"""What a user may name: files of a folder, entry points, files of one's own."""

import importlib.metadata
import sys

import pytest

from gsf.core import registry
from gsf.core.errors import UserError
from gsf.core.registry import Registry


class Fruit:
    def __init__(self, name):
        self.name = name


@pytest.fixture
def fruit(tmp_path, monkeypatch):
    """A registry whose folder has an apple; the working directory is the user's."""
    folder = tmp_path / "package" / "fruits"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "apple.py").write_text("from test_fruit import Fruit\napple = Fruit('apple')\n")
    (folder / "_ladder.py").write_text("raise RuntimeError\n")
    monkeypatch.syspath_prepend(tmp_path / "package")
    monkeypatch.setitem(sys.modules, "test_fruit", sys.modules[__name__])
    monkeypatch.setattr(registry, "_named", {})
    monkeypatch.chdir(tmp_path)
    yield Registry("fruit", "fruits", lambda value: isinstance(value, Fruit))
    for name in [name for name in sys.modules if name.partition(".")[0] == "fruits"]:
        del sys.modules[name]


COUNTED = "with open('runs', 'a') as file:\n    file.write('x')"


def write(path, name="pear", code=""):
    path.write_text(f"from test_fruit import Fruit\n{code}\nmine = Fruit({name!r})\nother = 3\n")


def test_a_file_of_the_folder_has_the_name_of_what_it_holds(fruit, tmp_path):
    assert fruit.names() == ["apple"]
    found = fruit.find("apple")
    assert (found.spec, found.name, found.value.name, found.code) == ("apple",) * 3 + (None,)
    assert found.identity("fruit") == {}
    assert fruit.owns("apple")
    assert not fruit.owns("pear")
    with pytest.raises(UserError, match=r"unknown fruit 'aple'; did you mean apple\?"):
        fruit.find("aple")
    (tmp_path / "package" / "fruits" / "wrong.py").write_text("x = 1\n")
    with pytest.raises(ImportError, match="holds no fruit with name = 'wrong'"):
        fruit.find("wrong")


def test_a_file_of_ones_own_is_run_once_for_as_long_as_it_stays_the_same(fruit, tmp_path):
    write(tmp_path / "own.py", code=COUNTED)
    found = fruit.find("own.py:mine")
    assert (found.spec, found.name, found.value.name) == ("own.py:mine", "pear", "pear")
    assert fruit.owns("own.py:mine")
    assert not fruit.owns("own.py:other")
    assert fruit.find(f"{tmp_path}/own.py:mine").value is found.value
    assert (tmp_path / "runs").read_text() == "x"
    write(tmp_path / "own.py", "plum")
    changed = fruit.find("own.py:mine")
    assert changed.name == "plum"
    assert changed.identity("fruit") != found.identity("fruit")


def test_what_a_manifest_names_is_run_only_if_the_user_has_named_it(fruit, tmp_path):
    write(tmp_path / "own.py", code=COUNTED)
    code = registry.digest_file(tmp_path / "own.py")
    assert fruit.find_again("apple", None).name == "apple"
    with pytest.raises(UserError, match="if you trust it, name the file"):
        fruit.find_again("elsewhere/own.py:mine", code)
    assert not (tmp_path / "runs").exists()
    registry.allow([tmp_path / "own.py"])
    assert fruit.find_again("elsewhere/own.py:mine", code).name == "pear"
    write(tmp_path / "own.py", "plum")  # no longer what was trained with
    with pytest.raises(UserError, match="as it was"):
        fruit.find_again("elsewhere/own.py:mine", code)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("nowhere.py:mine", r"no Python file nowhere\.py"),
        ("own.py:yours", r"own\.py has no 'yours'"),
        ("own.py:other", r"'other' of own\.py is not a fruit"),
        ("raises.py:mine", r"raises\.py could not be run \(ZeroDivisionError"),
        ("exits.py:mine", r"exits\.py could not be run \(SystemExit"),
        ("taken.py:mine", "'apple' is a fruit of gsf"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(fruit, tmp_path, spec, sentence):
    write(tmp_path / "own.py")
    write(tmp_path / "raises.py", code="1 / 0")
    write(tmp_path / "exits.py", code="raise SystemExit(3)")
    write(tmp_path / "taken.py", "apple")
    with pytest.raises(UserError, match=sentence):
        fruit.find(spec)


def test_what_was_named_stays_as_it_was_until_it_is_named_again(fruit, tmp_path):
    write(tmp_path / "own.py")
    found = fruit.find("own.py:mine").value
    (tmp_path / "own.py").write_text("raise SystemExit(0)")
    assert fruit.of_files() == [found]
    write(tmp_path / "own.py", "plum")
    fruit.find("own.py:mine")
    assert [x.name for x in fruit.of_files()] == ["plum"]


def test_an_installed_package_brings_more(fruit, monkeypatch):
    entry = importlib.metadata.EntryPoint("fig", f"{__name__}:FIG", "gsf.fruits")
    broken = importlib.metadata.EntryPoint("rot", f"{__name__}:ROT", "gsf.fruits")
    given = [entry, broken]
    monkeypatch.setattr(registry, "_entry_points", lambda *_: {e.name: e for e in given})
    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda self: globals()[self.attr])
    assert fruit.names() == ["apple", "fig", "rot"]
    assert fruit.find("fig").value is FIG
    with pytest.raises(UserError, match=r"the installed fruit 'rot' could not be run \(KeyError"):
        fruit.find("rot")
    given.append(importlib.metadata.EntryPoint("apple", f"{__name__}:FIG", "gsf.fruits"))
    with pytest.raises(UserError, match="calls a fruit 'apple', which gsf has already"):
        fruit.names()


FIG = Fruit("fig")
