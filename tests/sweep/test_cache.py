"""A node's cache: made once by whoever asks first, whole, within its limit."""

import multiprocessing
import os

from gsf.core.files import atomic_directory
from gsf.sweep.cache import Cache


def make(path, size=1_000):
    with atomic_directory(path) as aside:
        (aside / "file").write_bytes(bytes(size))


def test_processes_that_ask_at_once_get_what_one_of_them_made(tmp_path):
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(3)
    asking = [context.Process(target=_ask, args=(tmp_path, start)) for _ in range(3)]
    for process in asking:
        process.start()
    for process in asking:
        process.join()
    assert [process.exitcode for process in asking] == [0, 0, 0]
    assert len((tmp_path / "made").read_text().split()) == 1


def _ask(root, start):
    def note(path):
        with open(root / "made", "a") as file:
            file.write(f"{os.getpid()}\n")
        make(path)

    start.wait()
    with Cache(root, limit_gb=1).hold("dataset-1", note) as found:
        assert (found / "file").stat().st_size == 1_000


def test_what_was_used_longest_ago_goes_and_what_is_in_use_stays(tmp_path):
    cache = Cache(tmp_path, limit_gb=2_500e-9)
    with cache.hold("a", make):
        for at, key in enumerate("bc"):
            with cache.hold(key, make):
                pass
            os.utime(tmp_path / f"{key}.lock", (at, at))
        with cache.hold("d", make):
            left = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert left == {"a", "d"}
    with cache.hold("b", make) as again:
        assert (again / "file").exists()


def test_what_could_not_be_made_is_tried_again(tmp_path):
    cache = Cache(tmp_path, limit_gb=1)
    try:
        with cache.hold("a", lambda path: 1 / 0):
            raise AssertionError
    except ZeroDivisionError:
        pass
    with cache.hold("a", make) as found:
        assert found.is_dir()
