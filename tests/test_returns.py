from pathlib import Path

import pandas as pd
import pytest

from gsf.returns import (
    COLUMNS,
    check_rows,
    find_runs,
    gather,
    in_order,
    missing_runs,
    read_returns,
    scores,
)
from gsf.runs import UserError, mark_done, write_manifest
from gsf.stats import bootstrap, gap
from synthetic import evaluation_rows, table_rows

SMALL = {"games": ["coinrun"], "n_levels": 3, "splits": ["test"], "modes": ["greedy"]}


def make_run(
    path: Path, game="coinrun", method="cql", seed=0, rows=None, done=True, config=None
) -> Path:
    facts = {"game": game, "method": method, "seed": seed}
    write_manifest(path, "run", 1, config=config or {}, inputs={}, **facts)
    if rows is None:
        rows = table_rows({(game, method): [[1.0, 2.0]]}).assign(seed=seed)
    rows.to_csv(path / "returns.csv", index=False)
    if done:
        mark_done(path)
    return path


def test_gather_reads_a_sweep_and_its_references(tmp_path: Path):
    for seed in range(2):
        make_run(tmp_path / "coinrun" / "cql" / f"seed{seed}", seed=seed)
    references = table_rows({("coinrun", m): [[0.0, 5.0]] for m in ("random", "behaviour")})
    references.to_csv(tmp_path / "coinrun" / "returns.csv", index=False)
    write_manifest(tmp_path / "coinrun" / "dataset", "dataset", 1, config={}, inputs={})
    rows, problems = gather([tmp_path])
    assert problems == []
    assert list(rows.columns) == COLUMNS
    counts = rows.groupby(["method", "seed"], observed=True).size().to_dict()
    assert counts == {("behaviour", 0): 2, ("cql", 0): 2, ("cql", 1): 2, ("random", 0): 2}


def test_other_stages_are_not_entered(tmp_path: Path):
    run = make_run(tmp_path / "run")
    write_manifest(tmp_path / "report", "report", 1, config={}, inputs={})
    make_run(tmp_path / "report" / "copy")
    make_run(tmp_path / ".partial")
    assert find_runs([tmp_path]) == [run.resolve()]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda run: (run / "manifest.json").unlink(), "half-written"),
        (lambda run: (run / "manifest.json").write_text('{"kind"'), "damaged"),
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
        ({"seed": "x"}, "column 'seed' is not a finite number"),
        ({"split": "train"}, "split 'train' is not one of seen, validation, test"),
        ({"mode": "sampled"}, "mode 'sampled' is not one of"),
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


def test_scores_say_what_they_leave_out():
    full = {("coinrun", "cql"): [[1.0, 2.0], [3.0, 4.0]], ("coinrun", "bc"): [[5.0, 6.0]] * 2}
    rows = table_rows(full)
    assert scores(rows).notes == ()
    missing = scores(rows[(rows["method"] != "bc") | (rows["seed"] != 1)])
    assert missing.notes == ("no test rows with greedy actions: coinrun/bc/seed1.",)
    assert missing.returns["bc"]["coinrun"].tolist() == [[5.0, 6.0]]
    behind = rows.assign(step=rows["step"].where((rows["method"] != "bc") | (rows["seed"] != 1), 5))
    assert scores(behind).notes == ("left out, behind the others: coinrun/bc/seed1.",)
    assert scores(behind).seeds["bc"]["coinrun"] == (0,)
    half = rows[~((rows["method"] == "bc") & (rows["seed"] == 1) & (rows["level"] == 0))]
    assert scores(half).notes == ("left out with 1 of 2 test levels: coinrun/bc/seed1.",)


def test_all_splits_and_modes_are_at_the_same_step():
    early = evaluation_rows(games=["coinrun"], methods=["cql"], n_levels=3, steps=[2000])
    late = evaluation_rows(games=["coinrun"], methods=["cql"], n_levels=3, steps=[5000])
    cut_short = pd.concat([early, late[late["split"] == "seen"]])
    for split, mode in (("seen", "greedy"), ("seen", "softmax"), ("test", "greedy")):
        assert scores(cut_short, split, mode).steps == {"coinrun": 2000}
    assert scores(pd.concat([early, late])).steps == {"coinrun": 5000}
    only_late = pd.concat([early[early["split"] == "seen"], late[late["split"] == "test"]])
    seen, test = (bootstrap(scores(only_late, split), n=10) for split in ("seen", "test"))
    assert (seen.scores.steps, test.scores.steps) == ({"coinrun": 2000}, {"coinrun": 5000})
    assert not len(gap(seen, test))  # nothing in common: no gap


def test_references_have_no_vote_on_levels():
    rows = table_rows({("coinrun", "cql"): [[1.0, 2.0]], ("coinrun", "random"): [[0.0, 1.0, 2.0]]})
    found = scores(rows)
    assert found.returns["cql"]["coinrun"].tolist() == [[1.0, 2.0]]
    assert found.returns["random"]["coinrun"].tolist() == [[0.0, 1.0]]


def test_levels_are_paired_whatever_the_order_of_rows():
    rows = table_rows({("coinrun", "cql"): [[1.0, 2.0, 3.0]], ("coinrun", "bc"): [[4.0, 5.0, 6.0]]})
    shuffled = scores(rows.sample(frac=1, random_state=0))
    assert shuffled.returns["cql"]["coinrun"].tolist() == [[1.0, 2.0, 3.0]]
    assert shuffled.returns["bc"]["coinrun"].tolist() == [[4.0, 5.0, 6.0]]


def test_episodes_are_not_runs():
    rows = table_rows({("coinrun", "cql"): [[1.0, 2.0]]})
    with pytest.raises(UserError, match="more would be counted as runs"):
        scores(pd.concat([rows, rows]))
    matrix = scores(table_rows({("coinrun", "cql"): [[5.0, 10.0], [10.0, 10.0]]})).matrix("cql")
    assert matrix.tolist() == [[0.5], [1.0]]  # [seeds, games], coinrun scores 5-10


def test_aggregates_are_over_the_games_that_all_methods_have():
    one = [[6.0], [7.0]]
    rows = table_rows({("coinrun", "cql"): one, ("maze", "cql"): one, ("coinrun", "pse"): one})
    found = scores(rows)
    assert found.games == ("coinrun",)
    assert "aggregates leave out maze: no run of pse." in found.notes
    apart = scores(
        table_rows({("coinrun", "cql"): one, ("maze", "cql"): one, ("miner", "pse"): one})
    )
    assert apart.games == ("coinrun", "maze")
    assert apart.methods == ["cql"]
    assert "aggregates leave out pse: no run of coinrun, maze." in apart.notes
    ragged = scores(table_rows({("coinrun", "cql"): one, ("maze", "cql"): one[:1]}))
    with pytest.raises(UserError, match="lacks some seeds"):
        ragged.matrix("cql")


def test_references_need_no_seeds_and_no_last_step():
    rows = pd.concat(
        [
            table_rows({("coinrun", "cql"): [[6.0], [7.0]]}),
            table_rows({("coinrun", "random"): [[5.0]]}, step=0, mode="softmax"),
        ]
    )
    found = scores(rows)
    assert found.methods == ["random", "cql"]
    assert found.notes == ("played with softmax actions only: random.",)


def test_imported_data_stays_raw():
    found = scores(table_rows({("my-robot", "cql"): [[100.0, 300.0]]}))
    assert found.unit == "return"
    assert found.matrix("cql").tolist() == [[200.0]]


def test_no_rows_of_a_split_is_an_error():
    with pytest.raises(UserError, match="no validation rows with greedy actions"):
        scores(table_rows({("coinrun", "cql"): [[1.0]]}), "validation")


def test_order_of_methods():
    names = ["gsf-action", "pse", "new", "gsf-reward", "cql", "behaviour", "random", "gsf-mine"]
    ordered = ["random", "behaviour", "cql", "pse", "new", "gsf-reward", "gsf-action", "gsf-mine"]
    assert in_order(names) == ordered
