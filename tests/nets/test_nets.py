import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from gsf.core.errors import UserError
from gsf.equations import ema
from gsf.nets.encoders import Encoder, EncoderKind, pixel_unshuffle
from gsf.nets.heads import Critic, Projection, head, mlp
from gsf.nets.runtime import frozen_copy, seeded, update_target


def images(n: int, *shape: int) -> Tensor:
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.integers(0, 256, (n, *shape), dtype=np.uint8))


def plain_forward(encoder: Encoder, image: Tensor) -> Tensor:
    """The spec's network on NCHW floats, spelled out, with the encoder's own weights."""

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


def test_impala_is_the_network_of_the_spec_and_so_are_its_gradients() -> None:
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


@pytest.mark.parametrize("kind", ["impala", "impala_small", "nature"])
@pytest.mark.parametrize("shape", [(64, 64, 3), (41, 36, 1), (37, 50, 4)])
def test_any_image_size(kind: EncoderKind, shape: tuple[int, ...]) -> None:
    encoder = Encoder(shape, kind)
    obs = images(2, *shape)
    z = encoder(obs)
    assert z.shape == (2, 256)
    assert (z.abs() < 1).all()
    torch.testing.assert_close(encoder(obs.float()), z)
    torch.testing.assert_close(encoder(obs[1:]), z[1:])  # rows do not mix


def test_tiny_images_and_what_nature_cannot_do() -> None:
    for kind in ("impala", "impala_small"):
        assert Encoder((1, 3, 1), kind)(images(2, 1, 3, 1)).shape == (2, 256)  # type: ignore[arg-type]
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
def test_no_layout_copies_from_disk_to_loss(kind: EncoderKind, expected: list[str]) -> None:
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


def test_seeded_draws_from_the_rng_and_leaves_torch_alone() -> None:
    def make(seed: int) -> Tensor:
        with seeded(np.random.default_rng(seed)):
            return mlp(4, 2)[0].weight

    before = torch.get_rng_state()
    assert torch.equal(make(0), make(0))
    assert not torch.equal(make(0), make(1))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("make", "n_linear"),
    [(lambda: mlp(256, 5), 3), (lambda: Projection(256, 5), 2), (lambda: head(256, 5, "mlp"), 3)],
)
def test_heads_have_their_layers(make: Callable[[], nn.Module], n_linear: int) -> None:
    made = make()
    layers = [m for m in made.modules() if isinstance(m, nn.Linear)]
    assert [m.out_features for m in layers] == [256] * (n_linear - 1) + [5]
    assert sum(isinstance(m, nn.ReLU) for m in made.modules()) == n_linear - 1
    assert made(torch.zeros(2, 256)).shape == (2, 5)


def test_critics_are_two_and_differ() -> None:
    z = torch.randn(4, 256, generator=torch.Generator().manual_seed(0))
    q1, q2 = Critic(5)(z)
    assert q1.shape == q2.shape == (4, 5)
    assert not torch.allclose(q1, q2)


def test_linear_critic_is_theta_transposed_z() -> None:
    z = torch.randn(4, 256, generator=torch.Generator().manual_seed(0))
    critic = Critic(5, "linear")
    [theta1, theta2] = critic.parameters()
    torch.testing.assert_close(critic(z), (z @ theta1.T, z @ theta2.T))


def test_targets_move_by_the_rate_and_take_no_gradient() -> None:
    online = nn.Linear(1, 1)
    target = frozen_copy(online)
    assert torch.equal(target.weight, online.weight)
    assert not any(p.requires_grad for p in target.parameters())
    with torch.no_grad():
        online.weight.fill_(1.0)
        target.weight.fill_(3.0)
    update_target(target, online, 0.25)
    assert target.weight.item() == 2.5
    assert target.weight.item() == ema(np.array(3.0), np.array(1.0), 0.25)
    assert online.weight.item() == 1.0
    assert online.weight.requires_grad


def test_freed_memory_is_used_again_without_page_faults() -> None:
    code = """
import resource, torch
from gsf.nets.runtime import keep_freed_memory
keep_freed_memory()
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(7 * 1024**2)  # 28 MB, 7,168 pages
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults)
"""  # in a process of its own: what ran before in this one has left its traces in malloc
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(shown.stdout) < 100
