from pathlib import Path

import pandas as pd
import pytest

import manifests
from gsf.core.errors import UserError
from gsf.evaluation.rows import COLUMNS, check_rows, read_returns
from gsf.reporting.gather import gather, missing_runs
from synthetic import evaluation_rows, table_rows

SMALL = {"games": ["coinrun"], "n_levels": 3, "splits": ["unseen"], "modes": ["greedy"]}


def make_run(
    path: Path, game="coinrun", method="cql", seed=0, rows=None, done=True, config=None
) -> Path:
    facts = {"game": game, "method": method, "seed": seed}
    config = config or {}
    decisive = {name: x for name, x in config.items() if name != "out"}
    run = manifests.identity("run", config, options=decisive)
    manifests.write_as(run, path, in_place=True, **facts)
    if rows is None:
        rows = table_rows({(game, method): [[1.0, 2.0]]}).assign(seed=seed)
    rows.to_csv(path / "returns.csv", index=False)
    if done:
        run.finish(path)
    return path


def test_gather_reads_a_sweep_and_its_references(tmp_path: Path):
    for seed in range(2):
        make_run(tmp_path / "coinrun" / "cql" / f"seed{seed}", seed=seed)
    references = table_rows({("coinrun", m): [[0.0, 5.0]] for m in ("random", "behaviour")})
    references.to_csv(tmp_path / "coinrun" / "returns.csv", index=False)
    manifests.write("dataset", tmp_path / "coinrun" / "dataset")
    rows, problems = gather([tmp_path])
    assert problems == []
    assert list(rows.columns) == COLUMNS
    counts = rows.groupby(["method", "seed"], observed=True).size().to_dict()
    assert counts == {("behaviour", 0): 2, ("cql", 0): 2, ("cql", 1): 2, ("random", 0): 2}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda run: (run / "manifest.json").unlink(), "half-written"),
        (lambda run: (run / "manifest.json").write_text('{"kind"'), "damaged"),
        (lambda run: (run / "DONE").write_text("{}"), "DONE is damaged"),
        (lambda run: manifests.change(run, levels=None), "lacks 'levels'"),
        (lambda run: manifests.change(run, seed="first"), "'seed' is 'first', not a whole number"),
        (lambda run: (run / "returns.csv").unlink(), "has not been evaluated"),
        (lambda run: (run / "returns.csv").write_text(""), "not a readable CSV"),
        (lambda run: (run / "returns.csv").write_text("game,method\nmaze,cql\n"), "no column"),
        (lambda run: make_run(run, rows=table_rows({("maze", "cql"): [[1.0]]})), "another game"),
    ],
)
def test_a_broken_run_is_named_and_the_rest_is_read(tmp_path: Path, damage, said):
    good, bad = make_run(tmp_path / "good", seed=0), make_run(tmp_path / "bad", seed=1)
    (bad / "metrics.jsonl").write_text("")
    damage(bad)
    rows, problems = gather([tmp_path])
    assert len(problems) == 1
    assert str(bad) in problems[0]
    assert said in problems[0]
    assert set(rows["seed"]) == {0}
    assert len(gather([good])[0]) == len(rows)


def test_unfinished_repeated_and_absent_runs_are_named(tmp_path: Path):
    make_run(tmp_path / "a", done=False)
    make_run(tmp_path / "b")
    rows, problems = gather([tmp_path, tmp_path / "nowhere"])
    assert len(rows) == 2
    assert "still training: used up to step 10" in problems[0]
    assert "b repeats run coinrun/cql/seed0 of" in problems[1]
    assert "nowhere: no run found" in problems[2]


def test_runs_with_other_settings_are_not_seeds_of_one_method(tmp_path: Path):
    make_run(tmp_path / "a", config={"cql_alpha": 1.0, "seed": 0, "out": "a", "grad_steps": 10})
    make_run(tmp_path / "b", seed=1, config={"cql_alpha": 4.0, "seed": 1, "out": "b"})
    make_run(tmp_path / "c", seed=2, config={"cql_alpha": 1.0, "seed": 2, "out": "c"})
    make_run(tmp_path / "d", "maze", config={"cql_alpha": 4.0, "seed": 0})  # tuned by game
    rows, problems = gather([tmp_path])
    assert set(zip(rows["game"], rows["seed"], strict=True)) == {
        ("coinrun", 0),
        ("coinrun", 2),
        ("maze", 0),
    }
    assert len(problems) == 1
    assert "b has cql_alpha=4.0 where" in problems[0]
    assert "a has 1.0: not a seed of the same cql" in problems[0]


def test_nothing_readable_is_an_empty_frame(tmp_path: Path):
    rows, problems = gather([tmp_path])
    assert list(rows.columns) == COLUMNS
    assert len(rows) == 0
    assert len(problems) == 1


def test_a_csv_file_can_be_given_itself(tmp_path: Path):
    evaluation_rows(**SMALL, methods=["cql"], n_seeds=2).to_csv(tmp_path / "all.csv", index=False)
    rows, problems = gather([tmp_path / "all.csv"])
    assert (len(rows), problems) == (6, [])
    pd.testing.assert_frame_equal(rows, read_returns(tmp_path / "all.csv"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"return": float("nan")}, "column 'return' is not a finite number in row 1"),
        ({"return": float("inf")}, "column 'return' is not a finite number"),
        ({"seed": 0.5}, "seed 0.5 is no count"),
        ({"length": -3}, "length -3 is no count"),
        ({"seed": "x"}, "column 'seed' is not a finite number"),
        ({"split": "train"}, "split 'train' is not one of seen, validation, unseen"),
        ({"mode": "softmax"}, "mode 'softmax' is not one of"),
        ({"game": None}, "a row has no game"),
        ({"level": 0}, "one episode per level and run"),
        ({"level": "x"}, "column 'level' is not a finite number"),
        ({"completed": None}, "completed is neither True nor False"),
    ],
)
def test_bad_rows_are_refused_with_one_sentence(change, said):
    rows = table_rows({("coinrun", "cql"): [[1.0, 2.0]]})
    with pytest.raises(UserError, match=said):
        check_rows(rows.astype(object).assign(**change), "here")
    with pytest.raises(UserError, match="no rows"):
        check_rows(rows[:0], "here")


def test_missing_runs_of_a_grid_are_named():
    rows = table_rows({("coinrun", "cql"): [[1.0], [1.0]], ("coinrun", "bc"): [[1.0]]})
    assert missing_runs(rows) == ["coinrun/bc/seed1"]
    assert missing_runs(rows, games=["maze"], methods=["bc"], seeds=[0]) == ["maze/bc/seed0"]
