"""Every encoder of the folder, and one from a user's file through fit, train and acting."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from gsf.core import registry
from gsf.core.errors import UserError
from gsf.gvf import td
from gsf.gvf.fit import FitConfig, fit
from gsf.learn.agent import load_agent
from gsf.learn.train import TrainConfig, train
from gsf.nets import encoders
from gsf.nets.encoders import Encoder, pixel_unshuffle
from gsf.nets.runtime import seeded


def images(n: int, *shape: int) -> Tensor:
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.integers(0, 256, (n, *shape), dtype=np.uint8))


def plain_forward(encoder: Encoder, image: Tensor) -> Tensor:
    """The paper's network on NCHW floats, spelled out, with the encoder's own weights."""

    def conv(layer: Any, x: Tensor) -> Tensor:
        return functional.conv2d(x, layer.weight.contiguous(), layer.bias, padding=1)

    x = image
    for first, _, *blocks in encoder.trunk.convs:
        x = functional.max_pool2d(conv(first, x), 3, stride=2, padding=1)
        for block in blocks:
            x = x + conv(block.conv2, functional.relu(conv(block.conv1, functional.relu(x))))
    x = functional.relu(x.permute(0, 2, 3, 1).reshape(len(x), -1))
    x = functional.relu(encoder.trunk.fc(x))
    fc1, fc2, norm, _ = encoder.embed
    return torch.tanh(norm(fc2(fc1(x))))


def test_impala_is_the_network_of_the_paper_and_so_are_its_gradients() -> None:
    obs = images(3, 16, 12, 3)
    with seeded(np.random.default_rng(0)):
        encoder = Encoder((16, 12, 3), "impala").double()
    gradients = []
    z = encoder(obs.double())
    plain = plain_forward(encoder, obs.permute(0, 3, 1, 2).contiguous().double() / 255)
    torch.testing.assert_close(z, plain)
    for output in (z, plain):
        gradients.append(torch.autograd.grad(output.square().sum(), list(encoder.parameters())))
    torch.testing.assert_close(*gradients)


def test_size_of_impala_at_64() -> None:
    convs = (3 * 9 + 1) * 16 + 4 * (16 * 9 + 1) * 16 + (16 * 9 + 1) * 32 + 9 * (32 * 9 + 1) * 32
    dense = (8 * 8 * 32 + 1) * 256 + 2 * (256 + 1) * 256 + 2 * 256
    encoder = Encoder((64, 64, 3), "impala")
    assert sum(p.numel() for p in encoder.parameters()) == convs + dense


def test_small_is_the_same_network_after_pixel_unshuffle() -> None:
    obs = images(2, 16, 16, 3)
    with seeded(np.random.default_rng(0)):
        small = Encoder((16, 16, 3), "impala_small")
    with seeded(np.random.default_rng(0)):
        full = Encoder((8, 8, 12), "impala")
    # Here unshuffled by torch's own function, whose channels are ordered (C, dy, dx).
    unshuffled = functional.pixel_unshuffle(obs.permute(0, 3, 1, 2).float(), 2)
    ours = unshuffled.view(2, 3, 4, 8, 8).transpose(1, 2).reshape(2, 12, 8, 8).permute(0, 2, 3, 1)
    torch.testing.assert_close(small(obs), full(ours))


def test_pixel_unshuffle_by_hand() -> None:
    obs = torch.arange(2 * 3, dtype=torch.uint8).view(1, 2, 3, 1) + 1
    out = pixel_unshuffle(obs, 2)  # padded to 2x4: 1 2 3 0 / 4 5 6 0
    assert out.tolist() == [[[[1, 2, 4, 5], [3, 0, 6, 0]]]]


@pytest.mark.parametrize("kind", encoders.names())
@pytest.mark.parametrize("shape", [(64, 64, 3), (41, 36, 1), (37, 50, 4)])
def test_any_image_size(kind: str, shape: tuple[int, ...]) -> None:
    encoder = Encoder(shape, kind)
    obs = images(2, *shape)
    z = encoder(obs)
    assert z.shape == (2, 256)
    assert (z.abs() < 1).all()
    torch.testing.assert_close(encoder(obs.float()), z)
    torch.testing.assert_close(encoder(obs[1:]), z[1:])  # rows do not mix


def test_tiny_images_and_what_nature_cannot_do() -> None:
    for kind in ("impala", "impala_small"):
        assert Encoder((1, 3, 1), kind)(images(2, 1, 3, 1)).shape == (2, 256)
    with pytest.raises(UserError, match="36x36"):
        Encoder((35, 64, 3), "nature")


class Copies(TorchDispatchMode):
    """Counts the operations that copy a tensor to another type or layout."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function.overloadpacket.__name__
        if name in ("cat", "clone", "copy_", "_to_copy", "contiguous"):
            self.calls.append(name)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("impala", ["_to_copy"]),  # uint8 -> float32, nothing else
        ("impala_small", ["cat", "_to_copy"]),  # the unshuffle moves bytes
        ("nature", ["_to_copy"]),
    ],
)
def test_no_layout_copies_from_disk_to_loss(kind: str, expected: list[str]) -> None:
    encoder = Encoder((64, 64, 3), kind)
    seen: list[Tensor] = []
    convs = [module for module in encoder.modules() if isinstance(module, nn.Conv2d)]
    for conv in convs:
        conv.register_forward_hook(lambda module, inputs, output: seen.extend([*inputs, output]))
    with Copies() as forward:
        z = encoder(images(2, 64, 64, 3))
    with Copies() as backward:
        z.square().sum().backward()
    assert forward.calls == expected
    assert backward.calls == []
    assert len(seen) == 2 * len(convs)
    for tensor in [*seen, *(conv.weight for conv in convs), *(conv.weight.grad for conv in convs)]:
        assert tensor is not None
        assert tensor.is_contiguous(memory_format=torch.channels_last)


def test_the_first_conv_sees_the_bytes_of_the_disk_in_their_order() -> None:
    encoder = Encoder((8, 8, 3), "impala")
    obs = images(2, 8, 8, 3)
    seen: list[Tensor] = []
    first = next(m for m in encoder.modules() if isinstance(m, nn.Conv2d))
    first.register_forward_hook(lambda module, inputs, output: seen.extend(inputs))
    encoder(obs)
    in_storage_order = seen[0].as_strided((obs.numel(),), (1,))
    torch.testing.assert_close(in_storage_order, obs.flatten() / 255)


OWN = """
from torch import nn

from gsf.nets.encoders import encoder


@encoder(min_size=8)
def flat(shape):
    return nn.Sequential(nn.Conv2d(shape[2], 4, 4, stride=4), nn.Flatten(), nn.Sigmoid())
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(OWN)
    return tmp_path / "mine.py"


def test_an_encoder_from_a_file(own: Path) -> None:
    found = encoders.find(f"{own}:flat")
    assert found.name == "flat"
    assert found.identity("encoder").keys() == {"encoder"}
    assert encoders.find("impala").identity("encoder") == {}
    encoder = Encoder((13, 12, 3), found.value)
    encoder(images(2, 13, 12, 3)).sum().backward()
    assert all(p.grad is not None for p in encoder.parameters())
    with pytest.raises(UserError, match="flat needs images of at least 8x8 pixels, not 7x9"):
        Encoder((7, 9, 1), found.value)


def test_the_documented_encoder_runs(tmp_path: Path) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", docs, re.DOTALL)
    (tmp_path / "mine.py").write_text(next(code for code in blocks if "@encoder" in code))
    encoder = Encoder((64, 64, 3), f"{tmp_path / 'mine.py'}:shallow")
    assert encoder(images(2, 64, 64, 3)).shape == (2, 256)


def test_what_an_encoder_cannot_do_is_a_sentence(own: Path) -> None:
    with pytest.raises(UserError, match="did you mean impala"):
        encoders.find("imapla")
    own.write_text(OWN.replace("min_size=8", ""))
    with pytest.raises(UserError, match="encoder flat fails on images 3x3x1: "):
        Encoder((3, 3, 1), f"{own}:flat")
    own.write_text(OWN.replace("flat", "nature"))
    with pytest.raises(UserError, match="'nature' is an encoder of gsf; give yours another name"):
        encoders.find(f"{own}:nature")
    own.write_text("raise SystemExit(0)")
    with pytest.raises(UserError, match="could not be run"):
        encoders.find(f"{own}:flat")


def test_a_users_encoder_trains_and_its_code_is_an_input(
    own: Path, dataset: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = f"{own}:flat"
    fitted = FitConfig(
        dataset.path, tmp_path / "gvf", estimator="td", encoder=kind, grad_steps=2, diagnose=False
    )
    trained = TrainConfig(
        dataset=dataset.path, out=tmp_path / "run", encoder=kind, grad_steps=2, batch=8
    )
    fit(fitted)
    run = train(trained)
    obs = dataset.observations(np.arange(3)).numpy()
    z = load_agent(run).embed(obs)

    monkeypatch.setattr(registry, "_named", {})  # another process, which has not named the file
    for load in (load_agent, td.load_learner):
        with pytest.raises(UserError, match="if you trust it, name the file"):
            load(fitted.out if load is td.load_learner else run)
    moved = own.rename(tmp_path / "moved.py")
    registry.allow([moved])
    np.testing.assert_array_equal(load_agent(run).embed(obs), z)
    td.load_learner(fitted.out)

    own.write_text(OWN + "# changed")
    with pytest.raises(UserError, match="encoder"):
        fit(fitted)
    with pytest.raises(UserError, match="other encoder"):
        train(trained)


def test_small_images_are_refused_before_anything_is_computed(dataset: Any, tmp_path: Path) -> None:
    config = FitConfig(dataset.path, tmp_path / "gvf", estimator="td", encoder="nature")
    with pytest.raises(UserError, match="at least 36x36 pixels, not 12x12"):
        fit(config)
    with pytest.raises(UserError, match="unknown encoder 'natural'"):
        train(TrainConfig(dataset=tmp_path / "none", out=tmp_path / "x", encoder="natural"))
