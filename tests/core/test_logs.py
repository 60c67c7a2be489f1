"""What is shown of speeds, and loggers beside metrics.jsonl."""

import sys
from types import ModuleType
from typing import Any

import pytest

from gsf.core.errors import UserError
from gsf.core.logs import Metrics, read_metrics, spell_rate


@pytest.mark.parametrize(
    ("rate", "shown"),
    [(1234.5, "1,234 episodes/s"), (2.34, "2.3 episodes/s"), (0.25, "4.0 s/episode")],
)
def test_a_slow_rate_is_said_as_seconds_of_one(rate, shown):
    assert spell_rate(rate, "episodes") == shown


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
