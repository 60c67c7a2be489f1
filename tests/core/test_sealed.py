"""Checksums of every form: what was written comes back, and any flip is noticed."""

import gzip
import io
import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gsf.core.errors import UserError
from gsf.core.schema import COUNT
from gsf.core.sealed import (
    load_checkpoint,
    open_table,
    read_json,
    read_lines,
    save_checkpoint,
    to_line,
    write_json,
    write_table,
)

FACTS = {"kind": "run", "digits": [1, 2.5, None], "names": {"ä": "\n"}}
TABLE = 'game,return\nmaze,1.0\n"two\nlines",2.0\n'


def flips(data: bytes):
    """Every byte, one bit each; and every cut."""
    for at in range(len(data)):
        yield data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]
        yield data[:at]


def test_json_stays_json_and_no_flip_goes_unnoticed(tmp_path: Path):
    path = tmp_path / "facts.json"
    write_json(path, FACTS)
    assert read_json(path, dict) == FACTS
    assert FACTS.items() <= json.loads(path.read_text()).items()
    for damaged in flips(path.read_bytes()):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="is damaged"):
            read_json(path, dict)


def test_a_checkpoint_is_torchs_own_and_no_flip_goes_unnoticed(tmp_path: Path):
    path = tmp_path / "checkpoint.pt"
    state = {"step": 3, "weight": torch.arange(4.0)}
    save_checkpoint(path, state)
    assert torch.load(path, weights_only=True)["step"] == 3
    assert torch.equal(load_checkpoint(path, {"step": COUNT})["weight"], state["weight"])
    for damaged in list(flips(path.read_bytes()))[::7]:
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="is damaged"):
            load_checkpoint(path)


@pytest.mark.parametrize("state", [{"step": "three"}, {"other": 1}, {"step": -1}])
def test_a_whole_checkpoint_of_something_else_is_named(tmp_path: Path, state):
    save_checkpoint(tmp_path / "a.pt", state)
    with pytest.raises(UserError, match=r"a\.pt is whole, but .*step"):
        load_checkpoint(tmp_path / "a.pt", {"step": COUNT})


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_lines_survive_a_kill_and_notice_a_flip(tmp_path_factory, at: int, bit: int):
    path = tmp_path_factory.getbasetemp() / "metrics.jsonl"
    rows = [{"step": i, "loss": 0.5 * i} for i in range(3)]
    text = "".join(map(to_line, rows)).encode()
    path.write_bytes(text[: at % len(text)])  # a kill
    assert read_lines(path, {"step": COUNT}) in (rows[:0], rows[:1], rows[:2], rows)
    at %= len(text)
    path.write_bytes(text[:at] + bytes([text[at] ^ (1 << bit)]) + text[at + 1 :])
    with pytest.raises(UserError, match=r"line \d fails its checksum"):
        read_lines(path, {"step": COUNT})


def test_a_table_stays_a_table_and_no_flip_goes_unnoticed(tmp_path: Path):
    path = tmp_path / "returns.csv"
    write_table(path, pd.read_csv(io.StringIO(TABLE)))
    sealed = path.read_bytes()
    assert pd.read_csv(path)["return"].tolist() == [1.0, 2.0]
    assert open_table(path, sealed) == TABLE.encode()
    assert open_table(path, TABLE.encode()) == TABLE.encode()  # of an older gsf, or by hand
    compressed = tmp_path / "returns.csv.gz"
    write_table(compressed, pd.read_csv(io.StringIO(TABLE)))
    assert gzip.decompress(compressed.read_bytes()) == sealed
    assert open_table(compressed, compressed.read_bytes()) == TABLE.encode()
    for damaged in flips(sealed):
        if damaged.startswith(b"game") and b"checksum" in damaged:  # else nothing is left of it
            with pytest.raises(UserError, match="damaged, or was changed"):
                open_table(path, damaged)


def test_a_compressed_table_that_was_cut_or_changed_is_named(tmp_path: Path):
    path = tmp_path / "returns.csv.gz"
    write_table(path, pd.read_csv(io.StringIO(TABLE)))
    first = path.read_bytes()
    write_table(path, pd.read_csv(io.StringIO(TABLE)))
    assert path.read_bytes() == first  # no time in it
    changed = gzip.compress(gzip.decompress(first).replace(b"2.0", b"3.0", 1), mtime=0)
    for wrong in (first[:-9], first[:40], b"game,return\n", changed):
        with pytest.raises(UserError, match=r"returns\.csv\.gz is damaged"):
            open_table(path, wrong)
