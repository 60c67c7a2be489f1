"""Episodes in gen_dgrl's format, made from its facts: level in the name, one image too many."""

from pathlib import Path

import numpy as np
import pytest

from gsf.core.errors import UserError
from gsf.data.dataset import Dataset
from gsf.data.importers import ImportConfig, import_data


def write(folder: Path, level: int, n_steps: int = 5, name: str | None = None, **changed) -> Path:
    rng = np.random.default_rng([level, n_steps])
    folder.mkdir(exist_ok=True)
    arrays = {
        "observations": rng.integers(256, size=(n_steps + 1, 3, 64, 64), dtype=np.uint8),
        "actions": rng.integers(15, size=(n_steps, 1)),
        "rewards": rng.random((n_steps, 1), dtype=np.float32),
        "dones": np.arange(n_steps) == n_steps - 1,
    }
    arrays |= changed
    file = folder / (name or f"20221122T190412_{level}_{n_steps}_{level}_1.50.npz")
    np.savez_compressed(file, **arrays)
    return file


def test_levels_come_from_names_and_the_next_episodes_image_is_left_out(tmp_path):
    files = [
        write(tmp_path / "data", level, n_steps) for level, n_steps in ((7, 5), (3, 4), (3, 6))
    ]
    dataset = Dataset.open(import_data(ImportConfig(str(tmp_path / "data"), out=tmp_path / "out")))
    assert dataset.levels == [3, 7]
    assert (len(dataset), len(dataset.obs), dataset.n_actions) == (15, 15, 15)
    assert dataset.obs_shape == (64, 64, 3)
    rows = np.flatnonzero(dataset.level == 1)  # level 7
    with np.load(files[0]) as raw:
        batch = dataset.gather(rows)
        assert (batch.obs.numpy() == raw["observations"][:5].transpose(0, 2, 3, 1)).all()
        assert batch.action.tolist() == raw["actions"][:, 0].tolist()
        assert batch.reward.tolist() == raw["rewards"][:, 0].tolist()
    assert batch.terminated.tolist() == [False] * 4 + [True]
    assert batch.has_next.tolist() == [True] * 4 + [False]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": "episode_1.npz"}, "does not tell its level"),
        ({"name": "T_1_5_-1_0.00.npz"}, "does not tell its level"),
        ({"dones": np.zeros(5, bool)}, "not one whole episode"),
        ({"observations": np.zeros((5, 3, 64, 64), np.uint8)}, "5 observations for 5 actions"),
        ({"observations": np.zeros((6, 3, 64, 64))}, "gsf needs uint8 images"),
        ({"actions": np.full((5, 1), 15)}, "has action 15, but there are 15 actions"),
    ],
)
def test_what_is_missing_or_wrong_is_said(tmp_path, changed, said):
    write(tmp_path / "data", 1, **changed)
    with pytest.raises(UserError, match=said):
        import_data(ImportConfig(str(tmp_path / "data"), out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_file_cut_short_is_named(tmp_path):
    file = write(tmp_path / "data", 1)
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(UserError, match=r"is not a readable \.npz"):
        import_data(ImportConfig(str(tmp_path / "data"), out=tmp_path / "out"))


def test_pickled_archives_are_not_opened(tmp_path):
    np.save(tmp_path / "1.npy", np.array({"observations": 1}, dtype=object), allow_pickle=True)
    config = ImportConfig(str(tmp_path), out=tmp_path / "out", format="gen_dgrl")
    with pytest.raises(UserError, match="gsf unpickles nothing"):
        import_data(config)
