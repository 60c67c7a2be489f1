"""Datasets: what is written is what is drawn, never across episodes; bad files are named."""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.format import open_memmap

import gsf.data.format
import manifests
from episodes import write_episodes
from gsf.core.errors import UserError
from gsf.data.dataset import Batch, Dataset, DatasetWriter, verify_dataset
from gsf.data.format import COLUMN_DTYPES, frame_checksums

LENGTHS = (5, 3, 1, 4, 6, 2, 7, 3)  # what write_episodes does by default


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    return write_episodes(tmp_path_factory.mktemp("dataset") / "ds")


def stored(ds: Dataset) -> dict[str, np.ndarray]:
    return {name: np.load(ds.path / f"{name}.npy") for name in ("obs", *COLUMN_DTYPES)}


def assert_batch_is_rows(batch: Batch, files: dict[str, np.ndarray], last: dict[int, int]) -> None:
    """Field by field against the files, and next_obs against time."""
    index = batch.index.numpy()
    for name in ("action", "reward", "level", "terminated", "truncated", "has_next"):
        assert np.array_equal(getattr(batch, name).numpy(), files[name][index]), name
    for place in np.ndindex(index.shape):
        row, frame = index[place], files["frame"][index[place]]
        assert np.array_equal(batch.obs[place], files["obs"][frame])
        shown = frame + bool(files["has_next"][row])
        assert np.array_equal(batch.next_obs[place], files["obs"][shown])
        episode = files["episode"][row]
        if row != last[episode]:
            assert batch.has_next[place]
            assert np.array_equal(batch.next_obs[place], files["obs"][files["frame"][row + 1]])


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    n_levels=st.integers(1, 5),
    few=st.integers(1, 6),
    length=st.integers(1, 9),
    seed=st.integers(0, 2**32),
    larger_than_memory=st.booleans(),
)
def test_sampler_properties(lengths, n_levels, few, length, seed, larger_than_memory):
    with tempfile.TemporaryDirectory() as folder:
        levels = [f"site {i}" for i in range(n_levels)]
        ds = write_episodes(Path(folder) / "ds", lengths, levels, obs_shape=(3, 2, 1), seed=seed)
        ds = Dataset.open(ds.path, larger_than_memory)
        files = stored(ds)
        last = {k: int(row) for k, row in enumerate(np.cumsum(lengths) - 1)}
        rng = np.random.default_rng(seed)
        assert_batch_is_rows(ds.sample(40, rng), files, last)

        batch = ds.sample(40, rng, n_levels=few)
        assert_batch_is_rows(batch, files, last)
        assert 1 <= len(set(batch.level.tolist())) <= few

        if length > max(lengths):
            with pytest.raises(UserError, match=f"has {length} steps"):
                ds.windows(5, length, rng)
        else:
            batch = ds.windows(20, length, rng)
            assert batch.index.shape == batch.action.shape == (20, length)
            assert batch.obs.shape == (20, length, 3, 2, 1)
            assert (batch.index.diff(dim=1) == 1).all()
            episode = files["episode"][batch.index.numpy()]
            assert (episode == episode[:, :1]).all()
            assert_batch_is_rows(batch, files, last)


def test_frames_become_arrays_as_numpy_2_asks(ds):
    obs = np.load(ds.path / "obs.npy")
    assert np.array_equal(np.asarray(ds.obs), obs)
    assert np.asarray(ds.obs, np.float32).dtype == np.float32
    assert ds.obs.__array__(copy=False).base is not None
    copied = ds.obs.__array__(copy=True)
    copied += 1
    assert np.array_equal(np.asarray(ds.obs), obs)
    with pytest.raises(ValueError, match="must be copied"):
        ds.obs.__array__(np.float32, copy=False)


def test_types_and_shapes(ds):
    batch = ds.sample(6, np.random.default_rng(0))
    assert batch.obs.dtype == batch.next_obs.dtype == torch.uint8
    assert batch.obs.shape == batch.next_obs.shape == (6, 16, 16, 3)
    assert batch.action.dtype == batch.level.dtype == batch.index.dtype == torch.int64
    assert batch.reward.dtype == torch.float32
    for flag in (batch.terminated, batch.truncated, batch.has_next):
        assert flag.dtype == torch.bool
        assert flag.shape == (6,)
    assert batch.to("meta").next_obs.device.type == "meta"
    assert (ds.n_levels, ds.n_actions, ds.obs_shape, ds.name) == (4, 5, (16, 16, 3), "random")
    assert ds.levels == [10, 11, 12, 13]
    assert len(ds) == sum(LENGTHS) == 31


def test_sample_is_uniform(ds):
    counts = np.bincount(ds.sample(31 * 400, np.random.default_rng(0)).index, minlength=31)
    assert counts.min() > 400 - 5 * 20  # five standard deviations
    assert counts.max() < 400 + 5 * 20


def test_sample_of_few_levels_is_uniform_over_levels_and_their_rows(ds):
    rng, chosen = np.random.default_rng(0), Counter()
    for _ in range(300):
        batch = ds.sample(64, rng, n_levels=2)
        chosen[tuple(sorted(set(batch.level.tolist())))] += 1
    assert len(chosen) == 6  # every pair of four levels
    assert min(chosen.values()) > 20
    counts = np.bincount(ds.sample(31 * 400, rng, n_levels=9).index, minlength=31)
    assert counts.min() > 300
    with pytest.raises(UserError, match="at least one level"):
        ds.sample(4, rng, n_levels=0)


def test_levels_without_transitions_are_never_drawn(tmp_path):
    ds, rng = write_episodes(tmp_path / "ds", (5, 5), levels=(1, 2, 3)), np.random.default_rng(0)
    for _ in range(10):
        assert set(ds.sample(64, rng, n_levels=2).level.tolist()) == {0, 1}


def test_windows_start_uniformly_wherever_they_fit(ds):
    """Three steps: 3 starts in the episode of 5 steps, 1 in those of 3, 2 in 4, 4 in 6, 5 in 7."""
    starts = ds.windows(16 * 400, 3, np.random.default_rng(0)).index[:, 0].numpy()
    counts = Counter(starts.tolist())
    expected = [0, 1, 2, 5, 9, 10, 13, 14, 15, 16, 21, 22, 23, 24, 25, 28]
    assert sorted(counts) == expected
    assert min(counts.values()) > 300


def test_same_rng_same_batch(ds):
    for draw in (
        lambda rng: ds.sample(8, rng),
        lambda rng: ds.sample(8, rng, n_levels=2),
        lambda rng: ds.windows(8, 3, rng),
    ):
        one, two, other = (draw(np.random.default_rng(seed)) for seed in (7, 7, 8))
        assert torch.equal(one.index, two.index)
        assert torch.equal(one.obs, two.obs)
        assert not torch.equal(one.index, other.index)


def test_gather_observations_episodes_and_rows_left(ds):
    rows = torch.tensor([30, 0, 8])
    assert torch.equal(ds.gather(rows).index, rows)
    assert torch.equal(ds.observations(rows), ds.gather(rows).obs)
    assert ds.episodes() == [
        (0, 5), (5, 8), (8, 9), (9, 13), (13, 19), (19, 21), (21, 28), (28, 31),
    ]  # fmt: skip
    assert ds.episodes(1) == [(5, 8), (19, 21)]
    assert ds.rows_left[:10].tolist() == [5, 4, 3, 2, 1, 3, 2, 1, 1, 4]
    assert ds.rows_left[-1] == 1


def test_a_batch_is_a_copy_and_columns_are_read_only(ds):
    batch = ds.gather([3])
    before = ds.obs[3].copy()
    batch.obs.add_(1)
    batch.reward.add_(1)
    assert np.array_equal(ds.obs[3], before)
    with pytest.raises(ValueError, match="read-only"):
        ds.reward[0] = 1


def test_larger_than_memory(tmp_path):
    """A sparse file of twice this machine's memory: mapping, sampling and prefetching it works."""
    path = write_episodes(tmp_path / "ds").path
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    obs, frame = np.load(path / "obs.npy"), np.load(path / "frame.npy")
    n_frames = 2 * memory // obs[0].size
    with open(path / "obs.npy", "wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (n_frames, *obs.shape[1:])}
        np.lib.format.write_array_header_1_0(file, header)
        file.seek((n_frames - len(obs)) * obs[0].size, os.SEEK_CUR)
        file.write(obs.tobytes())
    np.save(path / "frame.npy", frame + n_frames - len(obs))
    sums = open_memmap(path / "checksum.npy", "w+", np.uint64, (n_frames,))  # sparse, too
    sums[-len(obs) :] = frame_checksums(obs)
    sums.flush()
    manifests.change(path, n_frames=n_frames)
    ds = Dataset.open(path)
    assert ds._prefetch_map is not None
    batch = ds.sample(100, np.random.default_rng(0))
    assert np.array_equal(batch.obs, obs[frame[batch.index]])


def test_no_torch_to_write_and_verify():
    code = "import sys, gsf.data.format, gsf.data.dataset; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# Bad files


def change(column, row, value):
    def apply(path):
        array = np.load(path / f"{column}.npy")
        array[row] = value
        np.save(path / f"{column}.npy", array)
        manifests.change(path)

    return apply


def rewrite_manifest(**changes):
    def apply(path):
        manifests.change(path, **changes)

    return apply


def shorten(name):
    def apply(path):
        os.truncate(path / name, (path / name).stat().st_size - 1)

    return apply


def not_a_flag(path):
    data = bytearray((path / "has_next.npy").read_bytes())
    data[-20] = 7
    (path / "has_next.npy").write_bytes(data)
    manifests.change(path)


BAD = {
    "missing column": (lambda p: (p / "t.npy").unlink(), "lacks t.npy"),
    "wrong dtype": (
        lambda p: np.save(p / "reward.npy", np.zeros(31)),
        r"holds float64 \(31,\), not float32 \(31,\)",
    ),
    "wrong length": (lambda p: np.save(p / "t.npy", np.zeros(30, np.int32)), r"int32 \(30,\)"),
    "not an array": (lambda p: (p / "t.npy").write_bytes(b"nonsense" * 9), "not a .npy array"),
    "empty file": (lambda p: (p / "t.npy").write_bytes(b""), "not a .npy array"),
    "cut column": (shorten("action.npy"), "cut short"),
    "cut obs": (shorten("obs.npy"), "obs.npy has .* bytes, not"),
    "other images": (rewrite_manifest(obs_shape=[16, 16, 1]), "not uint8 .*16, 16, 1"),
    "level": (change("level", 12, 4), "level id outside 0..3, at row 12"),
    "negative level": (change("level", 0, -1), "level id outside 0..3, at row 0"),
    "action": (change("action", 30, 5), "action outside 0..4, at row 30"),
    "NaN reward": (change("reward", 3, np.nan), "reward that is not finite, at row 3"),
    "infinite reward": (change("reward", 3, np.inf), "reward that is not finite"),
    "frame": (change("frame", 30, 99), "frame outside 0..32"),
    "negative frame": (change("frame", 0, -1), "frame outside 0..32, at row 0"),
    "next past the end": (change("has_next", 30, True), "past the last frame, at row 30"),
    "shared frame": (change("frame", 5, 4), "frames that do not count up, at row 4"),
    "other's next": (change("has_next", 4, True), "another episode's frame .*, at row 4"),
    "gap": (change("has_next", 1, False), "misses a frame, at row 1"),
    "goes on": (change("terminated", 1, True), "goes on after its end, at row 1"),
    "time": (change("t", 2, 9), "time that does not count up .*, at row 1"),
    "two levels": (change("level", 3, 1), "episode of two levels, at row 2"),
    "flag": (not_a_flag, "has_next that is neither 0 nor 1, at row 11"),
    "pieces": (change("episode", slice(28, 31), 0), "episode in two pieces"),
    "no levels": (rewrite_manifest(levels=None), "lacks 'levels'"),
    "other kind": (rewrite_manifest(kind="run", format=3), "holds a run, not a dataset"),
    "other format": (rewrite_manifest(format=1), "dataset format 1; this gsf reads format 2"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_in_one_sentence(case, tmp_path):
    path = write_episodes(tmp_path / "ds").path
    damage, message = BAD[case]
    damage(path)
    with pytest.raises(UserError, match=message) as caught:
        Dataset.open(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_faults_are_found_across_the_parts_that_are_checked_at_once(tmp_path, monkeypatch):
    path = write_episodes(tmp_path / "ds").path
    change("t", 2, 9)(path)
    for at_once in (1, 2, 3):
        monkeypatch.setattr(gsf.data.format, "_CHECKED_AT_ONCE", at_once)
        with pytest.raises(UserError, match="at row 1"):
            Dataset.open(path)


@pytest.mark.parametrize("name", ["obs", *COLUMN_DTYPES])
def test_verify_names_what_is_damaged(name, tmp_path):
    path = write_episodes(tmp_path / "ds").path
    verify_dataset(path)
    data = bytearray((path / f"{name}.npy").read_bytes())
    data[-1] ^= 1
    (path / f"{name}.npy").write_bytes(data)
    expected = "1 of its frames fail their checksum: 32" if name == "obs" else "it fails"
    with pytest.raises(UserError, match=f"{name}.npy is damaged: {expected}"):
        verify_dataset(path)


def test_a_frame_is_checked_when_it_is_first_read(tmp_path):
    path = write_episodes(tmp_path / "ds").path
    ds = Dataset.open(path)
    data = bytearray((path / "obs.npy").read_bytes())
    data[-(len(ds.obs) - 5) * ds.obs[0].size] ^= 128
    (path / "obs.npy").write_bytes(data)
    ds = Dataset.open(path)
    row = int(np.flatnonzero(ds.frame == 5)[0])
    others = np.flatnonzero((ds.frame != 5) & (ds.frame + ds.has_next != 5))
    ds.gather(others)
    for read in (ds.gather, ds.observations, lambda rows: ds.obs[ds.frame[rows]]):
        with pytest.raises(UserError, match=r"obs.npy is damaged: frame 5 fails its checksum"):
            read([row])


# Writing

ROWS = {
    "action": [0, 1, 2, 0],
    "reward": [1.0, 2.0, 4.0, 8.0],
    "level": [0, 0, 1, 1],
    "episode": [0, 0, 1, 1],
    "t": [0, 1, 0, 1],
    "terminated": [False, True, False, False],
    "truncated": [False, False, False, False],
    "has_next": [True, False, True, True],
    "frame": [0, 1, 2, 3],
}


def writer(path, region_frames=(2, 3)):
    return DatasetWriter(
        path,
        name="two",
        obs_shape=(2, 2, 1),
        n_actions=3,
        levels=np.array([5, 9]),
        region_frames=region_frames,
    )


def frames(*values):
    return np.broadcast_to(np.array(values, np.uint8)[:, None, None, None], (len(values), 2, 2, 1))


def test_regions_are_written_side_by_side(tmp_path):
    with writer(tmp_path / "ds") as w:
        w.append(1, frames(30))
        w.append(0, frames(10, 20))
        w.append(1, frames(40, 50))
        manifest = w.finish(ROWS, pixels_match=True)
    assert np.load(tmp_path / "ds" / "obs.npy")[:, 0, 0, 0].tolist() == [10, 20, 30, 40, 50]
    assert manifest["levels"] == [5, 9]
    assert [region[:2] for region in manifest["regions"]] == [[0, 2], [2, 5]]
    assert manifest["pixels_match"] is True
    assert manifest["episodes"] == 2
    assert manifest["mean_return"] == 3.0  # of the first episode; the other is cut
    assert verify_dataset(tmp_path / "ds") == manifest
    assert Dataset.open(tmp_path / "ds").digest == manifest["digest"]


def test_mean_return_is_of_whole_episodes(tmp_path):
    """Neither of one that is cut nor of one whose beginning is missing."""
    with writer(tmp_path / "ds") as w:
        fill(w)
        manifest = w.finish(ROWS | {"t": [1, 2, 0, 1]})
    assert manifest["mean_return"] is None


def no_finish(w):
    w.append(0, frames(1, 2))


def too_many(w):
    w.append(0, frames(1, 2, 3))


def too_few(w):
    w.append(0, frames(1, 2))
    w.finish(ROWS)


def other_shape(w):
    w.append(0, frames(1)[:, :1])


def fill(w):
    w.append(0, frames(1, 2))
    w.append(1, frames(3, 4, 5))


def lacks_column(w):
    fill(w)
    w.finish({k: v for k, v in ROWS.items() if k != "t"})


def ragged(w):
    fill(w)
    w.finish(ROWS | {"t": [0, 1, 0]})


def bad_level(w):
    fill(w)
    w.finish(ROWS | {"level": [0, 0, 2, 2]})


def interrupted(w):
    fill(w)
    w.finish(ROWS)
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("misuse", "error"),
    [
        (no_finish, RuntimeError),
        (too_many, ValueError),
        (too_few, ValueError),
        (other_shape, ValueError),
        (lacks_column, ValueError),
        (ragged, ValueError),
        (bad_level, UserError),
        (interrupted, KeyboardInterrupt),
    ],
)
def test_a_failed_write_leaves_nothing(misuse, error, tmp_path):
    with pytest.raises(error), writer(tmp_path / "ds") as w:
        misuse(w)
    assert list(tmp_path.iterdir()) == []


def test_full_disk_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"needs .* GB but its disk has .* GB free"):
        writer(tmp_path / "ds", [1 << 50]).__enter__()
    assert list(tmp_path.iterdir()) == []

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(UserError, match="disk is full"), writer(tmp_path / "ds") as w:
        fill(w)
    assert list(tmp_path.iterdir()) == []


def test_short_writes_are_continued(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:3]))
    with writer(tmp_path / "ds") as w:
        fill(w)
        w.finish(ROWS)
    assert np.load(tmp_path / "ds" / "obs.npy")[:, 1, 1, 0].tolist() == [1, 2, 3, 4, 5]


def test_an_existing_dataset_is_not_overwritten(ds):
    before = verify_dataset(ds.path)
    with pytest.raises(UserError, match="exists already"), writer(ds.path):
        pass
    assert verify_dataset(ds.path) == before
