"""The store that a cluster's nodes send files to: no Ray, one process."""

import contextlib
import multiprocessing
from pathlib import Path

import pytest

from gsf.core.errors import UserError
from gsf.core.logs import Beat
from gsf.sweep import store as stores
from gsf.sweep.bucket import Bucket
from gsf.sweep.store import JOURNAL, Store, SupersededError

RUN = "coinrun/bc/seed0"


@pytest.fixture
def opened():
    """Store, which is closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(
            contextlib.closing(Store(*args, **options))
        )


def test_a_file_comes_in_whole_grows_and_goes(opened, tmp_path):
    store = opened(tmp_path)
    attempt = store.begin(RUN)
    store.put(RUN, attempt, f"{RUN}/checkpoint.pt", b"weights")
    store.put(RUN, attempt, f"{RUN}/metrics.jsonl", b"one\n")
    store.append(RUN, attempt, f"{RUN}/metrics.jsonl", b"two\n", 4)
    store.append(RUN, attempt, f"{RUN}/metrics.jsonl", b"again\n", 4)  # said twice: not there twice
    store.put(RUN, attempt, f"{RUN}/DONE", b"")
    store.remove(RUN, attempt, f"{RUN}/DONE")
    assert (tmp_path / RUN / "metrics.jsonl").read_text() == "one\nagain\n"
    assert store.files(RUN) == {f"{RUN}/checkpoint.pt": 7, f"{RUN}/metrics.jsonl": 10}
    assert store.read(f"{RUN}/checkpoint.pt", 2) == b"ights"


def test_a_large_file_is_not_there_before_its_last_piece(opened, tmp_path):
    store = opened(tmp_path)
    attempt = store.begin(RUN)
    store.put(RUN, attempt, f"{RUN}/values.npy", b"first", more=True)
    assert not (tmp_path / RUN / "values.npy").exists()
    assert store.files(RUN) == {}
    store.put(RUN, attempt, f"{RUN}/values.npy", b"last", at=5)
    assert (tmp_path / RUN / "values.npy").read_bytes() == b"firstlast"


def test_an_older_attempt_can_no_longer_write_show_or_remove_anything(opened, tmp_path):
    store = opened(tmp_path)
    older = store.begin(RUN)
    store.put(RUN, older, f"{RUN}/checkpoint.pt", b"old")
    newer = store.begin(RUN)
    store.put(RUN, newer, f"{RUN}/checkpoint.pt", b"new")
    beat = Beat("train", 1, 2, None, {})
    for late in (
        lambda: store.put(RUN, older, f"{RUN}/checkpoint.pt", b"late"),
        lambda: store.append(RUN, older, f"{RUN}/checkpoint.pt", b"late", 0),
        lambda: store.remove(RUN, older, f"{RUN}/checkpoint.pt"),
        lambda: store.show(RUN, older, "vm", beat),
    ):
        with pytest.raises(SupersededError, match=r"attempt 1 .*the latest is 2"):
            late()
    assert (tmp_path / RUN / "checkpoint.pt").read_bytes() == b"new"
    store.show(RUN, newer, "vm", beat)
    heard = store.heard([RUN])[RUN]
    assert (heard.machine, heard.beat, heard.saved) == ("vm", beat, 1)


def test_numbers_of_attempts_and_what_is_done_outlive_the_store(opened, tmp_path):
    store = opened(tmp_path)
    store.begin(RUN)
    other = store.begin("coinrun/cql/seed0")
    store.put("coinrun/cql/seed0", other, "coinrun/cql/seed0/DONE", b"")
    store.finish("coinrun/cql/seed0", "this work")
    store.close()
    again = opened(tmp_path)
    assert again.begin(RUN) == 2
    keys = {RUN: "this work", "coinrun/cql/seed0": "this work", "unheard of": "this work"}
    assert again.done(keys) == ["coinrun/cql/seed0"]
    assert again.done({"coinrun/cql/seed0": "other options"}) == []
    (tmp_path / "coinrun/cql/seed0/DONE").unlink()
    (tmp_path / "coinrun/cql/seed0").rmdir()
    assert again.done(keys) == []


def test_nobody_writes_or_reads_outside_of_what_is_theirs(opened, tmp_path):
    (tmp_path / "secret").write_text("mine")
    store = opened(tmp_path / "out")
    attempt = store.begin(RUN)
    for name in ("coinrun/cql/seed0/checkpoint.pt", f"{RUN}x/a", JOURNAL):
        with pytest.raises(ValueError, match="coinrun/bc/seed0 writes below its name, not"):
            store.put(RUN, attempt, name, b"")
    for name in (f"{RUN}/../../../secret", "/etc/hostname"):
        with pytest.raises(ValueError, match=r"no name|not /etc"):
            store.put(RUN, attempt, name, b"")
        with pytest.raises(ValueError, match="no name in a directory of results"):
            store.read(name)


@pytest.mark.parametrize("name", [".cluster/store.lock", f"{RUN}/.values.npy.1.partial"])
def test_a_link_leads_no_file_elsewhere(opened, tmp_path, name):
    out = tmp_path / "out"
    (out / name).parent.mkdir(parents=True)
    (out / name).symlink_to(tmp_path / "elsewhere")

    def write():
        store = opened(out)
        store.put(RUN, store.begin(RUN), f"{RUN}/values.npy", b"1", more=True)

    with pytest.raises(UserError, match="is no file but a link"):
        write()
    assert not (tmp_path / "elsewhere").exists()


def test_a_storage_with_a_link_that_leads_out_is_refused(tmp_path):
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "coinrun").symlink_to(tmp_path)
    with pytest.raises(UserError, match="coinrun is a link that leads out of"):
        Bucket(f"file://{tmp_path}/storage")


def test_inputs_are_read_by_their_names(opened, tmp_path):
    (tmp_path / "play.gsfrec").write_bytes(b"recording")
    store = opened(tmp_path / "out", {"inputs/1.gsfrec": tmp_path / "play.gsfrec"})
    assert store.read("inputs/1.gsfrec") == b"recording"
    assert store.read("inputs/1.gsfrec", 3) == b"ording"


def test_a_store_waits_until_its_killed_predecessor_is_gone(opened, tmp_path, monkeypatch):
    before = multiprocessing.get_context("spawn").Process(target=_hold, args=(tmp_path,))
    before.start()
    while not (tmp_path / "held").exists():
        pass
    waits = iter(range(300))

    def wait(_):
        if next(waits) == 1:
            before.kill()
            before.join()

    monkeypatch.setattr(stores.time, "sleep", wait)
    opened(tmp_path).begin(RUN)
    assert next(waits) >= 2


def _hold(out: Path) -> None:
    store = Store(out)
    (out / "held").touch()
    multiprocessing.Event().wait()
    store.begin(RUN)


def test_a_driver_elsewhere_goes_on_from_the_storage(opened, tmp_path):
    uri = (tmp_path / "bucket").as_uri()
    here = opened(tmp_path / "here", storage=uri)
    attempt = here.begin(RUN)
    here.put(RUN, attempt, f"{RUN}/manifest.json", b"{}")
    here.put(RUN, attempt, f"{RUN}/metrics.jsonl", b"1\n")
    here.append(RUN, attempt, f"{RUN}/metrics.jsonl", b"2\n", 2)
    here.put(RUN, attempt, f"{RUN}/checkpoint.pt", b"step 2")
    here.put(RUN, attempt, f"{RUN}/DONE", b"")
    here.remove(RUN, attempt, f"{RUN}/DONE")
    here.put(RUN, attempt, f"{RUN}.log", b"said")

    there = opened(tmp_path / "there", storage=uri)
    files = {path.name: path.read_bytes() for path in (tmp_path / "there" / RUN).iterdir()}
    assert files == {"manifest.json": b"{}", "metrics.jsonl": b"1\n2\n", "checkpoint.pt": b"step 2"}
    assert (tmp_path / "there" / f"{RUN}.log").read_bytes() == b"said"
    assert there.begin(RUN) == 2
    there.put(RUN, 2, f"{RUN}/checkpoint.pt", b"step 4")

    here.close()
    back = opened(tmp_path / "here", storage=uri)  # what it has is older
    assert back.read(f"{RUN}/checkpoint.pt") == b"step 4"
    assert back.begin(RUN) == 3

    alone = opened(tmp_path / "alone")  # and one that had no storage before
    alone.begin("coinrun/cql/seed0")
    alone.put("coinrun/cql/seed0", 1, "coinrun/cql/seed0/a", b"sent later")
    alone.close()
    opened(tmp_path / "alone", storage=uri)
    assert (tmp_path / "bucket/coinrun/cql/seed0/a").read_bytes() == b"sent later"
