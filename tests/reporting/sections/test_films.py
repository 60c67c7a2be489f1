from pathlib import Path

import players
from gsf.core.results import read_stage
from gsf.evaluation.episodes import evaluate_agent
from gsf.learn.agent import load_agent
from gsf.reporting.sections import films


def test_a_film_is_what_evaluation_plays(tmp_path: Path):
    dataset = players.write_dataset(tmp_path / "dataset", "fruitbot")
    run = read_stage(players.train_run(dataset, tmp_path / "run"))
    player = films.film(
        "fruitbot", run, None, [1_000_001, 1_000_000], "greedy", max_steps=40, limit=30_000
    )
    assert [(f.method, f.level) for f in player] == [("cql", 1_000_001), ("cql", 1_000_000)]
    whole = films.film("fruitbot", run, None, [1_000_000], "greedy", max_steps=999, limit=9_000)[0]
    rows = evaluate_agent(load_agent(run.path), "fruitbot", [1_000_000], seed=3, n_envs=1)
    row = rows.iloc[0]
    how = "completed" if row["completed"] else "ended"
    assert whole.result == f"return {row['return']:g}, {how} after {row['length']} steps"
    assert whole.n_frames == 8  # as few bytes as that are for
    assert films.pick(100, 12) == [0, 9, 18, 27, 36, 45, 54, 63, 72, 81, 90, 99]
    assert films.pick(3, 12) == [0, 1, 2]
