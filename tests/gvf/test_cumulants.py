"""Built-in cumulants against their definitions; a user's own, from a file, all the way to a fit."""

import importlib.metadata
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from chains import write_chain
from gsf.cli import main
from gsf.core.errors import UserError
from gsf.gvf import cumulants
from gsf.gvf.cumulants import Chunk, Cumulant, cumulant, evaluate, find, ranked
from gsf.gvf.cumulants.successor import N_FEATURES
from gsf.gvf.fit import FitConfig, fit

DOCS = Path(__file__).parents[2] / "docs" / "extending.md"


OWN = """
from gsf.gvf.cumulants import cumulant


@cumulant()
def danger(chunk):
    return chunk.reward < 0
"""


@pytest.fixture
def dataset(tmp_path):
    return write_chain(tmp_path / "data", scales=(1.0, 10.0), n_episodes=3)


def all_rows(dataset):
    return np.arange(len(dataset))


def test_reward_is_the_logged_one(dataset):
    c = evaluate(find("reward").value, dataset, all_rows(dataset))
    assert c.dtype == np.float32
    np.testing.assert_array_equal(c, dataset.reward[:, None])
    np.testing.assert_array_equal(c[:5, 0], [1, 2, 3, 4, 5])


def test_action_is_one_hot(dataset):
    c = evaluate(find("action").value, dataset, all_rows(dataset))
    assert c.shape == (30, 2)
    np.testing.assert_array_equal(c.argmax(1), dataset.action)
    np.testing.assert_array_equal(c.sum(1), 1)


def test_successor_is_centred_per_level_and_fixed_by_its_seed(dataset):
    rows = all_rows(dataset)
    c = evaluate(find("successor").value, dataset, rows, seed=3)
    assert c.shape == (30, N_FEATURES)
    for level in (0, 1):
        np.testing.assert_allclose(c[dataset.level == level].mean(0), 0, atol=1e-6)
    np.testing.assert_array_equal(c, evaluate(find("successor").value, dataset, rows, seed=3))
    assert not np.allclose(c, evaluate(find("successor").value, dataset, rows, seed=4))
    # Equal observations have equal features, different ones do not.
    np.testing.assert_allclose(c[0], c[10], atol=1e-6)
    assert np.abs(c[0] - c[1]).max() > 1e-4


def test_centred_is_less_the_mean_of_its_own_level(dataset):
    @cumulant(centred=True)
    def worth(chunk):
        return chunk.reward + 10 * chunk.level

    c = evaluate(worth, dataset, all_rows(dataset))
    for level in (0, 1):
        own = np.asarray(dataset.reward)[dataset.level == level, None]
        np.testing.assert_allclose(c[dataset.level == level], own - own.mean(), atol=1e-5)


def test_random_features_leave_the_global_stream_alone(dataset):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    evaluate(find("successor").value, dataset, np.arange(2), seed=99)
    assert torch.equal(torch.rand(3), expected)


def test_a_chunk_reads_its_own_rows(dataset):
    rows = np.array([7, 2])
    chunk = Chunk(dataset, rows)
    assert chunk.obs.shape == (2, 8, 8, 3)
    np.testing.assert_array_equal(chunk.obs, dataset.obs[dataset.frame[rows]])
    np.testing.assert_array_equal(chunk.t, [2, 2])
    np.testing.assert_array_equal(chunk.level, [1, 0])
    np.testing.assert_array_equal(chunk.reward, [30, 3])
    assert not chunk.terminated.any()
    assert chunk.n_actions == 2


def test_chunks_join_up(dataset, monkeypatch):
    whole = evaluate(find("successor").value, dataset, all_rows(dataset))
    monkeypatch.setattr(cumulants, "CHUNK_ROWS", 7)
    np.testing.assert_allclose(
        evaluate(find("successor").value, dataset, all_rows(dataset)), whole, atol=1e-6
    )


def test_ranked():
    value = np.array([[1.0, -2.0], [0.5, 0.25]])
    action = np.array([1, 0])
    np.testing.assert_array_equal(ranked(value, "components", action), value)
    np.testing.assert_array_equal(ranked(value, "l1", action), [3, 0.75])
    np.testing.assert_array_equal(ranked(value, "logged", action), [-2, 0.5])
    np.testing.assert_array_equal(ranked(value[:, :1], "value", action), [1, 0.5])
    with pytest.raises(UserError, match="2 components needs --rank"):
        ranked(value, "value", action)
    with pytest.raises(UserError, match="one component per action"):
        ranked(value[:, :1], "logged", action)


def broken(function, **options):
    return Cumulant(
        "mine", function, **({"rank": "value", "centred": False, "random": False} | options)
    )


def test_nan_names_the_transition_and_level(tmp_path):
    dataset = write_chain(tmp_path / "d", scales=(1.0, 1.0), n_episodes=1, levels=(40, 77))
    mine = broken(lambda chunk: np.where((chunk.level == 1) & (chunk.t == 2), np.nan, 0))
    with pytest.raises(UserError, match=r"'mine' is NaN or infinite at transition 7 \(level 77\)"):
        evaluate(mine, dataset, all_rows(dataset))


def test_wrong_shape_is_named(dataset):
    with pytest.raises(UserError, match=r"shape \[3\] for 30 transitions"):
        evaluate(broken(lambda chunk: chunk.reward[:3]), dataset, all_rows(dataset))


def test_unknown_names_the_known():
    known = "'rewards'; did you mean reward? There are action, reward, successor"
    with pytest.raises(UserError, match=re.escape(known)):
        find("rewards")


def test_built_in_names_and_ranks_are_kept(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(OWN.replace("danger", "reward"))
    with pytest.raises(UserError, match="'reward' is a cumulant of gsf; give yours another name"):
        find(f"{mine}:reward")
    with pytest.raises(UserError, match="rank='max'"):
        cumulant(rank="max")


def test_a_cumulant_has_the_short_name_of_its_function_and_stays_callable(dataset, tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    found = find(f"{tmp_path / 'mine.py'}:danger")
    assert (found.name, found.value.name) == ("danger", "danger")
    np.testing.assert_array_equal(found.value(Chunk(dataset, np.arange(3))), [False] * 3)


def test_the_folder_is_the_list():
    assert {"action", "reward", "successor"} <= set(cumulants.names())
    for name in cumulants.names():
        assert find(name).name == find(name).value.name == name
        assert find(name).identity("cumulant") == {}


def test_an_installed_package_brings_its_own(tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    entry = importlib.metadata.EntryPoint("peril", "theirs:danger", "gsf.cumulants")
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: [entry] if group == entry.group else []
    )
    assert cumulants.names()[-1] == "peril"
    assert find("peril").name == "peril"


def test_the_documented_cumulant_runs(dataset, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    file = tmp_path / "mine.py"
    file.write_text(next(code for code in blocks if "def danger" in code))
    config = FitConfig(dataset.path, tmp_path / "fit", cumulant=f"{file}:danger", gamma=0.5)
    values = np.load(fit(config) / "values.npy")
    # danger: 1 where the reward is negative, which it never is here, or the episode ends.
    np.testing.assert_allclose(values, 0.5 ** (4 - dataset.t))
    assert fit(config) == config.out
    file.write_text(file.read_text() + "\n# changed\n")
    with pytest.raises(UserError, match="another cumulant"):
        fit(config)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1 / 0\n", "ZeroDivisionError"),
        ("raise SystemExit(0)\n", r"could not be run \(SystemExit: 0; line 1"),
        ("def danger(chunk): return chunk.reward\n", "'danger' of .* is not a cumulant"),
        ("x = 1\n", "has no 'danger'"),
    ],
)
def test_a_file_that_gives_no_cumulant(tmp_path, text, message):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UserError, match=message):
        find(f"{tmp_path / 'mine.py'}:danger")
    with pytest.raises(UserError, match="no Python file"):
        find(f"{tmp_path / 'other.py'}:danger")


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (
            "raise SystemExit(0)",
            r"cumulant 'mine' could not be run \(SystemExit: 0; line 4 of mine",
        ),
        ("return mine(chunk)", r"cumulant 'mine' could not be run \(RecursionError"),
        ("return chunk.rewards", r"\(AttributeError: .*; line 4 of mine\.py\)"),
        ("return [[", r"mine\.py could not be run \(SyntaxError"),
    ],
)
def test_a_users_cumulant_that_fails_gets_one_sentence_and_makes_nothing(
    dataset, tmp_path, monkeypatch, capsys, code, sentence
):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(f"import gsf\n@gsf.cumulant()\ndef mine(chunk):\n    {code}\n")
    argv = ["fit", str(dataset.path), "--out", "gvf", "--cumulant", "mine.py:mine"]
    assert main(argv) == 2
    assert re.search(sentence, capsys.readouterr().err)
    assert not Path("gvf").exists()
