"""A unit of work on a node, with a store in the same process: no Ray."""

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gsf.core.errors import UserError
from gsf.core.files import atomic_directory, write_atomic
from gsf.core.logs import Metrics, progress
from gsf.sweep import node
from gsf.sweep.store import Store, SupersededError
from gsf.sweep.units import Unit

RUN = "coinrun/bc/seed0"


@dataclass(frozen=True)
class ToyData:
    """A dataset that is a copy of its recording."""

    key: str = "dataset-1"
    at: Path = Path("coinrun/dataset")

    def make(self, fetch, out: Path) -> None:
        with atomic_directory(out) as aside:
            fetch("inputs/play", aside / "pixels")


class Home:
    """A driver's directory, its store, and a node's scratch, apart from each other."""

    def __init__(self, tmp_path: Path) -> None:
        (tmp_path / "play").write_text("pixels of coinrun")
        self.out, self.calls = tmp_path / "out", []
        self.store = Store(self.out, {"inputs/play": tmp_path / "play"})

    def ask(self, method, *arguments):
        self.calls.append((method, *arguments))
        return getattr(self.store, method)(*arguments)

    def order(self, work: Callable[[], None], **options) -> node.Order:
        unit = Unit(RUN, "key", ToyData(), work)
        return node.Order(unit, self.store.begin(RUN), {}, threads=1, cache_gb=1, **options)

    def work(self, work: Callable[[], None]) -> node.Outcome:
        return node.work(self.order(work), self.ask)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GSF_SCRATCH", str(tmp_path / "scratch"))
    with contextlib.closing(Home(tmp_path)) as made:
        made.close = made.store.close
        yield made


def test_what_is_written_is_sent_at_once_and_done_last(home):
    there = []

    def work() -> None:
        assert Path("coinrun/dataset/pixels").read_text() == "pixels of coinrun"
        assert not home.out.is_relative_to(Path.cwd())
        run = Path(RUN)
        write_atomic(run / "manifest.json", "{}")
        metrics = Metrics(run, tensorboard=True)
        metrics.write(1, {"loss": 2.0})
        there.append((home.out / RUN / "metrics.jsonl").read_text())
        metrics.write(2, {"loss": 1.0})
        metrics.close()
        (run / ".lock").touch()
        (run / "values.npy").write_text("by other hands")
        write_atomic(run / "DONE", "")
        print("shown")

    assert home.work(work) == node.Outcome(None)
    assert json.loads(there[0])["loss"] == 2.0
    assert len((home.out / RUN / "metrics.jsonl").read_text().splitlines()) == 2
    assert "shown" in (home.out / f"{RUN}.log").read_text()
    sent = [Path(call[3]).name for call in home.calls if call[0] in ("put", "append")]
    assert sent == [
        "manifest.json",
        *["metrics.jsonl"] * 3,
        "values.npy",
        "DONE",
        "seed0.log",
    ]
    assert [call[0] for call in home.calls].count("append") == 2
    assert not list(node.scratch_root().glob("attempts/*"))


def test_an_attempt_goes_on_from_the_store_and_from_nothing_else(home):
    home.work(lambda: write_atomic(Path(RUN, "checkpoint.pt"), "step 10"))
    stale = node.scratch_root() / "attempts" / "99999999"
    stale.mkdir()
    stale.with_name("99999999.lock").touch()
    (stale / "checkpoint.pt").write_text("step 99 of a killed process")
    found = []

    def work() -> None:
        found.append(Path(RUN, "checkpoint.pt").read_text())
        found.extend(path.name for path in Path.cwd().parent.glob("99999999*"))

    home.work(work)
    assert found == ["step 10"]


def test_a_dataset_is_made_once_for_all_runs_of_a_node(home):
    for _ in range(2):
        home.work(lambda: None)
    assert home.calls.count(("read", "inputs/play", 0)) == 1


def test_who_is_superseded_stops_even_if_its_code_catches_everything(home):
    def work() -> None:
        write_atomic(Path(RUN, "checkpoint.pt"), "mine")
        home.store.begin(RUN)  # the driver thought this node was gone
        try:
            write_atomic(Path(RUN, "checkpoint.pt"), "late")
        except Exception:
            raise AssertionError("the work went on") from None

    with pytest.raises(SupersededError):
        home.work(work)
    assert (home.out / RUN / "checkpoint.pt").read_text() == "mine"


@pytest.mark.parametrize(
    ("error", "reason", "own"),
    [
        (UserError("no such loss."), "no such loss.", True),
        (ValueError("a bug"), "ValueError: a bug", True),
        (SystemExit(3), "SystemExit: 3", True),
        (OSError(28, "No space left"), "OSError: [Errno 28] No space left", False),
        (MemoryError("8 GB"), "MemoryError: 8 GB", False),
        (RuntimeError("can't allocate memory"), "RuntimeError: can't allocate memory", False),
        (KeyboardInterrupt("step 5 is saved"), "KeyboardInterrupt: step 5 is saved", False),
    ],
)
def test_a_fault_is_the_works_own_or_the_machines(home, error, reason, own):
    def work() -> None:
        raise error

    before = os.getcwd()
    assert home.work(work) == node.Outcome(reason, own)
    assert os.getcwd() == before
    assert (home.out / f"{RUN}.log").is_file()


def test_a_node_with_another_gsf_says_so_and_does_nothing(home):
    order = home.order(lambda: 1 / 0, version="0.0.1")
    outcome = node.work(order, home.ask)
    assert not outcome.own
    assert "the driver has 0.0.1" in outcome.reason


def test_a_place_that_somebody_else_has_taken_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("GSF_SCRATCH", raising=False)
    monkeypatch.setattr(node.tempfile, "gettempdir", lambda: str(tmp_path))
    own = node.scratch_root().parent
    assert own.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(node.os, "getuid", lambda: own.stat().st_uid + 1)
    with pytest.raises(UserError, match="is somebody else's; set GSF_SCRATCH"):
        node.scratch_root()


def test_progress_reaches_the_drivers_table(home):
    def work() -> None:
        with progress("train bc", 10) as advance:
            advance(10, loss=0.5)

    home.work(work)
    heard = home.store.heard([RUN])[RUN]
    beat = heard.beat
    assert heard.machine
    assert (beat.what, beat.done, beat.total, beat.facts) == ("train bc", 10, 10, {"loss": 0.5})
