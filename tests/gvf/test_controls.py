"""Labels to compare with: of true values, of noise, of values dealt out anew."""

import numpy as np
import pytest

import tiny
from gsf.core.errors import UserError
from gsf.data.dataset import Dataset
from gsf.data.materialise import MaterialiseConfig, materialise
from gsf.gvf.controls import values_of
from gsf.gvf.fit import FitConfig, fit
from gsf.gvf.label import LabelConfig, label
from gsf.gvf.options import LabelConfig as Options
from gsf.gvf.training_labels import load_labels
from gsf.suites import grids
from gsf.sweep.options import RunConfig
from gsf.sweep.plan import resolve
from recordings import record_grid


class Levels:
    """As much of a dataset as is asked for."""

    level = np.array([0, 0, 0, 0, 1, 1])


def test_permuted_values_stay_in_their_level_and_what_is_unknown_stays():
    values = np.array([1, 2, np.nan, 3, 7, 8], np.float32)
    dealt = [values_of("permuted", values, Levels, 0.9, seed) for seed in range(8)]
    for found in dealt:
        assert np.isnan(found[2])
        assert sorted(found[[0, 1, 3]]) == [1, 2, 3]
        assert sorted(found[4:]) == [7, 8]
    assert len({tuple(found[[0, 1, 3]]) for found in dealt}) > 2
    pairs = values_of("permuted", np.stack([values, 10 * values], 1), Levels, 0.9, 0)
    assert np.array_equal(pairs[:, 1], 10 * pairs[:, 0], equal_nan=True)


def test_noise_knows_nothing_and_is_the_same_for_a_seed():
    values = np.full(6, np.nan, np.float32)
    one, same, other = (values_of("noise", values, Levels, 0.9, seed) for seed in (0, 0, 1))
    assert one.dtype == np.float32
    assert not np.isnan(one).any()
    assert one.tolist() == same.tolist() != other.tolist()


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """A recording of a grid, a dataset and a fit of it."""
    home = tmp_path_factory.mktemp("grid")
    recording = record_grid(home, n_levels=2)
    data = materialise(MaterialiseConfig(recording, out=home / "data"))
    return recording, data, fit(FitConfig(data, out=home / "gvf", gamma=0.5, diagnose=False))


def labels_of(grid, out, **options):
    _, data, gvf = grid
    return load_labels(label(LabelConfig(gvf, out=out, **options)), Dataset.open(data))


def test_oracle_labels_are_bins_of_true_values(grid, tmp_path):
    found, data = labels_of(grid, tmp_path, source="oracle", n_bins=3), Dataset.open(grid[1])
    world = grids.world("grid5_looks", 0)
    farthest = grids.distances(world.step, world.goal)[world.start]
    first = np.flatnonzero(data.t == 0)
    assert found.values[first].tolist() == pytest.approx([0.5 ** (farthest - 1)] * len(first))
    assert set(found.label[first].tolist()) == {0}  # farther is worth less
    assert set(found.label[np.flatnonzero(data.terminated)].tolist()) == {2}
    assert not np.isnan(found.values).any()  # the fit does not know what follows a cut


def test_chance_labels_keep_the_histogram_or_forget_it(grid, tmp_path):
    plain, dealt, noise = (
        labels_of(grid, tmp_path / source, source=source, n_bins=3)
        for source in ("values", "permuted", "noise")
    )
    level = Dataset.open(grid[1]).level
    for i in (0, 1):
        one, other = (np.sort(x.label[level == i].numpy()) for x in (plain, dealt))
        assert np.array_equal(one, other)
        counts = np.bincount(noise.label[level == i].numpy(), minlength=3)
        assert counts.max() - counts.min() <= 1
    assert (plain.label != dealt.label).any()


def test_a_seed_matters_where_chance_has_a_part(grid, tmp_path):
    label(LabelConfig(grid[2], out=tmp_path / "values"))
    label(LabelConfig(grid[2], out=tmp_path / "values", seed=1))  # the same, and there already
    label(LabelConfig(grid[2], out=tmp_path / "noise", source="noise"))
    with pytest.raises(UserError, match="seed"):
        label(LabelConfig(grid[2], out=tmp_path / "noise", source="noise", seed=1))


def test_where_nobody_knows_true_values_it_is_said(grid, tmp_path):
    gvf = fit(FitConfig(tiny.write_dataset(tmp_path / "data").path, out=tmp_path / "gvf"))
    with pytest.raises(UserError, match="nobody knows the true values of corridor"):
        label(LabelConfig(gvf, out=tmp_path / "labels", source="oracle"))
    other = fit(FitConfig(grid[1], out=tmp_path / "action", cumulant="action", diagnose=False))
    with pytest.raises(UserError, match="oracle labels are of reward, not of action"):
        label(LabelConfig(other, out=tmp_path / "labels", source="oracle"))
    variant = "gsf-reward+label.source=oracle"
    with pytest.raises(UserError, match="nobody knows the true values of coinrun"):
        resolve(RunConfig(methods=(variant,), games=("coinrun",)))


def test_every_run_of_a_sweep_has_its_own_chance(grid):
    methods = ("gsf-reward", "gsf-reward+label.source=noise", "gsf-reward+label.source=oracle")
    few = {"materialise.transitions": 800}
    config = RunConfig(methods=methods, recordings=(str(grid[0]),), seeds=2, options=few)
    made = [job.labelling.config for job in resolve(config).jobs({})]
    seeds = {(x.out.name, x.seed) for x in made}
    assert seeds == {
        ("labels-reward-mc", 0),
        ("labels-reward-mc+label.source=oracle", 0),
        ("labels-reward-mc+label.source=noise-seed0", 0),
        ("labels-reward-mc+label.source=noise-seed1", 1),
    }
    assert Options(grid[2], out=grid[2], source="permuted").by_chance
