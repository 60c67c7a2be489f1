"""Files that are whole or not there, on any system: locks, leftovers of processes, syncing."""

import contextlib
import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest

from gsf.core.errors import UserError
from gsf.core.files import (
    aside_of,
    atomic_directory,
    heard_by,
    locked,
    open_own,
    refuse_links,
    remove,
    write_atomic,
)
from gsf.core.logs import Metrics

# What Windows lacks and what it has instead; its locks are stood in for by those of this system.
AS_ON_WINDOWS = """
import fcntl, mmap, os, sys, types
import gymnasium, numpy, pandas, rich.console, torch, tyro  # they have looked at the system already
msvcrt = types.ModuleType("msvcrt")
msvcrt.LK_NBLCK = fcntl.LOCK_EX | fcntl.LOCK_NB
msvcrt.locking = lambda descriptor, how, n: fcntl.flock(descriptor, how)
sys.modules |= {"msvcrt": msvcrt, "fcntl": None, "resource": None, "procgen": None}
for name in ("pwrite", "pread", "fdatasync", "sysconf", "sched_getaffinity"):
    delattr(os, name)
sys.platform = "win32"
"""


def test_a_lock_is_held_by_one_process_and_goes_with_it(tmp_path):
    context = multiprocessing.get_context("spawn")
    with locked(tmp_path), pytest.raises(UserError, match="another gsf process"), locked(tmp_path):
        pass
    process = context.Process(target=_die_locked, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == 7
    with locked(tmp_path):
        pass


def _die_locked(directory):
    with locked(directory):
        os._exit(7)


def test_who_waits_for_a_lock_gets_it_when_its_holder_is_done(tmp_path):
    context = multiprocessing.get_context("spawn")
    with locked(tmp_path):
        process = context.Process(target=_wait_for, args=(tmp_path,))
        process.start()
        while not (tmp_path / "waits").exists():
            pass
        assert not (tmp_path / "has it").exists()
    process.join()
    assert (tmp_path / "has it").exists()


def _wait_for(directory):
    (directory / "waits").touch()
    with locked(directory, wait=True):
        (directory / "has it").touch()


def test_a_listener_hears_of_every_file_where_it_is_written(tmp_path):
    heard = []
    with heard_by(lambda path, grown: heard.append((path.relative_to(tmp_path).parts, grown))):
        write_atomic(tmp_path / "a", "whole")
        remove(tmp_path / "a")
        metrics = Metrics(tmp_path, tensorboard=False)
        metrics.write(1, {"x": 2.0})
        metrics.close()
        with atomic_directory(tmp_path / "out") as aside:
            (aside / "manifest.json").write_text("{}")
            (aside / "values").write_text("")
    write_atomic(tmp_path / "b", "nobody listens")
    whole = [(name,) for name in ("a", "a", "metrics.jsonl", "metrics.jsonl")]
    inside = [("out", "values"), ("out", "manifest.json")]  # which says that all is there
    assert [name for name, _ in heard] == [*whole, *inside]
    assert [grown for _, grown in heard] == [False, False, False, True, False, False]


def _die_writing(path, whole):
    """As a kill does in the middle of a file, and in the middle of a directory."""
    os.fsync = lambda descriptor: os._exit(7)
    if whole:
        with atomic_directory(path) as aside:
            (aside / "half").touch()
    else:
        write_atomic(path, "half")


@pytest.mark.parametrize("whole", [False, True])
def test_what_a_killed_process_left_is_removed_and_that_of_a_running_one_is_not(tmp_path, whole):
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_die_writing, args=(tmp_path / "out", whole))
    process.start()
    process.join()
    assert process.exitcode == 7
    assert len(list(tmp_path.glob(".out.*.partial"))) == 1
    if not whole:
        write_atomic(tmp_path / "other", "")
        assert len(list(tmp_path.glob(".out.*.partial"))) == 1
        write_atomic(tmp_path / "out", "whole")
        assert {path.name for path in tmp_path.iterdir()} == {"other", "out"}
        for name in ("other", "out"):
            (tmp_path / name).unlink()
    with atomic_directory(tmp_path / "out") as aside:
        write_atomic(aside / "file", "whole")
        with pytest.raises(UserError, match=r"another gsf process is writing .*out"):
            atomic_directory(tmp_path / "out").__enter__()
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["out", "out/file"]


def test_a_partial_file_that_is_being_written_stays(tmp_path):
    with aside_of(tmp_path / "rows") as file:
        file.write(b"slow")
        with locked(tmp_path):
            write_atomic(tmp_path / "rows", "quick")
        assert len(list(tmp_path.glob(".rows.*.partial"))) == 1
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("rows", "slow")]


def _fill(path):
    with atomic_directory(path) as aside:
        (aside / "file").touch()


def _lock(directory, *name):
    with locked(directory, *name):
        pass


# Each way to write into a folder, and at which names in it a link is refused.
WRITERS = {
    "file": (lambda out: write_atomic(out / "x", "new"), ()),
    "append": (lambda out: open_own(out / "x", "a").close(), ("x",)),
    "folder": (lambda out: _fill(out / "x"), ("x", ".x.lock")),
    "lock of a file": (lambda out: _lock(out, ".x.lock"), (".x.lock",)),
    "lock of all": (_lock, ("x", ".lock", ".x.lock", ".x.partial")),
    "links": (refuse_links, ("x", ".lock", ".x.lock", ".x.partial")),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_no_link_in_a_strangers_folder_leads_a_writer_elsewhere(tmp_path, writer):
    write, refused = WRITERS[writer]
    outside = [tmp_path / "file", tmp_path / "folder" / "file"]
    (tmp_path / "folder").mkdir()
    for path in outside:
        path.write_text("mine")
    for to in ("file", "folder", "nothing"):
        for name in ("x", ".lock", ".x.lock", ".x.partial"):
            out = tmp_path / f"{name}-{to}"
            out.mkdir()
            (out / name).symlink_to(tmp_path / to)
            what = pytest.raises(UserError, match=r"link|exists already")
            with what if name in refused else contextlib.nullcontext():
                write(out)
            assert [path.read_text() for path in outside] == ["mine", "mine"]
            assert not (tmp_path / "nothing").exists()
            assert len(list((tmp_path / "folder").iterdir())) == 1


def test_links_that_stay_inside_a_folder_are_its_own_affair(tmp_path):
    """W&B makes one to its latest run."""
    (tmp_path / "runs" / "1").mkdir(parents=True)
    (tmp_path / "runs" / "latest").symlink_to("1")
    (tmp_path / "loop").symlink_to("loop")
    _lock(tmp_path)


def test_a_link_to_an_empty_folder_is_filled_and_stays_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    _fill(tmp_path / "out")
    assert (tmp_path / "out").is_symlink()
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["file"]
    assert {path.name for path in tmp_path.iterdir()} == {"disk", "out"}


def test_a_lock_that_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / ".lock")
    for write in (_lock, lambda out: open_own(out / ".lock", "a")):  # which would wait for a reader
        with pytest.raises(UserError, match=r"\.lock is no file but a link, a folder or a device"):
            write(tmp_path)


def test_import_labels_training_and_acting_need_no_more_than_windows_has(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(4):
        home = tmp_path / "episodes" / f"site-{number % 2}"
        home.mkdir(parents=True, exist_ok=True)
        arrays = {"obs": rng.integers(0, 256, (9, 16, 16, 3), np.uint8), "reward": rng.random(9)}
        np.savez(home / f"{number}.npz", action=rng.integers(3, size=9), **arrays)
    commands = [
        "data import episodes --out data",
        "fit data --out gvf --estimator mc --allow-small-levels",
        "label gvf --out labels --n-bins 2 --allow-small-levels",
        "train data --method gsf-reward --labels labels --out run --encoder impala_small "
        "--grad-steps 1 --batch 4 --device cpu",
    ]
    script = AS_ON_WINDOWS + "import gsf, gsf.cli\n"
    script += (
        f"for command in {commands}:\n    assert gsf.cli.main(command.split()) == 0, command\n"
    )
    script += "print(gsf.load_agent('run').act(numpy.zeros((2, 16, 16, 3), numpy.uint8)).shape)\n"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("(2,)\n")
