"""Shards of a sweep, in one directory or in several that are brought together."""

import shutil
from dataclasses import replace

import pytest

from given import given
from gsf.core.errors import UserError
from gsf.sweep.merge import merge
from gsf.sweep.run import RunConfig, run
from recordings import save_short_episodes


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """A sweep of three runs on one machine, and the same in two shards."""
    home = tmp_path_factory.mktemp("shards")
    whole = RunConfig(
        out=home / "whole",
        preset="smoke",
        methods=("bc", "gsf-reward", "curl"),
        recordings=(save_short_episodes(home),),
        options=given(
            "train.grad_steps=2",
            "train.encoder=patches",
            "train.batch=16",
            "evaluate.n_seen=2",
            "evaluate.n_validation=0",
            'evaluate.modes=["greedy"]',
            "evaluate.n_unseen=2",
            "materialise.transitions=3000",
        ),
        report=False,
        workers=1,
    )
    run(whole)
    for number in (1, 2):
        run(replace(whole, out=home / f"part{number}", shard=f"{number}/2"))
    return home, whole


def rows(out):
    return {path.relative_to(out): path.read_bytes() for path in out.rglob("returns.csv")}


def runs(out):
    return sorted(path.parent.parent.name for path in out.rglob("checkpoint.pt"))


def test_shards_share_the_runs_and_merged_they_are_the_sweep(sweep, capsys):
    home, whole = sweep
    assert runs(home / "part1") == ["bc", "curl"]
    assert runs(home / "part2") == ["gsf-reward"]
    sum_ = replace(whole, out=home / "sum", merge=(home / "part1", home / "part2"))
    capsys.readouterr()
    run(sum_)
    assert rows(home / "sum") == rows(whole.out)
    assert len(rows(whole.out)) == 4
    shown = capsys.readouterr().out
    assert all(method in shown for method in whole.methods)
    assert (home / "sum/starpilot/dataset/manifest.json").is_file()
    before = {path: path.stat().st_mtime_ns for path in (home / "sum").rglob("*.pt")}
    run(sum_)
    run(replace(whole, out=home / "sum"))  # nothing is left to do
    assert {path: path.stat().st_mtime_ns for path in (home / "sum").rglob("*.pt")} == before


def test_seeds_of_another_sweep_are_added_to_it_and_reported_with_it(sweep):
    home, whole = sweep
    out = home / "both"
    few = replace(whole, methods=("bc",), report=True)
    run(replace(few, out=home / "first"))
    run(replace(few, out=home / "second", first_seed=1))
    alone = (home / "second/report/report.html").read_text()
    assert "runs have no results" not in alone
    run(replace(few, out=out, merge=(home / "first", home / "second"), seeds=2))
    assert sorted(x.name for x in (out / "starpilot/bc").iterdir()) == ["seed0", "seed1"]
    assert "2 seeds per method" in (out / "report/report.html").read_text()


def test_shards_may_share_a_directory(sweep):
    home, whole = sweep
    for number in (1, 2):
        run(replace(whole, out=home / "shared", shard=f"{number}/2"))
    assert rows(home / "shared") == rows(whole.out)


def test_a_run_that_is_whole_replaces_one_in_the_making_and_others_are_refused(sweep, tmp_path):
    home, whole = sweep
    out = tmp_path / "out"
    shutil.copytree(home / "part1", out)
    (out / "starpilot/bc/seed0/DONE").unlink()
    (out / "starpilot/bc/seed0/checkpoint.pt").write_text("half")
    merge([home / "part1"], out)
    assert rows(out) == rows(home / "part1")
    assert (out / "starpilot/bc/seed0/DONE").is_file()
    other = replace(
        whole,
        out=tmp_path / "other",
        methods=("bc",),
        options=whole.options | given("train.lr=1e-4"),
    )
    run(other)
    with pytest.raises(UserError, match="are not of one sweep: their options differ"):
        merge([tmp_path / "other"], out)
    with pytest.raises(UserError, match="no such directory"):
        merge([tmp_path / "nowhere"], out)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no results in"):
        merge([tmp_path / "empty"], out)


@pytest.mark.parametrize("shard", ["0/2", "3/2", "2", "a/b", "1/0", "-1/2"])
def test_a_shard_that_there_is_not_is_refused(shard):
    with pytest.raises(UserError, match="is not I/N with I from 1 to N"):
        RunConfig(shard=shard)


def test_what_does_not_go_together_is_refused():
    with pytest.raises(UserError, match="tune without --shard"):
        RunConfig(shard="1/2", tune=1)
    with pytest.raises(UserError, match="--storage is for --cluster"):
        RunConfig(storage="s3://bucket")
