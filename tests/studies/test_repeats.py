"""How often levels repeat each other: shares by hand, and of two games as they are."""

from gsf.core.sealed import open_table
from gsf.evaluation.splits import Play
from gsf.studies.options import LevelsConfig
from gsf.studies.repeats import levels, repeats, shares


def test_shares_by_hand():
    known = [Play("a", "1"), Play("b", "2"), Play("c", "3"), Play("d", "4"), Play("d", "4")]
    unseen = [Play("a", "5"), Play("b", "2"), Play("e", "6"), Play("f", "7"), Play("g", "8")]
    # a, b and d are the first images of two levels each; b's two levels and d's go on alike.
    found = shares(known, unseen)
    assert found == {"first_frames": 6 / 10, "alike": 4 / 10, "left_out": 1 / 5}


def test_a_level_that_plays_like_a_training_level_is_counted(tmp_path):
    levels(LevelsConfig(("maze",), n=30, out=tmp_path / "levels.csv"))
    header, row = open_table(tmp_path, (tmp_path / "levels.csv").read_bytes()).decode().split()[:2]
    found = dict(zip(header.split(","), row.split(","), strict=True))
    assert found["game"] == "maze"
    assert found["unseen"] == "30"
    expected = repeats("maze", 30)
    assert expected["left_out"] == float(found["left_out"]) > 0
    assert expected["alike"] <= expected["first_frames"]
