"""The training loop around something that only counts."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gsf.core.errors import UserError
from gsf.core.logs import read_metrics
from gsf.core.loop import Loop, kept_steps
from gsf.core.sealed import load_checkpoint
from signals import stopped


class Counter(nn.Module):
    """Adds 1 to its weight by every step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.returns = 0.1  # no float32 is that number

    def step(self) -> dict[str, torch.Tensor | float]:
        with torch.no_grad():
            self.weight += 1
        return {"count/loss": self.weight.detach().clone(), "count/return": self.returns}

    def loop(self, out: Path, steps: int, **options: Any) -> Loop:
        return Loop(
            out=out,
            name="count",
            of="ones",
            total=("train", "grad_steps", steps),
            step=self.step,
            state=lambda: {"net": self.state_dict(), "large": torch.zeros(1000)},
            load=lambda state: self.load_state_dict(state["net"]) and None,
            modules=[self],
            tensorboard=False,
            **options,
        )


def rows(out: Path) -> list[dict[str, Any]]:
    found = read_metrics(out / "metrics.jsonl")
    assert all(row.pop("count/seconds") >= 0 for row in found)
    return found


def test_a_row_is_the_mean_since_the_last_one_also_across_a_stop(tmp_path: Path) -> None:
    def run(out: Path) -> None:
        Counter().loop(out, 8, log_every=4).run()

    said = stopped(run, tmp_path, Counter, "step", 6)
    assert said == f"step 6 of 8 is saved in {tmp_path}"
    at = Counter().loop(tmp_path, 8, log_every=4).run()
    assert (at.step, at.sums) == (8, {})
    assert rows(tmp_path) == [
        {"step": 4, "count/loss": 2.5, "count/return": 0.1},
        {"step": 8, "count/loss": 6.5, "count/return": 0.1},
    ]


def test_strides_are_counted_from_where_it_begins_and_may_pass_the_end(tmp_path: Path) -> None:
    counter = Counter()
    at = counter.loop(tmp_path, 20, stride=8, log_every=1).run(begin=4)
    assert (at.step, counter.weight.item()) == (20, 2)
    assert [row["step"] for row in rows(tmp_path)] == [12, 20]
    again = Counter()
    assert again.loop(tmp_path, 13, stride=8).run().step == 20  # the last update of 13 steps
    assert again.weight.item() == 2
    with pytest.raises(UserError, match=r"is at step 20 already; ask for at least .* --grad-steps"):
        Counter().loop(tmp_path, 12, stride=8).run()


def test_saves_by_steps_and_by_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[tuple[str, int]] = []
    monkeypatch.setattr(
        "gsf.core.loop.save_checkpoint",
        lambda path, state: saved.append((path.name, state["step"])),
    )
    Counter().loop(tmp_path, 7, save_every=3).run()
    assert saved == [("checkpoint.pt", 3), ("checkpoint.pt", 6), ("checkpoint.pt", 7)]
    saved.clear()
    Counter().loop(tmp_path, 3, save_seconds=0.0).run()
    assert [step for _, step in saved] == [1, 2, 3]
    saved.clear()
    Counter().loop(tmp_path, 4, keep=2, kept=("net",)).run()
    assert [name for name, _ in saved] == [
        "step_2.pt", "checkpoint.pt", "step_4.pt", "checkpoint.pt"
    ]  # fmt: skip


def test_what_is_kept_on_the_way_is_what_was_asked_for(tmp_path: Path) -> None:
    Counter().loop(tmp_path, 4, keep=2, kept=("net",)).run()
    kept = load_checkpoint(tmp_path / "checkpoints" / "step_2.pt")
    assert (kept["step"], float(kept["net"]["weight"])) == (2, 2)
    assert "large" not in kept


def test_a_weight_that_is_not_finite_is_neither_logged_nor_saved(tmp_path: Path) -> None:
    counter = Counter()
    counter.loop(tmp_path, 2).run()
    broken = counter.loop(tmp_path, 4, log_every=1, advice="Pray.")
    counter.returns = float("nan")  # which is no loss, and stops nothing
    broken.run()
    nn.init.constant_(counter.weight, float("inf"))
    counter.load_state_dict = lambda state: None  # type: ignore[method-assign, assignment]
    with pytest.raises(UserError, match=r"by step 5: count/loss is inf; the last .*4, .* Pray\."):
        counter.loop(tmp_path, 6, log_every=1, advice="Pray.").run()
    assert load_checkpoint(tmp_path / "checkpoint.pt")["step"] == 4


def test_kept_steps_are_even_and_end_at_the_end() -> None:
    assert kept_steps(1000, 10) == set(range(100, 1001, 100))
    assert kept_steps(7, 3) == {3, 5, 7}
    assert kept_steps(5, 1) == {5}
    assert kept_steps(2, 5) == {1, 2}
