"""What is to be run is known, and wrong names are refused, before anything is computed."""

import pytest
import torch

from given import given
from gsf.core.errors import UserError
from gsf.suites.procgen import GAMES
from gsf.sweep import sources
from gsf.sweep.plan import resolve
from gsf.sweep.run import RunConfig, run


def test_jobs_are_games_by_methods_by_seeds(tmp_path):
    config = RunConfig(
        tmp_path,
        "smoke",
        ("coinrun", "jumper"),
        ("bc", "gsf-reward"),
        seeds=2,
        options=given("train.lr=1"),
    )
    found = resolve(config)
    assert {name: x.recording for name, x in found.sources.items()} == {
        "coinrun": "coinrun",
        "jumper": "jumper",
    }
    jobs = found.jobs({("jumper", "bc"): ("train.lr=2", "train.batch=3")})
    assert [str(job) for job in jobs] == [
        f"{game} {method} seed{seed}"
        for seed in range(2)
        for game in ("coinrun", "jumper")
        for method in ("bc", "gsf-reward")
    ]
    assert [job.out for job in jobs[:2]] == [
        tmp_path / "coinrun/bc/seed0",
        tmp_path / "coinrun/gsf-reward/seed0",
    ]
    assert jobs[1].labelling.fitting.config.out == tmp_path / "coinrun/gvf-reward-mc"
    tuned = jobs[2].config.stage("train", dataset=tmp_path, out=tmp_path)
    assert (tuned.lr, tuned.batch) == (1, 3)  # what the user says overrules what tuning found
    assert jobs[0].config.options == {"train.lr": 1}


def test_seeds_of_an_earlier_comparison_are_not_run_again(tmp_path):
    config = RunConfig(tmp_path, "smoke", ("coinrun",), ("bc", "cql"), seeds=2, first_seed=3)
    assert [job.seed for job in resolve(config).jobs({})] == [3, 3, 4, 4]


def test_all_games_are_those_that_can_be_recorded(monkeypatch):
    assert sources._all_games() == tuple(GAMES)
    assert set(resolve(RunConfig(games=("all",))).sources) == set(GAMES)
    monkeypatch.setattr(sources, "recorded_policies", lambda: ["coinrun"])
    with pytest.raises(UserError, match="no recording of bigfish is shipped; make one with"):
        resolve(RunConfig(games=("all",)))


def test_a_recording_that_is_too_short_is_named_at_once():
    with pytest.raises(UserError, match=r"coinrun has 500,032 transitions, not the 500,033 asked"):
        resolve(RunConfig(games=("coinrun",), options=given("materialise.transitions=500033")))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"games": ("pong",)}, "unknown game 'pong'"),
        ({"seeds": 2, "first_seed": 999}, "go past seed 999, the last one"),
        ({"methods": ("magic",)}, "unknown method 'magic'"),
        ({"recordings": ("gone.gsfrec",)}, "no recording at gone.gsfrec"),
        ({"options": given("train.encoder=magic")}, "magic"),
        ({"options": given("fit.estimator=magic")}, "magic"),
        ({"options": given("label.n_bins=many")}, "many"),
        ({"options": given("magic.tau=1")}, "magic"),
        ({"options": given("trian.lr=1")}, "did you mean train?"),
        ({"options": given("train.lrr=1")}, "train has no option lrr; did you mean lr?"),
        ({"options": given("train.lr=1e30")}, "--lr must be above 0 and at most 10, got 1e"),
        ({"options": given("fit.gamma=NaN")}, "--gamma must be between 0 and 1, got nan"),
        ({"options": given("cql.alpha=-1")}, "--cql.alpha must be between 0"),
        ({"options": given("iql.beta=1")}, "none of the methods of this run uses iql"),
        ({"options": given("train.device=cuda")}, "there is no CUDA device here"),
        ({"methods": ()}, "--methods needs at least one value"),
    ],
)
def test_wrong_names_are_refused_before_anything_is_computed(
    tmp_path, monkeypatch, options, message
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=message):
        run(RunConfig(out=tmp_path / "out", preset="smoke", **options))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("word", ["train.seed=0", "train.out=x", "train.method=bc", "fit.seed=1"])
def test_what_the_sweep_decides_cannot_be_set(word: str):
    with pytest.raises(UserError, match="gsf run itself decides"):
        RunConfig(options=given(word))
