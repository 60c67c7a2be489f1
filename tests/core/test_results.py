from pathlib import Path

import manifests
from gsf.core.results import Results, find_stages, read_stage


def kinds(path: Path) -> dict[str, str]:
    return {str(s.path.relative_to(path.resolve())): s.kind for s in find_stages([path])}


def test_every_stage_is_found_whole_or_not_and_none_is_entered(tmp_path: Path):
    manifests.write("run", tmp_path / "run", in_place=True)
    manifests.write("report", tmp_path / "report")
    manifests.write("run", tmp_path / "report" / "copy")
    manifests.write("run", tmp_path / ".partial")
    manifests.write("dataset", tmp_path / "maze" / "dataset")
    manifests.write("run", tmp_path / "maze" / "cql")
    (tmp_path / "maze" / "returns.csv").write_text("of random play")
    for name in ("half", "damaged", "none"):
        (tmp_path / name).mkdir()
    (tmp_path / "half" / "metrics.jsonl").write_text("")
    (tmp_path / "half" / "returns.csv").write_text("")
    (tmp_path / "damaged" / "manifest.json").write_text('{"kind"')
    assert kinds(tmp_path) == {
        "damaged": "",
        "half": "",
        "maze": "rows",
        "maze/cql": "run",
        "maze/dataset": "dataset",
        "report": "report",
        "run": "run",
    }
    twice = list(find_stages([tmp_path / "maze", tmp_path / "maze" / "cql"]))
    assert len(twice) == 3


def test_what_a_damaged_manifest_says_is_nothing(tmp_path: Path):
    for text in ("[]", "5", "", '{"kind": "run", "config": 3, "inputs": null}'):
        (tmp_path / "manifest.json").write_text(text)
        stage = read_stage(tmp_path)
        assert (stage.config, stage.inputs, stage.digest) == ({}, {}, "")


def test_data_that_runs_name_is_found_elsewhere(tmp_path: Path):
    dataset = manifests.write("dataset", tmp_path / "data")
    inputs = {"dataset": dataset["digest"]}
    for name in ("reward", "reward-mc"):
        manifests.write("labels", tmp_path / "labels" / name, inputs=inputs)
    places = {"dataset": str(tmp_path / "data"), "labels": str(tmp_path / "nowhere")}
    manifests.write("run", tmp_path / "runs" / "cql", places, inputs)
    found = Results([tmp_path / "runs", tmp_path / "labels"])
    (run,) = found.of_kind("run")
    assert found.dataset_of(run) == read_stage(tmp_path / "data")
    assert found.game_of(run) == "maze"
    assert found.labels_of(found.dataset_of(run), "reward").path.name == "reward-mc"
    assert found.labels_of(found.dataset_of(run), "action") is None
    manifests.change(tmp_path / "data", digest="other")
    assert Results([tmp_path / "runs"]).dataset_of(run) is None


def test_a_path_in_a_manifest_leads_nowhere_but_to_what_was_used(tmp_path: Path):
    manifests.write("dataset", tmp_path / "another")
    for name, place in enumerate(["a\0b", "\ud800", "x" * 300, str(tmp_path / "another")]):
        manifests.write("run", tmp_path / "runs" / str(name), {"dataset": place, "labels": place})
    found = Results([tmp_path / "runs"])
    assert len(found.of_kind("run")) == 4
    assert not found.of_kind("dataset", "labels")
