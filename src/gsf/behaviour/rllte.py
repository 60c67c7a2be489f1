"""Policies that rllte has trained on Procgen, for `gsf collect --policy FILE` (docs/data.md).

In: weights alone (a state dict) of its PPO with its residual encoder. Its own agent files are
pickled objects; to read one is to run what is in it, and gsf does not.
"""

import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from gsf.behaviour.policy import BehaviourPolicy, weights_digest
from gsf.behaviour.ppo import ActorCritic
from gsf.core.errors import UserError
from gsf.core.sealed import fitting
from gsf.nets.runtime import pick_device
from gsf.suites import facts_of

PARTS = {"encoder.trunk.": "trunk.layers.", "actor.actor.": "policy.", "critic.critic.": "value."}
CHANNELS = (16, 32, 32)
MARKS = {"encoder.trunk.0.main.0.weight", "encoder.trunk.4.weight", "actor.actor.weight"}


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.relu()  # theirs is in place, so that what is added below has lost its negatives, too
        y: Tensor = x + self.conv2(self.conv1(x).relu())
        return y


class Layer(nn.Module):
    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        first = nn.Conv2d(c_in, c_out, 3, padding=1)
        pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.main = nn.Sequential(first, pool, Block(c_out), Block(c_out))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.main(x)
        return y


class Trunk(nn.Module):
    """Unlike gsf's IMPALA: no ReLU before the last layer, whose inputs are ordered [C,H,W]."""

    def __init__(self, obs_shape: tuple[int, ...], n_features: int) -> None:
        super().__init__()
        height, width, channels = obs_shape
        ins = (channels, *CHANNELS[:-1])
        layers = [Layer(c_in, c_out) for c_in, c_out in zip(ins, CHANNELS, strict=True)]
        for _ in layers:
            height, width = -(-height // 2), -(-width // 2)
        last = nn.Linear(CHANNELS[-1] * height * width, n_features)
        self.layers = nn.Sequential(*layers, nn.Flatten(), last, nn.ReLU())

    def forward(self, obs: Tensor) -> Tensor:
        features: Tensor = self.layers(obs.permute(0, 3, 1, 2) / 255.0)
        return features


class RllteActorCritic(ActorCritic):
    """obs uint8 [n,H,W,C] -> logits [n,A] and value [n], by rllte's layers."""

    def __init__(self, obs_shape: tuple[int, ...], n_features: int, n_actions: int) -> None:
        nn.Module.__init__(self)
        self.trunk = Trunk(obs_shape, n_features)  # type: ignore[assignment]
        self.policy = nn.Linear(n_features, n_actions)
        self.value = nn.Linear(n_features, 1)
        nn.init.zeros_(self.value.weight)  # an agent that was exported has no critic
        nn.init.zeros_(self.value.bias)


def read_rllte(path: Path, game: str, difficulty: str, device: str) -> BehaviourPolicy | None:
    """None of a file that is something else; it does not say itself what it was trained on."""
    if not zipfile.is_zipfile(path):
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UserError(
            f"{path} holds pickled objects, which gsf does not run; where rllte is installed, save "
            "the weights alone: torch.save(torch.load(FILE).state_dict(), OUT)."
        ) from None
    except (RuntimeError, OSError, ValueError):
        return None
    if not isinstance(state, dict) or not state.keys() >= MARKS:
        return None
    facts = facts_of(game)
    with fitting(path):
        n_features = state["actor.actor.weight"].shape[1]
        net = RllteActorCritic(facts.obs_shape, n_features, len(facts.actions))
        net.load_state_dict({**net.state_dict(), **dict(_renamed(state))})
    provenance = {
        "algorithm": "ppo",
        "by": "rllte",
        "game": game,
        "difficulty": difficulty,
        "actions": "all",
        "encoder": "rllte",
        "digest": weights_digest(net),
    }
    return BehaviourPolicy(net.to(pick_device(device)), provenance)


def _renamed(state: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for name, weight in state.items():
        for theirs, ours in PARTS.items():
            if name.startswith(theirs):
                yield ours + name.removeprefix(theirs), weight
