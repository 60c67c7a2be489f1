"""Labels of a fit: bins per level, what is ignored, what is refused, and what is reported."""

import dataclasses

import numpy as np
import pytest
import torch

import manifests
from chains import write_chain
from gsf.core.errors import UserError
from gsf.core.stage import read_manifest
from gsf.data.dataset import Dataset
from gsf.gvf.fit import FitConfig, fit
from gsf.gvf.label import LabelConfig, histogram, label
from gsf.gvf.training_labels import batch_labels, load_labels


def fitted(tmp_path, name="gvf", data="data", scales=(1.0, 1000.0), fit_options=None, **options):
    path = tmp_path / data
    if not path.exists():
        write_chain(path, scales, **options)
    return fit(FitConfig(path, tmp_path / name, diagnose=False, **(fit_options or {})))


def make(tmp_path, gvf, name="labels", **options):
    config = LabelConfig(gvf, tmp_path / name, **{"n_bins": 5, **options})
    label(config)
    return config


def test_labels_follow_the_state_in_every_level(tmp_path):
    gvf = fitted(tmp_path, n_episodes=4, fit_options={"gamma": 0.0})
    config = make(tmp_path, gvf)
    found = np.load(config.out / "label.npy")
    assert found.dtype == np.int8
    dataset_t = np.load(tmp_path / "data" / "t.npy")
    # gamma 0: the value is the reward, 1..5 times the level's scale; 5 bins, 5 values.
    np.testing.assert_array_equal(found, dataset_t)
    rank = np.load(config.out / "rank.npy")
    assert rank.dtype == np.float32
    # 20 rows a level: 4 ties at each value share the middle rank 4 t + 1.5.
    np.testing.assert_allclose(rank, (4 * dataset_t + 1.5) / 20)
    manifest = read_manifest(config.out, "labels")
    assert manifest["histogram"] == [8] * 5
    assert manifest["share_ignored"] == 0
    assert manifest["spearman_time_left"] == [pytest.approx(-1)]
    assert manifest["n_bins"] == 5
    np.testing.assert_array_equal(np.load(config.out / "values.npy"), np.load(gvf / "values.npy"))


def test_unknown_and_constant_values_are_ignored(tmp_path, capsys):
    # Level 1's rewards are all 0: fewer than two distinct values. Level 0 is cut: its end unknown.
    gvf = fitted(tmp_path, scales=(1.0, 0.0), length=8, end="cut", fit_options={"gamma": 0.5})
    config = make(tmp_path, gvf)
    found, rank = np.load(config.out / "label.npy"), np.load(config.out / "rank.npy")
    level, t = (np.load(tmp_path / "data" / f"{x}.npy") for x in ("level", "t"))
    np.testing.assert_array_equal(found == -1, (level == 1) | (t > 3))
    np.testing.assert_array_equal(np.isnan(rank), found == -1)
    assert "75.0%" in capsys.readouterr().out


def test_components_are_labelled_on_their_own(tmp_path):
    gvf = fitted(tmp_path, n_episodes=20, n_actions=3, fit_options={"cumulant": "action"})
    config = make(tmp_path, gvf)
    labels = load_labels(config.out, dataset_of(tmp_path))
    assert labels.label.shape == (200, 3)
    assert labels.n_labels == 3
    assert labels.cumulant == "action"


def dataset_of(tmp_path, name="data"):
    return Dataset.open(tmp_path / name)


def test_load_gives_torch_rows(tmp_path):
    config = make(tmp_path, fitted(tmp_path), quantiles="batch")
    labels = load_labels(config.out, dataset_of(tmp_path))
    index = torch.tensor([0, 3, 7])
    np.testing.assert_array_equal(labels.label[index], np.load(config.out / "label.npy")[index])
    assert labels.rank[index].dtype == torch.float32
    assert labels.quantiles == "batch"
    assert labels.n_bins == 5
    assert labels.action_values is None
    assert labels.n_labels == 1


def test_action_values_come_along(tmp_path):
    options = {"estimator": "td", "q": True, "grad_steps": 2, "batch": 4, "n_bins": 5}
    config = make(tmp_path, fitted(tmp_path, fit_options=options))
    labels = load_labels(config.out, dataset_of(tmp_path))
    assert labels.action_values.shape == (80, 2)


def test_labels_of_another_dataset_are_refused(tmp_path):
    config = make(tmp_path, fitted(tmp_path))
    write_chain(tmp_path / "other", (1.0, 2.0))
    with pytest.raises(UserError, match=r"made from another dataset than .*other"):
        load_labels(config.out, dataset_of(tmp_path, "other"))
    write_chain(tmp_path / "more", (1.0, 2.0, 3.0))
    with pytest.raises(UserError, match=r"has 3 levels but .* was fitted on 2"):
        load_labels(config.out, dataset_of(tmp_path, "more"))
    with pytest.raises(UserError, match="made from another dataset"):
        label(dataclasses.replace(config, out=tmp_path / "x", dataset=tmp_path / "other"))
    with pytest.raises(UserError, match=r"has 3 levels but .* was fitted on 2"):
        label(dataclasses.replace(config, out=tmp_path / "x", dataset=tmp_path / "more"))
    with pytest.raises(UserError, match="not a fit"):
        label(dataclasses.replace(config, out=tmp_path / "x", gvf=tmp_path / "data"))


def test_a_moved_dataset_is_found_by_its_content(tmp_path):
    gvf = fitted(tmp_path)
    (tmp_path / "data").rename(tmp_path / "moved")
    config = make(tmp_path, gvf, dataset=tmp_path / "moved")
    assert load_labels(config.out, dataset_of(tmp_path, "moved")).n_bins == 5


def test_damage_is_noticed(tmp_path):
    gvf = fitted(tmp_path)
    config = make(tmp_path, gvf)
    np.save(config.out / "label.npy", np.zeros(3, np.int8))
    with pytest.raises(UserError, match=r"label\.npy is damaged"):
        load_labels(config.out, dataset_of(tmp_path))
    for wrong, said in (
        (np.zeros(3, np.int8), r"int8 \(3,\) instead of 80 rows"),
        (np.zeros(80), "float64"),
        (np.full(80, 5, np.int8), "labels outside -1..4"),
    ):
        np.save(config.out / "label.npy", wrong)
        manifests.change(config.out)
        with pytest.raises(UserError, match=said):
            load_labels(config.out, dataset_of(tmp_path))
    (config.out / "rank.npy").unlink()
    with pytest.raises(UserError, match=r"lacks rank\.npy"):
        load_labels(config.out, dataset_of(tmp_path))
    np.save(gvf / "values.npy", np.zeros(80, np.float32))
    with pytest.raises(UserError, match=r"values\.npy is damaged"):
        make(tmp_path, gvf, "again")


def test_more_bins_than_transitions_is_refused_unless_allowed(tmp_path):
    gvf = fitted(tmp_path, n_episodes=2, levels=(31, 32))
    with pytest.raises(
        UserError, match=r"level 31 has 10 transitions .* fewer than the 11 bins \(and 1 more"
    ):
        make(tmp_path, gvf, n_bins=11)
    assert not (tmp_path / "labels").exists()
    config = make(tmp_path, gvf, n_bins=11, allow_small_levels=True)
    assert (np.load(config.out / "label.npy") == -1).all()
    assert np.isnan(np.load(config.out / "rank.npy")).all()
    make(tmp_path, gvf, "enough", n_bins=10)
    with pytest.raises(UserError, match="--n-bins must be between 2"):
        LabelConfig(gvf, tmp_path / "x", n_bins=1)


def test_an_empty_level_is_refused_unless_allowed(tmp_path):
    gvf = fitted(tmp_path, scales=(1.0, None), fit_options={"allow_small_levels": True})
    with pytest.raises(UserError, match="level 1 has no transitions"):
        make(tmp_path, gvf)
    config = make(tmp_path, gvf, allow_small_levels=True)
    assert (np.load(config.out / "label.npy") >= 0).all()


def test_done_is_skipped_and_other_options_refused(tmp_path):
    config = make(tmp_path, fitted(tmp_path))
    stamp = (config.out / "label.npy").stat().st_mtime_ns
    assert label(config) == config.out
    assert (config.out / "label.npy").stat().st_mtime_ns == stamp
    with pytest.raises(UserError, match="holds labels with --n-bins 5, not 3"):
        label(dataclasses.replace(config, n_bins=3))


def test_report_shows_histogram_stability_and_bins(tmp_path, capsys):
    gvf = fitted(tmp_path)
    same = fitted(tmp_path, "again", fit_options={"seed": 1})
    make(tmp_path, gvf, against=same, suggest_bins=True)
    printed = capsys.readouterr().out
    assert printed.count("█" * 40) == 5
    assert "100.0% equal, Cohen's kappa 1.000" in printed
    assert printed.count("<- suggested") == 1


def test_histogram_bars():
    lines = histogram([4, 2, 0, 1], width=4).splitlines()
    assert [line.split()[2] for line in lines] == ["████", "██", "0.0%", "█"]
    assert lines[0].endswith("57.1%")


# In-batch quantiles


@pytest.mark.parametrize("library", [np.asarray, torch.as_tensor])
def test_batch_labels_by_hand(library):
    values = library(np.array([1.0, 2, 3, 4, 100, 200, 5, 5, np.nan]))
    level = library(np.array([0, 0, 0, 0, 1, 1, 2, 2, 0]))
    # Level 0, K = 2: edges 1, 2, 4; a value on an edge belongs to the upper bin. Level 1: edges
    # 100, 100, 200. Level 2 has one distinct value, and NaN has no label.
    found = batch_labels(values, level, 2)
    assert found.tolist() == [0, 1, 1, 1, 1, 1, -1, -1, -1]
    assert type(found) is type(values)
    both = batch_labels(values.reshape(-1, 1).repeat(2, 1) if library is np.asarray
                        else values.reshape(-1, 1).repeat(1, 2), level, 2)  # fmt: skip
    assert both[:, 1].tolist() == found.tolist()


def test_a_level_with_just_as_many_transitions_as_bins_has_labels(dataset, tmp_path):
    gvf = fit(FitConfig(dataset.path, tmp_path / "gvf", gamma=0.8, diagnose=False))
    n_bins = int(np.bincount(dataset.level).min())
    for more, known in ((0, True), (1, False)):
        options = {"n_bins": n_bins + more, "allow_small_levels": True}
        out = label(LabelConfig(gvf, tmp_path / f"labels{more}", **options))
        assert (np.load(out / "label.npy") >= 0).any() == known
