"""Parquet out and in again: the same bits, and a folder as dataset hubs take it."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from gsf.core.errors import UserError
from gsf.data import parquet
from gsf.data.dataset import Dataset
from gsf.data.importers import ExportConfig, ImportConfig, export_data, import_data
from gsf.data.materialise import MaterialiseConfig, materialise
from recordings import record


def exported(dataset: Path, out: Path) -> Path:
    return export_data(ExportConfig(dataset, out, format="parquet"))


def assert_same(one: Path, other: Path) -> None:
    names = sorted(path.name for path in one.glob("*.npy"))
    assert names == sorted(path.name for path in other.glob("*.npy"))
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    first, second = Dataset.open(one).manifest, Dataset.open(other).manifest
    for fact in ("name", "levels", "obs_shape", "n_actions", "difficulty", "actions"):
        assert first.get(fact) == second.get(fact), fact


@pytest.fixture(scope="module")
def play(tmp_path_factory):
    """A dataset of real play, 800 rows."""
    home = tmp_path_factory.mktemp("play")
    record("starpilot", n_steps=400, n_envs=2, levels=range(4)).save(home / "play.gsfrec")
    return materialise(MaterialiseConfig(str(home / "play.gsfrec"), home / "dataset"))


@pytest.fixture(scope="module")
def one_file(play):
    return exported(play, play.with_name("hub"))


@pytest.fixture
def played(play, monkeypatch):
    """The same, in files of 300 rows and pieces of 70, which end within episodes."""
    monkeypatch.setattr(parquet, "ROWS_A_FILE", 300)
    monkeypatch.setattr(parquet, "ROWS_AT_ONCE", 70)
    return play


def test_play_of_procgen_comes_back_bit_for_bit(played, tmp_path, capsys):
    folder = exported(played, tmp_path / "hub")
    assert_same(played, import_data(ImportConfig(str(folder), tmp_path / "again")))
    before = sorted(path.stat().st_mtime_ns for path in folder.rglob("*"))
    exported(played, folder)
    assert "already done" in capsys.readouterr().out
    assert sorted(path.stat().st_mtime_ns for path in folder.rglob("*")) == before


def test_the_folder_is_as_hubs_take_it(played, tmp_path):
    folder, dataset = exported(played, tmp_path / "hub"), Dataset.open(played)
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet"))
    assert files == [f"data/train-0000{i}-of-00003.parquet" for i in range(3)]
    table = pq.read_table(folder / "data")
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["image"] == {"_type": "Image"}
    assert features["reward"] == {"_type": "Value", "dtype": "float32"}
    assert list(features) == table.column_names
    row = table.slice(350, 1).to_pylist()[0]
    image = np.asarray(Image.open(io.BytesIO(row["image"]["bytes"])))
    np.testing.assert_array_equal(image, dataset.obs[dataset.frame[350]])
    assert row["level"] == dataset.levels[dataset.level[350]]
    assert (row["episode"], row["t"]) == (dataset.episode[350], dataset.t[350])
    readme = (folder / "README.md").read_text()
    assert readme.startswith("---\nlicense: mit\n")
    assert f"| digest | {dataset.digest} |" in readme
    assert "| game | starpilot (easy) |" in readme
    assert json.loads((folder / "meta" / "info.json").read_text())["levels"] == [0, 1, 2, 3]


@pytest.mark.parametrize("channels", [1, 3])
def test_own_data_comes_back_bit_for_bit(tmp_path, channels):
    """Episodes whose last image is known or not, named contexts, chances of actions."""
    rng = np.random.default_rng(0)
    for i, (site, n, final) in enumerate([("a", 3, 1), ("b", 2, 0), ("a", 1, 1)]):
        (tmp_path / "own" / site).mkdir(parents=True, exist_ok=True)
        np.savez(
            tmp_path / "own" / site / f"{i}.npz",
            obs=rng.integers(0, 256, (n + final, 8, 6, channels), dtype=np.uint8),
            action=np.arange(n),
            reward=rng.normal(size=n).astype(np.float32),
            terminated=np.array(i == 1),
            truncated=np.array(i == 2),
            behaviour_prob=np.full(n, 0.25, np.float32),
        )
    own = import_data(ImportConfig(str(tmp_path / "own"), tmp_path / "dataset"))
    folder = exported(own, tmp_path / "hub")
    assert_same(own, import_data(ImportConfig(str(folder), tmp_path / "again")))
    assert (folder / "README.md").read_text().startswith("---\nlicense: other\n")
    table = pq.read_table(folder / "data")
    assert table.column("level").to_pylist() == ["a"] * 3 + ["a"] + ["b"] * 2
    shown = [x is not None for x in table.column("final_image").to_pylist()]
    assert shown == [False, False, True, True, False, False]
    rewrite(folder, replaced("t", lambda table: [7, 8, 9, 4, 0, 1]))  # begun before it was logged
    late = import_data(ImportConfig(str(folder), tmp_path / "late"))
    assert Dataset.open(late).t.tolist() == [7, 8, 9, 4, 0, 1]


def rewrite(folder: Path, change) -> None:
    (file,) = (folder / "data").glob("*.parquet")
    pq.write_table(change(pq.read_table(file)), file)


def replaced(name, values):
    def change(table):
        at = table.column_names.index(name)
        return table.set_column(at, name, pa.array(values(table), table.schema.types[at]))

    return change


SMALL = parquet._png(np.zeros((8, 8, 3), np.uint8))
WRONG = {
    "no column 't'": lambda table: table.drop_columns(["t"]),
    "no column 'reward'": lambda table: table.drop_columns(["reward"]),
    "799 rows, not 800": lambda table: table.slice(0, 799),
    "t that does not count up": replaced("t", lambda table: [0] * len(table)),
    "no single level": replaced("level", lambda table: [9] * len(table)),
    "an image is": replaced("image", lambda table: [SMALL] * 800),
    "cannot be read as Parquet": replaced("image", lambda table: [{"bytes": b"GIF89a"}] * 800),
    "goes on after it was terminated": replaced("terminated", lambda table: [True] * 800),
}  # fmt: skip


@pytest.mark.parametrize("said", WRONG)
def test_what_is_wrong_in_it_is_named(one_file, tmp_path, said):
    folder = shutil.copytree(one_file, tmp_path / "hub")
    rewrite(folder, WRONG[said])
    with pytest.raises(UserError, match=said):
        import_data(ImportConfig(str(folder), tmp_path / "again"))
    assert not (tmp_path / "again").exists()


def test_other_faults_are_named(played, tmp_path):
    with pytest.raises(UserError, match="--dataset-id is Minari's"):
        export_data(ExportConfig(played, tmp_path / "x", format="parquet", dataset_id="a-v0"))
    folder = exported(played, tmp_path / "hub")
    (folder / "meta" / "info.json").write_text("[1]")
    with pytest.raises(UserError, match=r"info\.json is whole, but"):
        import_data(ImportConfig(str(folder), tmp_path / "again"))
    first = next((folder / "data").glob("*.parquet"))
    first.write_bytes(first.read_bytes()[:-9])
    (folder / "meta" / "info.json").write_text("{")
    with pytest.raises(UserError, match="is no JSON"):
        import_data(ImportConfig(str(folder), tmp_path / "again"))
