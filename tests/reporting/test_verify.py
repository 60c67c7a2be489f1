"""gsf verify on what the stages make: right as it is, and everything that is wrong is named."""

import shutil
from pathlib import Path

import pytest

import reports
from gsf.core.errors import FoundWrongError, UserError
from gsf.core.files import digest_file
from gsf.evaluation.rows import IDENTITY, write_rows
from gsf.reporting.verify import VerifyConfig, verify


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sweep = reports.make_sweep(tmp_path_factory.mktemp("verify") / "results", n_seeds=1)
    rows = reports.returns("bc", 0).assign(**{IDENTITY: "someone"})
    write_rows(sweep / "corridor" / "bc" / "seed0" / "returns.csv", rows)
    return sweep


def said(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What is wrong at a path."""
    with pytest.raises(FoundWrongError):
        verify(VerifyConfig(str(path)))
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("wrong")]


def flip(path: Path, at: int = -40) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def test_all_is_well_and_nothing_is_changed(results: Path, capsys):
    before = {path: digest_file(path) for path in results.rglob("*") if path.is_file()}
    verify(VerifyConfig(str(results)))
    assert "checked, all as they were written" in capsys.readouterr().out
    assert before == {path: digest_file(path) for path in results.rglob("*") if path.is_file()}
    verify(VerifyConfig(str(results / "corridor" / "bc" / "seed0" / "checkpoint.pt")))
    verify(VerifyConfig("coinrun"))  # shipped


@pytest.mark.parametrize(
    "name",
    [
        "dataset/obs.npy",
        "dataset/reward.npy",
        "dataset/manifest.json",
        "labels-reward-mc/label.npy",
        "cql/seed0/checkpoint.pt",
        "cql/seed0/checkpoints/step_2.pt",
        "cql/seed0/metrics.jsonl",
        "cql/seed0/DONE",
        "bc/seed0/returns.csv",
    ],
)
def test_what_is_damaged_is_named(results: Path, tmp_path: Path, capsys, name: str):
    copy = shutil.copytree(results, tmp_path / "copy")
    flip(copy / "corridor" / name)
    wrong = said(copy, capsys)
    assert len(wrong) == 1
    assert f"corridor/{name} is damaged" in wrong[0]
    assert said((copy / "corridor" / name).parent, capsys) == wrong


def test_everything_wrong_is_named_and_what_a_kill_left(results: Path, tmp_path: Path, capsys):
    copy = shutil.copytree(results, tmp_path / "copy") / "corridor"
    (copy / "dataset" / "level.npy").unlink()
    (copy / "cql" / "seed0" / ".checkpoint.pt.partial").touch()
    flip(copy / "bc" / "seed0" / "checkpoint.pt")
    wrong = "\n".join(said(tmp_path / "copy", capsys))
    for words in ("lacks level.npy", ".checkpoint.pt.partial was left", "checkpoint.pt is damaged"):
        assert words in wrong


def test_nothing_of_gsf_is_said(tmp_path: Path):
    with pytest.raises(UserError, match=r"nothing in .* that gsf has made"):
        verify(VerifyConfig(str(tmp_path)))


def test_compressed_rows_are_checked(tmp_path: Path, capsys):
    rows = reports.returns("bc", 0).assign(**{IDENTITY: "someone"})
    write_rows(tmp_path / "rows.csv.gz", rows)
    verify(VerifyConfig(str(tmp_path)))
    flip(tmp_path / "rows.csv.gz")
    assert "rows.csv.gz is damaged" in said(tmp_path, capsys)[0]
