from dataclasses import replace

import pandas as pd
import pytest

from given import given
from gsf.core.errors import UserError
from gsf.evaluation.rows import read_rows
from gsf.evaluation.temperature import pool
from gsf.learn.agent import load_agent, read_temperatures
from gsf.sweep.run import RunConfig, run
from own_code import BASE

SMALL = (
    "train.grad_steps=2",
    "train.batch=16",
    "evaluate.n_seen=0",
    "evaluate.n_validation=6",
    "evaluate.n_unseen=2",
    'evaluate.modes=["sampled"]',
)


def config(home, **options):
    made = {"methods": ("bc", "cql"), "seeds": 1, "report": False, "workers": 1, **options}
    made |= {"preset": "grid", "recordings": ("grid5_looks-best",), "temperature": "pooled"}
    return RunConfig(out=home / "out", options=given(*SMALL), **made)


def drawn_at(rows):
    return set(rows[(rows["split"] == "unseen") & (rows["mode"] == "sampled")]["temperature"])


def test_all_methods_play_at_the_temperature_that_is_best_in_their_mean(tmp_path):
    asked = config(tmp_path)
    home = run(asked) / "grid5_looks"
    runs = [home / method / "seed0" for method in ("bc", "cql")]
    rows = pd.concat([read_rows(path / "returns.csv") for path in runs])
    best = float(next(iter(pool(rows))))
    assert drawn_at(rows) == {best}
    assert all(load_agent(path, device="cpu").temperature == best for path in runs)
    assert read_temperatures(home)["2"]["temperature"] == best
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*.csv")}
    run(asked)  # the same command again does nothing
    assert before == {path: path.stat().st_mtime_ns for path in home.rglob("*.csv")}
    run(replace(asked, methods=("bc", "top_bc")))  # later methods play at it, too
    assert drawn_at(read_rows(home / "top_bc" / "seed0" / "returns.csv")) == {best}
    with pytest.raises(UserError, match="one temperature for all methods"):
        run(replace(asked, temperature="own"))


def test_no_test_level_is_played_before_all_runs_have_played_those_that_choose(tmp_path):
    own = tmp_path / "fails.py"
    own.write_text(BASE.replace("return self.config.weight * loss, info", "raise ValueError"))
    with pytest.raises(UserError, match="1 of 2 runs failed"):
        run(config(tmp_path, methods=("bc", f"{own}:Imitate"), seeds=1))
    home = tmp_path / "out" / "grid5_looks"
    assert set(read_rows(home / "bc" / "seed0" / "returns.csv")["split"]) == {"validation"}
    assert not (home / "temperature.json").exists()


def test_what_cannot_be_pooled_is_refused(tmp_path):
    with pytest.raises(UserError, match="not for --shard or --cluster"):
        config(tmp_path, shard="1/2")
    nothing = given(*SMALL, "evaluate.n_validation=0")
    with pytest.raises(UserError, match="validation levels"):
        run(replace(config(tmp_path), options=nothing))
    assert not (tmp_path / "out").exists()
