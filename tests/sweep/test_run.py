"""Everything from one command, on real Procgen, at the smallest size."""

import json

import pandas as pd
import pytest

from given import given
from gsf.core.errors import UserError
from gsf.learn.methods import all_methods
from gsf.nets.acting import TEMPERATURES, mode_at
from gsf.sweep.run import RunConfig, run
from gsf.sweep.summary import print_summary
from own_code import BASE, CUMULANT, ENCODER, LOSS
from recordings import save_short_episodes
from synthetic import table_rows

SMALL = (
    "train.grad_steps=2",
    "train.encoder=patches",
    "train.batch=16",
    "evaluate.n_seen=2",
    "evaluate.n_validation=0",
    "evaluate.n_unseen=2",
    "gsf.tau=0.25",
)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Every method once, on a game whose episodes are short."""
    home = tmp_path_factory.mktemp("sweep")
    config = RunConfig(
        out=home / "out",
        preset="smoke",
        methods=("all",),
        recordings=(save_short_episodes(home),),
        options=given(*SMALL, "materialise.transitions=3000"),
        report=False,
    )
    return config, run(config)


def test_every_method_has_a_row_for_each_level_and_mode(swept):
    _, out = swept
    assert set(all_methods()) >= {"bc", "cql", "gsf-reward", "gsf-successor", "gsf-action"}
    for method in [*all_methods(), "random"]:
        directory = out / "starpilot" / method
        rows = pd.read_csv(directory / ("" if method == "random" else "seed0") / "returns.csv")
        assert set(rows["method"]) == {method}
        n_modes = 2 if method == "random" else 3  # it has no best action
        assert len(rows) == 2 * n_modes * 2  # splits, levels
        assert set(rows["split"]) == {"seen", "unseen"}


def test_the_summary_says_what_its_intervals_are_over(tmp_path, capsys):
    """One seed cannot be drawn again; and random play has no best action."""
    methods, modes = ("random", "cql"), ("greedy", "sampled")
    for n_seeds, over in ((1, "levels"), (2, "seeds and levels")):
        runs = {("maze", method): [[1.0, 2.0]] * n_seeds for method in methods}
        path = tmp_path / f"{n_seeds}.csv"
        pd.concat([table_rows(runs, mode=mode) for mode in modes]).to_csv(path, index=False)
        print_summary(path)
        sampled, greedy = capsys.readouterr().out.split("mean return")[1:]
        assert f"95 % intervals over {over}" in " ".join(sampled.split())
        assert "random" in sampled
        assert "random" not in greedy
        assert "cql" in greedy


def test_the_settings_reach_the_stages(swept):
    _, out = swept
    config = json.loads((out / "starpilot/gsf-reward/seed0/manifest.json").read_text())["config"]
    assert (config["grad_steps"], config["batch"], config["encoder"]) == (2, 16, "patches")
    assert config["parts"]["gsf"]["tau"] == 0.25


def test_the_same_command_again_does_nothing_and_says_the_same(swept, capsys):
    config, out = swept
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.pt")}
    files = {path: path.read_bytes() for path in out.rglob("returns.csv")}
    capsys.readouterr()
    run(config)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.pt")} == before
    assert {path: path.read_bytes() for path in out.rglob("returns.csv")} == files
    shown = capsys.readouterr().out
    assert "unseen levels" in shown
    assert all(method in shown for method in all_methods())


def test_code_of_ones_own_is_swept_like_any_other(swept, tmp_path, monkeypatch, capsys):
    config, _ = swept
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(BASE + LOSS + ENCODER + CUMULANT)
    own = RunConfig(
        out=tmp_path / "out",
        preset="smoke",
        methods=("bc", "mine.py:Imitate", "mine.py:Pull", "gsf-mine.py:danger"),
        recordings=config.recordings,
        options=given(
            *SMALL,
            "materialise.transitions=3000",
            "train.on=mine.py:Imitate",
            "train.encoder=mine.py:shallow",
            "pull.power=3",
            "imitate.weight=2",
        ),
        workers=2,
        report=False,
    )
    run(own)
    shown = capsys.readouterr().out
    for method in ("bc", "imitate", "pull", "gsf-danger"):
        manifest = json.loads(
            (tmp_path / f"out/starpilot/{method}/seed0/manifest.json").read_text()
        )
        assert manifest["method"] == method
        base = {"bc": {"teacher": None}} if method == "bc" else {"imitate": {"weight": 2.0}}
        assert base.items() <= manifest["config"]["parts"].items()
        assert ("imitate" in manifest["inputs"]) == (method != "bc")
        assert "encoder" in manifest["inputs"]
        assert method in shown
    assert manifest["config"]["parts"]["gsf"]["tau"] == 0.25
    assert (tmp_path / "out/starpilot/labels-danger-mc").is_dir()
    with pytest.raises(UserError, match="pull has no option strength; there are weight, power"):
        RunConfig(methods=own.methods, options=given("pull.strength=1"))
    with pytest.raises(UserError, match=r"choose an owner among .*train.*cql.*gsf"):
        RunConfig(options=given("pull.power=1"))


def test_a_failed_run_is_named_and_the_others_go_on(swept, tmp_path, capsys):
    config, _ = swept
    broken = RunConfig(
        out=tmp_path,
        preset="smoke",
        methods=("gsf-reward", "bc"),
        recordings=config.recordings,
        options=given(
            *SMALL,
            "materialise.transitions=3000",
            "label.n_bins=1000",
            "label.allow_small_levels=false",
        ),
        report=False,
    )
    with pytest.raises(UserError, match="1 of 2 runs failed"):
        run(broken)
    assert (tmp_path / "starpilot/bc/seed0/returns.csv").is_file()
    assert "failed: starpilot gsf-reward seed0" in capsys.readouterr().err


def test_a_game_without_a_recording_says_what_to_do(swept):
    config, _ = swept
    with pytest.raises(UserError, match="gsf collect --game maze"):
        run(RunConfig(games=("maze",), recordings=config.recordings))


def test_tuning_in_two_processes_reports_other_seeds_with_the_chosen_setting(
    swept, tmp_path, capsys
):
    config, _ = swept
    small = [word for word in SMALL if "n_validation" not in word]
    tuned = RunConfig(
        out=tmp_path,
        preset="smoke",
        methods=("bc", "gsf-successor"),  # whose labels differ by seed: four trials want the same
        recordings=config.recordings,
        options=given(
            *small,
            "materialise.transitions=3000",
            "evaluate.n_validation=2",
            "evaluate.all=true",
            "train.lr=1e-3",
        ),
        tune=1,
        workers=2,
        report=False,
    )
    run(tuned)
    trials = pd.read_csv(tmp_path / "tuning/trials.csv")
    assert trials.groupby("method")["trial"].count().to_dict() == {"bc": 1, "gsf-successor": 4}
    assert trials["setting"].fillna("").tolist()[0] == ""  # it was given
    assert trials.groupby("method")["chosen"].sum().tolist() == [1, 1]
    trial = pd.read_csv(tmp_path / "tuning/starpilot/gsf-successor/trial2/returns.csv")
    assert set(trial["split"]) == {"validation"}
    assert set(trial["seed"]) == {1000}
    assert set(trial["mode"]) == {"greedy", "sampled", *map(mode_at, TEMPERATURES)}
    best = trials.query("method == 'gsf-successor'")["sampled"]
    assert best[trials["chosen"]].tolist() == [best.max()]
    manifest = json.loads((tmp_path / "starpilot/gsf-successor/seed0/manifest.json").read_text())
    made = manifest["config"]
    chosen = trials.set_index("method").query("chosen").loc["gsf-successor", "setting"]
    alpha, weight = made["parts"]["cql"]["alpha"], made["parts"]["gsf"]["weight"]
    assert chosen == f"cql.alpha={alpha:g} gsf.weight={weight:g}"
    assert (made["grad_steps"], made["lr"]) == (2, 1e-3)
    assert "bc, 2 steps" in (tmp_path / "starpilot/bc/seed0.log").read_text()
    shown = capsys.readouterr().out
    assert "trial" not in shown  # tuning runs are in no table
    assert shown.count("gsf-successor") == 2


def test_two_recordings_of_one_game_and_tuning_a_released_setting_are_refused(swept, tmp_path):
    config, _ = swept
    with pytest.raises(UserError, match=r"are both of starpilot; .*gsf data join"):
        run(RunConfig(out=tmp_path, recordings=config.recordings * 2))
    with pytest.raises(UserError, match=r"would undo --train\.released"):
        run(RunConfig(out=tmp_path, preset="smoke", tune=1, options=given("train.released=true")))


def test_a_negative_number_of_workers_or_steps_is_refused():
    for wrong in ({"workers": 0}, {"tune": -1}):
        with pytest.raises(UserError, match="must be between 1 and"):
            RunConfig(**wrong)


def test_tuning_without_validation_levels_is_refused_before_anything_is_trained(swept, tmp_path):
    config, _ = swept
    with pytest.raises(UserError, match="--tune needs validation levels"):
        run(
            RunConfig(
                out=tmp_path,
                preset="laptop",
                recordings=config.recordings,
                tune=1,
                options=given("materialise.transitions=3000", "evaluate.n_validation=0"),
            )
        )
    assert not list(tmp_path.iterdir())
