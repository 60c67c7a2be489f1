"""`gsf check` says in sentences what somebody's own loss or base does wrong."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gsf import cli
from gsf.core.errors import UserError
from gsf.data.dataset import Dataset
from gsf.gvf import cumulants
from gsf.learn import check
from gsf.learn.promises import BrokenError
from gsf.learn.promises import cumulants as promised
from gsf.nets import encoders
from own_code import BASE, CUMULANT, ENCODER, LOSS


def run(path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    try:
        code = cli.main(["check", f"{path}:{name}"])
    except SystemExit as stop:
        code = int(str(stop.code))
    shown = capsys.readouterr()
    return code, shown.out + shown.err


@pytest.mark.parametrize(
    ("text", "name"),
    [(LOSS, "Pull"), (BASE, "Imitate"), (ENCODER, "shallow"), (CUMULANT, "danger")],
)
def test_what_is_right_keeps_every_promise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, name: str
) -> None:
    (tmp_path / "own.py").write_text(text)
    code, shown = run(tmp_path / "own.py", name, capsys)
    assert code == 0, shown
    assert "is as gsf expects it" in shown
    assert "BROKEN" not in shown


def test_what_is_wrong_is_said_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(LOSS.replace("return context.z", "return context.zed"))
    code, shown = run(tmp_path / "own.py", "Pull", capsys)
    assert code == 1, shown
    assert "AttributeError" in shown
    assert "BROKEN" in shown
    assert re.search(r"breaks \d", shown)


OWN = {
    LOSS: (check.of_loss, "Pull"),
    BASE: (check.of_base, "Imitate"),
    ENCODER: (check.of_encoder, "shallow"),
    CUMULANT: (promised.Subject, "danger"),
}
COUNTS = "self.n = getattr(self, 'n', 0) + 1\n        return self.n * "
OPTIMISED_TWICE = """\
    def optimizers(self, optimizer):
        return {str(n): optimizer(self.pi.parameters(), 0.1) for n in range(2)}

    def scores("""
WRONG = {
    check.describes_itself: [(BASE, "(frozen=True)", "", "Config is not frozen")],
    check.acts_by_its_own_episode: [
        (
            BASE,
            "    def scores(",
            "    memory = 3\n\n    def scores_in(self, past):\n"
            "        return self.pi(past.z.mean(1))\n\n    def scores(",
            "steps that are still to come",
        ),
    ],
    check.is_a_finite_scalar: [
        (LOSS, ".mean(), {}", ", {}", "the loss has shape"),
        (LOSS, ".mean(), {}", ".mean() / 0, {}", "the loss is inf"),
        (LOSS, "{}", "{'a/b': 1.0}", "metric 'a/b' has a slash"),
    ],
    check.trains_the_encoder_and_no_target: [
        (LOSS, "z.abs()", "z.detach().abs()", "the loss has no gradient at all"),
        (LOSS, "= config\n", "= config; self.w = torch.nn.Linear(3, 3)\n", "w.weight"),
    ],
    check.same_seed_same_value: [
        (LOSS, "context.z", "torch.rand(()) * context.z", "draws from torch's global stream"),
        (ENCODER, "nn.ReLU()", "nn.Dropout(0.5)", "global stream"),
    ],
    check.falls_as_it_is_learnt: [(LOSS, ".mean(), {}", ".mean() + 100, {}", "it went from")],
    check.goes_on_from_what_was_saved: [
        (LOSS, "return ", COUNTS, "no parameter and no buffer"),
        (BASE, "    def scores(", OPTIMISED_TWICE, "each parameter that it trains once"),
    ],
    check.learns_from_the_z_it_is_given: [
        (BASE, "self.pi(z), context", "self.pi(context.z), context", "use the z it is given")
    ],
    check.scores_every_action: [
        (BASE, "return self.pi(z)", "return self.pi(z).sum(1)", "scores have shape")
    ],
    check.says_what_to_tune: [
        (BASE, '"imitate"', '"imitate"; tuning = {"w": ("1",)}', "there is no option w"),
        (BASE, '"imitate"', '"imitate"; tuning = {"weight": ("2", "1")}', "not begin with its"),
    ],
    check.sees_each_image_by_itself: [
        (ENCODER, "nn.ReLU()", "nn.BatchNorm2d(16)", "no batch normalisation")
    ],
    promised.values_every_transition: [(CUMULANT, "chunk.t", "np.nan", "infinite at transition 0")],
    promised.values_each_transition_by_itself: [
        (CUMULANT, "chunk.t", "chunk.t.mean()", "transitions they are asked with"),
        (CUMULANT, "chunk.t", "np.random.rand()", "a second call gives other values"),
    ],
    promised.can_be_ranked: [
        (CUMULANT, "chunk.reward + 0.1 * chunk.t", "0 * chunk.t", "every label")
    ],
}


@pytest.mark.parametrize(
    ("promise", "text", "right", "wrong", "sentence"),
    [(promise, *case) for promise, cases in WRONG.items() for case in cases],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_each_broken_promise_has_its_sentence(
    tmp_path: Path,
    dataset: Dataset,
    labels: Path,
    monkeypatch: pytest.MonkeyPatch,
    promise: Callable[[Any], None],
    text: str,
    right: str,
    wrong: str,
    sentence: str,
) -> None:
    monkeypatch.setattr(check, "PATIENCE", 2)  # what does not fall in 200 steps does not in 40
    of, name = OWN[text]
    assert right in text
    (tmp_path / "own.py").write_text(text.replace(right, wrong, 1))
    own = of(f"{tmp_path / 'own.py'}:{name}", dataset, *([labels] if text == LOSS else []))
    with pytest.raises((BrokenError, UserError), match=sentence):
        promise(own)


def test_every_promise_can_be_broken() -> None:
    promises = {*check.OF_LOSSES, *check.OF_BASES, *check.OF_ENCODERS, *promised.OF_CUMULANTS}
    elsewhere = {check.says_what_it_needs, check.carries_an_auxiliary_loss}  # refused in sentences
    assert promises - elsewhere == set(WRONG)


@pytest.mark.parametrize("name", encoders.names())
def test_every_encoder_keeps_its_promises(dataset: Dataset, name: str) -> None:
    small = encoders.find(name).value.min_size <= min(dataset.obs_shape[:2])
    for promise in check.OF_ENCODERS if small else ():
        promise(check.of_encoder(name, dataset))


@pytest.mark.parametrize("name", cumulants.names())
def test_every_cumulant_keeps_its_promises(dataset: Dataset, name: str) -> None:
    for promise in promised.OF_CUMULANTS:
        promise(promised.Subject(name, dataset))


def test_what_is_neither_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text("class Pull: pass\n")
    assert run(tmp_path / "own.py", "Pull", capsys)[0] == 2
    assert cli.main(["check", "gsf-reward"]) == 2
    assert "name its loss or its base alone" in " ".join(capsys.readouterr().err.split())
