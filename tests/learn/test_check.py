"""`gsf check` says in sentences what somebody's own loss or base does wrong."""

from pathlib import Path

import pytest

from gsf import cli
from gsf.data.dataset import Dataset
from gsf.gvf import cumulants
from gsf.learn import check
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


@pytest.mark.parametrize(
    ("right", "wrong", "sentences"),
    [
        ("(frozen=True)", "", ["Config is not frozen"]),
        (".mean(), {}", ", {}", ["the loss has shape"]),
        (".mean(), {}", ".mean() / 0, {}", ["the loss is inf"]),
        ("context.z.abs()", "context.z.detach().abs()", ["the loss has no gradient at all"]),
        (
            "return context.z",
            "return torch.rand(()) * context.z",
            ["draws from torch's global stream"],
        ),
        (
            "self.config = config",
            "self.config, self.w = config, torch.nn.Linear(3, 3)",
            ["w.weight"],
        ),
        (".mean(), {}", ".mean() + 100, {}", ["it went from"]),
        (
            "return context.z",
            "self.n = getattr(self, 'n', 0) + 1\n        return self.n * context.z",
            ["is no parameter and no buffer"],
        ),
        (".mean(), {}", ".mean(), {'a/b': 1.0}", ["metric 'a/b' has a slash"]),
        ("return context.z", "return context.zed", ["AttributeError"]),
    ],
)
def test_what_a_loss_does_wrong_is_said(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    right: str,
    wrong: str,
    sentences: list[str],
) -> None:
    assert right in LOSS
    (tmp_path / "own.py").write_text(LOSS.replace(right, wrong))
    code, shown = run(tmp_path / "own.py", "Pull", capsys)
    assert code == 1, shown
    for sentence in sentences:
        assert sentence in shown


@pytest.mark.parametrize(
    ("right", "wrong", "sentence"),
    [
        ("self.pi(z), context", "self.pi(context.z), context", "use the z it is given"),
        ("return self.pi(z)", "return self.pi(z).sum(1)", "scores have shape"),
        ('name = "imitate"', 'name = "imitate"; tuning = {"w": ("1",)}', "there is no option w"),
        (
            'name = "imitate"',
            'name = "imitate"; tuning = {"weight": ("2", "1"), "train.lr": ("3e-4", "1e-3")}',
            "does not begin with its default",
        ),
    ],
)
def test_what_a_base_does_wrong_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], right: str, wrong: str, sentence: str
) -> None:
    assert right in BASE
    (tmp_path / "own.py").write_text(BASE.replace(right, wrong))
    code, shown = run(tmp_path / "own.py", "Imitate", capsys)
    assert code == 1, shown
    assert sentence in shown


@pytest.mark.parametrize(
    ("text", "name", "right", "wrong", "sentence"),
    [
        (ENCODER, "shallow", "nn.ReLU()", "nn.BatchNorm2d(16)", "no batch normalisation"),
        (ENCODER, "shallow", "nn.ReLU()", "nn.Dropout(0.5)", "global stream"),
        (CUMULANT, "danger", "chunk.t", "chunk.t.mean()", "transitions they are asked with"),
        (CUMULANT, "danger", "chunk.t", "np.random.rand()", "a second call gives other values"),
        (CUMULANT, "danger", "chunk.t", "np.nan", "NaN or infinite at transition 0"),
        (CUMULANT, "danger", "chunk.reward + 0.1 * chunk.t", "0 * chunk.t", "every label is"),
    ],
)
def test_what_an_encoder_or_a_cumulant_does_wrong_is_said(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    name: str,
    right: str,
    wrong: str,
    sentence: str,
) -> None:
    assert right in text
    (tmp_path / "own.py").write_text(text.replace(right, wrong))
    code, shown = run(tmp_path / "own.py", name, capsys)
    assert code == 1, shown
    assert sentence in shown


@pytest.mark.parametrize("name", encoders.names())
def test_every_encoder_keeps_its_promises(dataset: Dataset, name: str) -> None:
    big = name == "nature"  # which takes no images as small as these
    for promise in () if big else check.OF_ENCODERS:
        promise(check.of_encoder(name, dataset))


@pytest.mark.parametrize("name", cumulants.names())
def test_every_cumulant_keeps_its_promises(dataset: Dataset, name: str) -> None:
    for promise in check.OF_CUMULANTS:
        promise(check.of_cumulant(name, dataset))


def test_what_is_neither_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text("class Pull: pass\n")
    assert run(tmp_path / "own.py", "Pull", capsys)[0] == 2
    assert cli.main(["check", "gsf-reward"]) == 2
    assert "name its loss or its base alone" in " ".join(capsys.readouterr().err.split())
