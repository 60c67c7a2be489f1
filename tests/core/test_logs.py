"""What is shown of speeds and of time left, and loggers beside metrics.jsonl."""

import io
import sys
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from gsf.core import logs
from gsf.core.errors import UserError
from gsf.core.logs import Metrics, Pace, progress, read_metrics, spell_rate
from gsf.core.presets import shorter_presets


@pytest.mark.parametrize(
    ("rate", "shown"),
    [(1234.5, "1,234 episodes/s"), (2.34, "2.3 episodes/s"), (0.25, "4.0 s/episode")],
)
def test_a_slow_rate_is_said_as_seconds_of_one(rate, shown):
    assert spell_rate(rate, "episodes") == shown


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(logs, "time", clock)
    return clock


def test_time_left_is_counted_from_the_first_step_on(clock):
    pace = Pace(total=100)
    clock.now = 50.0  # getting ready: no step takes that long
    assert pace.seconds_left(41) is None
    clock.now = 52.0
    assert pace.seconds_left(42) == 2.0 * 58


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize(
    ("seconds_a_step", "shorter", "said"),
    [
        (3.12, "--preset laptop", ["train cql will take about 4 h 20 min", "--preset laptop."]),
        (0.2, "", ["train cql will take about 17 min at the speed of its first seconds."]),
        (0.1, "--preset laptop", []),  # under ten minutes
        (3.12, None, []),  # there is no preset of what is done
    ],
)
def test_what_will_take_long_says_so_once(
    seconds_a_step, shorter, said, terminal, clock, monkeypatch
):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=200)
    monkeypatch.setattr(logs, "console", console)
    with progress("train cql", 5_000, shorter=shorter) as advance:
        for step in range(1, 100):
            advance(step)
            clock.now += seconds_a_step
    text = console.file.getvalue()
    assert text.count("will take about") == bool(said)
    assert all(words in text for words in said)


def test_the_shorter_presets_are_those_with_less_of_what_takes_the_time():
    less = "--preset smoke (20 grad steps), laptop (700 grad steps)"
    assert shorter_presets("train", "grad_steps", 5_000) == less
    assert shorter_presets("train", "grad_steps", 20) == ""
    assert shorter_presets("fit", "grad_steps", 5_000).startswith("--preset smoke (estimator mc)")
    assert "study (2,000,000 frames)" in shorter_presets("collect", "frames", 25_000_000)


class FakeWandb(ModuleType):
    """What gsf uses of W&B, kept in lists."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.begun: list[dict[str, Any]] = []
        self.rows: list[tuple[dict[str, float], int]] = []
        self.n_finished = 0

    def init(self, **options: Any) -> "FakeWandb":
        self.begun.append(options)
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self.rows.append((values, step))

    def finish(self) -> None:
        self.n_finished += 1


def test_wandb_gets_the_same_rows_offline_and_goes_on_under_one_name(tmp_path, monkeypatch):
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    for step in (1, 2):
        metrics = Metrics(tmp_path, resume_step=step - 1, tensorboard=False, wandb=True)
        metrics.write(step, {"bc/loss": 0.5 * step})
        metrics.close()
    assert fake.rows == [({"bc/loss": 0.5}, 1), ({"bc/loss": 1.0}, 2)]
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2]
    first, second = fake.begun
    assert first == second
    assert (first["mode"], first["resume"], first["dir"]) == ("offline", "allow", str(tmp_path))
    assert fake.n_finished == 2
    monkeypatch.setenv("WANDB_MODE", "online")
    Metrics(tmp_path, 2, tensorboard=False, wandb=True).close()
    assert fake.begun[-1]["mode"] == "online"


def test_without_wandb_one_sentence_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    with pytest.raises(UserError, match=r"--wandb needs .*pip install 'gsf-rl\[wandb\]'"):
        Metrics(tmp_path, tensorboard=False, wandb=True)
    assert not list(tmp_path.iterdir())
