"""npz folders and Minari in, Minari out: nothing is lost, whole contexts are held out."""

import io
import json
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import minari
import numpy as np
import pytest
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

import manifests
from episodes import write_episodes
from gsf.core.errors import UserError
from gsf.data.dataset import Dataset, verify_dataset
from gsf.data.format import COLUMN_DTYPES
from gsf.data.importers import ExportConfig, ImportConfig, export_data, import_data


@pytest.fixture(autouse=True)
def minari_root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def imported(source: Path | str, out: Path, **options) -> Dataset:
    return Dataset.open(import_data(ImportConfig(str(source), out, **options)))


def images(n: int, shape=(8, 6, 3), seed=0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def save(file: Path, n: int = 3, final: bool = False, **arrays) -> dict[str, np.ndarray]:
    """An episode of n steps of which some arrays are others; None leaves one out."""
    usual = {
        "obs": images(n + final),
        "action": np.arange(n) % 3,
        "reward": np.arange(n, dtype=np.float32),
        "level": np.array(7),
    }
    kept = {name: array for name, array in (usual | arrays).items() if array is not None}
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, **kept)
    return kept


# npz


def test_npz_columns_by_hand(tmp_path):
    folder = tmp_path / "runs"
    a = save(folder / "a.npz", 3, level=np.array(9), terminated=np.array([False, False, True]))
    b = save(folder / "b.npz", 2, final=True, truncated=np.array(True), action=np.array([4, 0]))
    c = save(folder / "c.npz", 1, terminated=np.array(False), level=np.array([9]))
    d = save(folder / "d.npz", 2, level=np.array([7, 7]))
    ds = imported(folder, tmp_path / "ds")
    assert (ds.name, ds.levels, ds.n_actions, ds.obs_shape) == ("runs", [7, 9], 5, (8, 6, 3))
    assert ds.action.tolist() == [0, 1, 2, 4, 0, 0, 0, 1]
    assert ds.reward.tolist() == [0, 1, 2, 0, 1, 0, 0, 1]
    assert ds.level.tolist() == [1, 1, 1, 0, 0, 1, 0, 0]
    assert ds.episode.tolist() == [0, 0, 0, 1, 1, 2, 3, 3]
    assert ds.t.tolist() == [0, 1, 2, 0, 1, 0, 0, 1]
    assert ds.terminated.tolist() == [False, False, True, *[False] * 4, True]  # d by default
    assert ds.truncated.tolist() == [False, False, False, False, True, False, False, False]
    assert ds.has_next.tolist() == [True, True, False, True, True, False, True, False]
    assert ds.frame.tolist() == [0, 1, 2, 3, 4, 6, 7, 8]
    assert np.array_equal(ds.obs, np.concatenate([x["obs"] for x in (a, b, c, d)]))
    assert ds.manifest["episodes"] == 4
    verify_dataset(ds.path)


def test_npz_contexts_from_folders_or_another_key(tmp_path):
    for site in ("north", "south/2"):
        save(tmp_path / "runs" / site / "1.npz", level=None, device=np.array("d-" + site[0]))
    ds = imported(tmp_path / "runs", tmp_path / "by-folder")
    assert ds.levels == ["north", "south/2"]
    assert ds.level.tolist() == [0, 0, 0, 1, 1, 1]
    ds = imported(tmp_path / "runs", tmp_path / "by-key", context="device")
    assert ds.levels == ["d-n", "d-s"]


@pytest.mark.parametrize(
    ("stored", "shape"), [((9, 8), (9, 8, 1)), ((3, 9, 8), (9, 8, 3)), ((9, 8, 7), (9, 8, 7))]
)
def test_images_become_height_width_channels(stored, shape, tmp_path):
    obs = images(3, stored)
    save(tmp_path / "runs" / "a.npz", obs=obs)
    ds = imported(tmp_path / "runs", tmp_path / "ds")
    assert ds.obs_shape == shape
    if stored == (3, 9, 8):
        obs = obs.transpose(0, 2, 3, 1)
    assert np.array_equal(ds.obs, obs.reshape(3, *shape))


def test_number_of_actions_is_an_option(tmp_path):
    save(tmp_path / "runs" / "a.npz")
    assert imported(tmp_path / "runs", tmp_path / "ds", n_actions=15).n_actions == 15
    with pytest.raises(UserError, match=r"a.npz has action 2, but there are 2 actions"):
        imported(tmp_path / "runs", tmp_path / "other", n_actions=2)
    with pytest.raises(UserError, match="--n-actions must be between 1"):
        ImportConfig("runs", tmp_path, n_actions=0)


def test_actions_that_no_network_could_have_are_refused_not_wrapped(tmp_path):
    save(tmp_path / "runs" / "a.npz", action=np.array([0, 3, 2**40 + 3]))
    with pytest.raises(UserError, match="has 1,099,511,627,780 actions; gsf takes up to 10,000"):
        imported(tmp_path / "runs", tmp_path / "ds")
    assert not (tmp_path / "ds").exists()


def pickled(file):
    save(file, reward=np.array([1, "a", None], dtype=object))


def truncated_zip(file):
    save(file)
    file.write_bytes(file.read_bytes()[:-200])


def damaged_frames(file):
    """Found when the frames are read, after the first look: the CRC is of the zip."""
    np.savez(file, obs=images(3), action=[0, 1, 2], reward=[0.0] * 3, level=7)
    data = bytearray(file.read_bytes())
    data[300] ^= 1
    file.write_bytes(data)


def claims_8_terabytes(file):
    """The header of an array, and nothing behind it."""
    header = io.BytesIO()
    said = {"descr": "|u1", "fortran_order": False, "shape": (2**31, 64, 64, 1)}
    np.lib.format.write_array_header_1_0(header, said)
    np.savez(file, action=[0, 1, 2], reward=[0.0] * 3, level=7)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("obs.npy", header.getvalue())


BAD_NPZ = {
    "NaN reward": ({"reward": np.array([0, np.nan, 1])}, "at step 1, which is not finite or"),
    "infinite reward": ({"reward": np.array([0, 1e39, 1])}, "at step 1, which is not finite or"),
    "reward of text": ({"reward": np.array(["a", "b", "c"])}, "<U1 rewards"),
    "few rewards": ({"reward": np.zeros(2)}, r"rewards of shape \(2,\) for 3 actions"),
    "float obs": ({"obs": np.zeros((3, 8, 6, 3))}, "float64 observations .* uint8 images"),
    "flat obs": ({"obs": np.zeros((3, 8), np.uint8)}, "uint8 images"),
    "few obs": ({"obs": images(2)}, "2 observations for 3 actions"),
    "many obs": ({"obs": images(5)}, "5 observations for 3 actions"),
    "other size": ({"obs": images(3, (8, 8, 3))}, r"shape \(8, 8, 3\), but .*a.npz of \(8, 6, 3\)"),
    "negative action": ({"action": np.array([0, -1, 2])}, "negative action, -1"),
    "float action": ({"action": np.zeros(3)}, "float64 actions"),
    "action vectors": ({"action": np.zeros((3, 2), int)}, r"actions of shape \(3, 2\)"),
    "no steps": (
        {"action": np.zeros(0, int), "reward": np.zeros(0), "obs": images(1)},
        "no steps",
    ),
    "no action": ({"action": None}, "no array 'action'; it has level, obs, reward"),
    "no obs": ({"obs": None}, "no array 'obs'"),
    "no context": ({"level": None}, r"no 'level' to tell its context.*\(action, obs, reward\)"),
    "two contexts": ({"level": np.array([7, 7, 8])}, "no single 'level'"),
    "empty context": ({"level": np.array([])}, "no single 'level'"),
    "NaN context": ({"level": np.array(np.nan)}, "no single 'level'"),
    "complex context": ({"level": np.array(1j)}, "no single 'level'"),
    "many flags": ({"terminated": np.zeros(4, bool)}, "no clear 'terminated'"),
    "no flag": ({"truncated": np.array(2)}, "no clear 'truncated'"),
    "goes on": ({"terminated": np.array([0, 1, 0])}, "goes on after it was terminated, at step 1"),
    "pickle": (pickled, "plain arrays: Object arrays cannot be loaded"),
    "8 TB": (claims_8_terabytes, "'obs' claims 8,796,093,022,336 bytes that are not there"),
    "truncated zip": (truncated_zip, "not a readable .npz"),
    "damaged frames": (damaged_frames, "no readable array 'obs' .* CRC"),
    "no zip": (lambda file: file.write_bytes(b"hello"), "not a readable .npz"),
    "empty file": (lambda file: file.write_bytes(b""), "not a readable .npz"),
}


@pytest.mark.parametrize("case", BAD_NPZ)
def test_bad_npz_is_named_and_leaves_nothing(case, tmp_path):
    damage, message = BAD_NPZ[case]
    save(tmp_path / "runs" / "a.npz")
    if callable(damage):
        damage(tmp_path / "runs" / "b.npz")
    else:
        save(tmp_path / "runs" / "b.npz", **damage)
    with pytest.raises(UserError, match=message) as caught:
        imported(tmp_path / "runs", tmp_path / "ds", validation=0)
    assert "b.npz" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_nothing_to_import(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"neither .npz files nor a Minari or Parquet"):
        imported(tmp_path / "empty", tmp_path / "ds")
    with pytest.raises(UserError, match=r"holds no .npz files"):
        imported(tmp_path / "empty", tmp_path / "ds", format="npz")
    with pytest.raises(UserError, match="no Minari dataset at no/such-v0"):
        imported("no/such-v0", tmp_path / "ds")


# Splits and repetition


@pytest.fixture
def sites(tmp_path):
    for k in range(20):
        save(tmp_path / "sites" / f"{k}.npz", obs=images(3, seed=k), level=np.array(k % 10))
    return tmp_path / "sites"


def test_a_share_of_contexts_is_held_out(sites, tmp_path):
    whole = imported(sites, tmp_path / "whole")
    train = imported(sites, tmp_path / "ds", validation=0.3)
    held = Dataset.open(tmp_path / "ds-validation")
    assert len(held.levels) == 3
    assert sorted(train.levels + held.levels) == whole.levels == list(range(10))
    assert len(train) == 42
    assert len(held) == 18
    for part in (train, held):
        verify_dataset(part.path)
        for level, name in enumerate(part.levels):
            of_part = [part.obs[part.frame[a:b]] for a, b in part.episodes(level)]
            of_whole = [whole.obs[whole.frame[a:b]] for a, b in whole.episodes(name)]
            assert np.array_equal(of_part, of_whole)
    other = imported(sites, tmp_path / "other", validation=0.3, seed=1)
    assert other.levels != train.levels


def test_a_context_stays_on_its_side_when_others_go(sites, tmp_path):
    imported(sites, tmp_path / "ds", validation=0.5)
    held = set(Dataset.open(tmp_path / "ds-validation").levels)
    gone = min(set(range(10)) - held)
    for k in (gone, gone + 10):
        (sites / f"{k}.npz").unlink()
    imported(sites, tmp_path / "less", validation=5 / 9)
    assert set(Dataset.open(tmp_path / "less-validation").levels) == held


def test_named_contexts_are_held_out(sites, tmp_path):
    train = imported(sites, tmp_path / "ds", hold_out=("3", "7"))
    assert Dataset.open(tmp_path / "ds-validation").levels == [3, 7]
    assert train.levels == [0, 1, 2, 4, 5, 6, 8, 9]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation": 1.0}, "--validation must be at least 0 and below 1, got 1.0"),
        ({"validation": -0.1}, "--validation must be at least 0"),
        ({"validation": 0.99}, "all 10 contexts would be held out"),
        ({"hold_out": ("3", "x")}, "no context 'x' to hold out; there are 0, 1"),
        ({"hold_out": tuple(map(str, range(10)))}, "all 10 contexts"),
    ],
)
def test_splits_that_cannot_be(options, message, sites, tmp_path):
    with pytest.raises(UserError, match=message):
        imported(sites, tmp_path / "ds", **options)
    assert not (tmp_path / "ds").exists()


def test_import_again(sites, tmp_path, capsys):
    first = imported(sites, tmp_path / "ds", validation=0.3).manifest
    capsys.readouterr()
    assert imported(sites, tmp_path / "ds", validation=0.3).manifest == first
    assert capsys.readouterr().out.count("(already done)") == 2
    with pytest.raises(UserError, match=r"holds a dataset with --validation 0\.3, not 0\.2"):
        imported(sites, tmp_path / "ds", validation=0.2)
    # killed between the two datasets
    (tmp_path / "ds").rename(tmp_path / "gone")
    assert imported(sites, tmp_path / "ds", validation=0.3).manifest == first
    save(sites / "0.npz", obs=images(3, seed=99), level=np.array(0))
    with pytest.raises(UserError, match="made from another source"):
        imported(sites, tmp_path / "ds", validation=0.3)


# Minari


def assert_same(one: Dataset, two: Dataset) -> None:
    for name in ("obs", *COLUMN_DTYPES):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name
    assert (one.name, one.levels, one.n_actions) == (two.name, two.levels, two.n_actions)


@pytest.mark.parametrize(
    ("obs_shape", "in_minari"),
    [
        ((16, 16, 3), (16, 16, 3)),  # too small for Minari to take for an image
        ((3, 16, 16), (3, 16, 16)),  # not channels first: the dataset says so
        ((32, 40, 3), (32, 40, 3)),
        ((32, 32, 1), (32, 32)),
        ((32, 32, 2), (32, 32, 2)),
        ((32, 32, 4), (32, 32, 4)),
        ((32, 32, 6), (1, 32, 32, 6)),
    ],
)
@pytest.mark.parametrize("levels", [(10, 11, 12, 13), ("b", "a", "of no episode")])
def test_minari_round_trip_is_lossless(obs_shape, in_minari, levels, tmp_path):
    lengths = (5, 3, 1, 4, 6, 2, 7, 3) if len(levels) == 4 else (4, 2)
    ds = write_episodes(tmp_path / "ds", lengths, levels, obs_shape=obs_shape)
    export_data(ExportConfig(ds.path, tmp_path / "out"))

    data = minari.MinariDataset(tmp_path / "out" / "data")
    assert data.id == "random-v0"
    assert data.observation_space.shape == in_minari
    assert data.action_space == spaces.Discrete(5)
    assert (data.total_episodes, data.total_steps) == (len(lengths), len(ds))
    for (start, stop), episode in zip(ds.episodes(), data, strict=True):
        shown = ds.obs[ds.frame[start] : ds.frame[stop - 1] + 1 + ds.has_next[stop - 1]]
        stored = episode.observations.reshape(-1, *obs_shape)
        assert episode.observations.shape == (stop - start + 1, *in_minari)
        assert np.array_equal(stored[: len(shown)], shown)
        assert np.array_equal(stored[-1], shown[-1])  # shown, or repeated
        assert np.array_equal(episode.actions, ds.action[start:stop])
        assert np.array_equal(episode.rewards, ds.reward[start:stop])
        assert np.array_equal(episode.terminations, ds.terminated[start:stop])
        assert np.array_equal(episode.truncations, ds.truncated[start:stop])
        level = ds.levels[ds.level[start]]
        expected = level.encode() if isinstance(level, str) else level
        assert list(episode.infos["level"]) == [expected] * (stop - start + 1)

    assert_same(ds, imported(tmp_path / "out", tmp_path / "back"))


def test_hard_levels_stay_hard(tmp_path):
    ds = write_episodes(tmp_path / "ds")
    ids = list(range(4, 4 + ds.n_actions))
    manifests.change(ds.path, difficulty="hard", actions=ids)
    export_data(ExportConfig(ds.path, tmp_path / "out"))
    back = imported(tmp_path / "out", tmp_path / "back").manifest
    assert (back["difficulty"], back["actions"]) == ("hard", ids)


def test_export_says_where_it_repeated_a_frame(tmp_path):
    ds = write_episodes(tmp_path / "ds")
    export_data(ExportConfig(ds.path, tmp_path / "out"))
    storage = minari.MinariDataset(tmp_path / "out" / "data").storage
    repeated = [m["repeated_final_frame"] for m in storage.get_episode_metadata(range(8))]
    assert repeated == [True, True, True, False, False, True, True, True]
    assert "last observation of 6 episodes was never shown" in storage.metadata["description"]


def test_export_by_id_and_again(tmp_path, minari_root, capsys, monkeypatch):
    ds = write_episodes(tmp_path / "ds")
    export_data(ExportConfig(ds.path, minari_root / "lab" / "run-v3", dataset_id="lab/run-v3"))
    assert minari.load_dataset("lab/run-v3").id == "lab/run-v3"
    assert_same(ds, imported("lab/run-v3", tmp_path / "back", format="minari"))
    export_data(ExportConfig(ds.path, minari_root / "lab" / "run-v3", dataset_id="lab/run-v3"))
    assert "already done" in capsys.readouterr().out
    other = write_episodes(tmp_path / "other", seed=1)
    with pytest.raises(UserError, match="exists already"):
        export_data(ExportConfig(other.path, minari_root / "lab" / "run-v3"))
    with pytest.raises(UserError, match="'no id' is no Minari id"):
        export_data(ExportConfig(ds.path, tmp_path / "out", dataset_id="no id"))
    monkeypatch.chdir(tmp_path)
    export_data(ExportConfig(Path("ds"), Path("name-v2")))
    assert_same(ds, imported("name-v2", Path("relative")))
    assert minari.MinariDataset(tmp_path / "name-v2" / "data").id == "name-v2"


def test_a_failed_export_leaves_nothing(tmp_path, monkeypatch):
    ds = write_episodes(tmp_path / "ds", obs_shape=(32, 32, 3))

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gsf.data.minari._png", full)
    with pytest.raises(UserError, match="the disk is full"):
        export_data(ExportConfig(ds.path, tmp_path / "out"))
    assert [path.name for path in tmp_path.iterdir()] == ["ds"]


def from_minari(n_episodes=3, obs=None, actions=None, infos=None, data_format="hdf5", **of_spaces):
    """A dataset made by Minari itself: episode i has 3 + i steps and seed 100 + i."""
    obs = obs or (lambda n: list(images(n, (32, 32, 3))))
    actions = actions or (lambda n: [k % 4 for k in range(n)])
    infos = infos or (lambda i, n: {"room": [i] * (n + 1)})
    lengths = [3 + i for i in range(n_episodes)]
    buffers = [
        EpisodeBuffer(
            id=None,
            seed=100 + i,
            options={"site": f"s{i}"},
            observations=obs(n + 1),
            actions=actions(n),
            rewards=[0.5] * n,
            terminations=[False] * (n - 1) + [i != 1],
            truncations=[False] * (n - 1) + [i == 1],
            infos=infos(i, n),
        )
        for i, n in enumerate(lengths)
    ]
    usual = {
        "observation_space": spaces.Box(0, 255, (32, 32, 3), np.uint8),
        "action_space": spaces.Discrete(4),
    }
    with warnings.catch_warnings(action="ignore"):  # about authors and licences left out
        return minari.create_dataset_from_buffers(
            "lab/made-v0", buffers, data_format=data_format, **(usual | of_spaces)
        )


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_import_of_what_minari_made(data_format, tmp_path):
    if data_format == "arrow":
        pytest.importorskip("pyarrow", exc_type=ImportError)
    data = from_minari(data_format=data_format)
    ds = imported("lab/made-v0", tmp_path / "ds", context="room")
    assert (ds.name, ds.levels, ds.n_actions) == ("lab/made-v0", [0, 1, 2], 4)
    assert ds.action.tolist() == [0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert ds.has_next.all()  # the final observations are kept
    assert np.flatnonzero(ds.terminated).tolist() == [2, 11]
    assert np.flatnonzero(ds.truncated).tolist() == [6]
    assert np.array_equal(ds.obs, np.concatenate([episode.observations for episode in data]))
    by_path = imported(data.storage.data_path, tmp_path / "by-path", context="room")
    assert_same(ds, by_path)
    assert imported("lab/made-v0", tmp_path / "b", context="seed").levels == [100, 101, 102]
    ds = imported("lab/made-v0", tmp_path / "c", context="options/site")
    assert ds.levels == ["s0", "s1", "s2"]


def test_the_last_info_may_be_of_the_next_episode(tmp_path):
    from_minari(infos=lambda i, n: {"room": np.array([i] * n + [i + 1])})
    assert imported("lab/made-v0", tmp_path / "ds", context="room").levels == [0, 1, 2]


def test_images_in_a_dictionary_and_actions_that_start_at_one(tmp_path):
    camera, wrist = images(6, (32, 32, 3)), images(6, (32, 40, 3), seed=1)
    box = spaces.Box(0, 255, (32, 32, 3), np.uint8)
    wide = spaces.Box(0, 255, (32, 40, 3), np.uint8)
    data = from_minari(
        obs=lambda n: {
            "camera": list(camera[:n]),
            "wrist": list(wrist[:n]),
            "arm": np.zeros((n, 2)),
        },
        actions=lambda n: [k % 4 + 1 for k in range(n)],
        observation_space=spaces.Dict(
            {"camera": box, "wrist": wide, "arm": spaces.Box(-1, 1, (2,), np.float64)}
        ),
        action_space=spaces.Discrete(4, start=1),
    )
    with pytest.raises(UserError, match="has images camera, wrist; choose one with --image"):
        imported("lab/made-v0", tmp_path / "ds", context="room")
    with pytest.raises(UserError, match=r"no images 'arm': .*arm: Box float64"):
        imported("lab/made-v0", tmp_path / "ds", context="room", image="arm")
    ds = imported("lab/made-v0", tmp_path / "ds", context="room", image="wrist")
    assert ds.action[:5].tolist() == [0, 1, 2, 0, 1]
    assert np.array_equal(ds.obs[:4], data[0].observations["wrist"])


def test_minari_without_a_context(tmp_path):
    from_minari()
    with pytest.raises(
        UserError,
        match=r"episode 0 of lab/made-v0 has no 'level' .* id, options, room, seed, total_steps",
    ):
        imported("lab/made-v0", tmp_path / "ds")


def test_minari_without_images_or_discrete_actions(tmp_path):
    from_minari(
        obs=lambda n: np.zeros((n, 39)), observation_space=spaces.Box(-1, 1, (39,), np.float64)
    )
    with pytest.raises(UserError, match=r"no images: its observations are Box float64 \(39,\)"):
        imported("lab/made-v0", tmp_path / "ds")
    minari.delete_dataset("lab/made-v0")
    from_minari(
        actions=lambda n: np.zeros((n, 2)), action_space=spaces.Box(-1, 1, (2,), np.float64)
    )
    with pytest.raises(UserError, match=r"actions Box float64 \(2,\); gsf needs a Discrete"):
        imported("lab/made-v0", tmp_path / "ds")


def test_a_damaged_minari_dataset(tmp_path):
    folder = Path(from_minari().storage.data_path)
    metadata = json.loads((folder / "metadata.json").read_text())
    (folder / "metadata.json").write_text(json.dumps(metadata | {"minari_version": "99.0"}))
    with pytest.raises(UserError, match=r"not a dataset that this Minari reads: .*99.0"):
        imported("lab/made-v0", tmp_path / "ds", context="seed")
    (folder / "metadata.json").write_text(json.dumps(metadata))
    (folder / "main_data.hdf5").write_bytes((folder / "main_data.hdf5").read_bytes()[:5000])
    with pytest.raises(UserError, match="not a dataset that this Minari reads"):
        imported("lab/made-v0", tmp_path / "ds", context="seed")
    assert not (tmp_path / "ds").exists()


def test_an_exported_dataset_can_be_split(tmp_path):
    ds = write_episodes(tmp_path / "ds")
    export_data(ExportConfig(ds.path, tmp_path / "out"))
    train = imported(tmp_path / "out", tmp_path / "back", hold_out=("11",))
    held = Dataset.open(tmp_path / "back-validation")
    assert (train.levels, held.levels) == ([10, 12, 13], [11])
    rows = ds.level == 1
    assert np.array_equal(held.action, ds.action[rows])
    assert np.array_equal(held.obs[held.frame], ds.obs[ds.frame[rows]])
    assert np.array_equal(train.t, ds.t[~rows])


def test_no_procgen_is_needed(tmp_path):
    save(tmp_path / "runs" / "a.npz")
    runs, out = str(tmp_path / "runs"), str(tmp_path / "ds")
    code = f"""
import sys
sys.modules["procgen"] = sys.modules["gym3"] = None
from pathlib import Path
from gsf import Dataset
from gsf.data.importers import ImportConfig, import_data
ds = Dataset.open(import_data(ImportConfig({runs!r}, Path({out!r}))))
assert ds.obs.shape == (3, 8, 6, 3)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
