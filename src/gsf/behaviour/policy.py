"""A behaviour policy on disk: PPO's network, which actions it chooses among, where it came from."""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gsf.behaviour.ppo import ActorCritic, sample
from gsf.core.errors import UserError
from gsf.core.files import digest
from gsf.core.schema import COUNT, DIGEST, N_ACTIONS, SEED, SHAPE, TEXT, Maybe, between, parse_json
from gsf.core.sealed import checked, fitting, load_checkpoint, save_checkpoint
from gsf.data.recording import MOST_LEVELS, Recording
from gsf.data.tiers import SHIPPED, find_policy, shipped_policies
from gsf.nets import encoders
from gsf.nets.runtime import pick_device
from gsf.suites import Game, facts_of, find_game

FORMAT = 1  # of a policy
POLICY = "policy.pt"
PROVENANCE = {
    "game": TEXT,
    "difficulty": str,
    "encoder": str,
    "digest": DIGEST,
    "encoder_code": Maybe((None, str)),
    "actions": Maybe(str),
    "view": Maybe(str),
    "frames": Maybe(COUNT),
    "obs_shape": Maybe(SHAPE),
    "n_actions": Maybe(N_ACTIONS),
    "config": Maybe({"start_level": SEED, "n_levels": between(1, MOST_LEVELS)}),
}


@dataclass(frozen=True)
class BehaviourPolicy:
    """A trained network; `provenance` says how it was trained, its "digest" what came of it."""

    net: ActorCritic
    provenance: dict[str, Any]

    @functools.cached_property  # to find a game is to look through all installed packages
    def facts(self) -> Game:
        """What is known of its game."""
        return _facts(self.provenance)

    @functools.cached_property
    def action_ids(self) -> NDArray[np.int64]:
        """The suite's ids of what the network chooses among."""
        return self.facts.action_ids(self.provenance.get("actions", "all"))

    @functools.cached_property
    def drawn(self) -> Mapping[str, Any]:
        """Options of an env whose images it knows: how the game is drawn."""
        view = self.provenance.get("view", "game")
        return {} if view == "game" else find_game(self.provenance["game"])[0].drawn(view)

    @torch.inference_mode()
    def logits(self, obs: NDArray[np.uint8] | Tensor) -> Tensor:
        """uint8 [n,H,W,C] -> [n,len(action_ids)], on the network's device."""
        logits: Tensor = self.net(torch.as_tensor(obs, device=self.net.policy.weight.device))[0]
        return logits

    def sample(self, obs: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.int64]:
        """An action of each row, as the suite's id: uint8 [n,H,W,C] -> [n]."""
        return self.action_ids[sample(self.logits(obs), rng)]

    def act_probs(self, obs: NDArray[np.uint8] | Tensor) -> NDArray[np.float32]:
        """pi(. | obs) over all of the suite's ids: uint8 [n,H,W,C] -> [n,A]."""
        probs = np.zeros((len(obs), len(self.facts.actions)), np.float32)
        probs[:, self.action_ids] = self.logits(obs).softmax(1).cpu().numpy()
        return probs


def save_policy(path: Path, net: ActorCritic, provenance: dict[str, Any]) -> BehaviourPolicy:
    policy = BehaviourPolicy(net, {**provenance, "digest": weights_digest(net)})
    state = {"format": FORMAT, "provenance": json.dumps(policy.provenance), "net": net.state_dict()}
    save_checkpoint(path, state)
    return policy


def load_policy(path: Path | str, device: str = "cpu") -> BehaviourPolicy:
    """A behaviour policy, from its file, from the directory of a collect that has trained it, or by
    the name of a shipped one.

    probs = load_policy("coinrun").act_probs(obs)  # uint8 [n,H,W,C] -> [n,A]
    """
    path = find_policy(path)
    path = path / POLICY if path.is_dir() else path
    if not path.is_file():
        raise UserError(f"no policy at {path}; `gsf collect` makes one.")
    state = load_checkpoint(path, {"format": int, "provenance": str, "net": dict})
    if state["format"] != FORMAT:
        raise UserError(f"{path} is not a policy of format {FORMAT}; train it again.")
    with fitting(path):
        provenance = parse_json(state["provenance"])
        if "mode" in provenance:  # the difficulty's name in older files
            provenance["difficulty"] = provenance.pop("mode")
        checked(path, provenance, PROVENANCE)
        facts = _facts(provenance)
        ids = facts.action_ids(provenance.get("actions", "all"))
        encoder = encoders.find_again(provenance["encoder"], provenance.get("encoder_code"))
        net = ActorCritic(encoder.value, facts.obs_shape, len(ids))
        net.load_state_dict(state["net"])
    if weights_digest(net) != provenance["digest"]:
        raise UserError(f"{path} is damaged: its weights fail their checksum; get it again.")
    return BehaviourPolicy(net.to(pick_device(device)), provenance)


def _facts(provenance: dict[str, Any]) -> Game:
    """Of the game a policy was trained on; that of a user's environment says its own."""
    if "obs_shape" not in provenance:
        return facts_of(provenance["game"])
    names = tuple(map(str, range(provenance["n_actions"])))
    return Game(tuple(provenance["obs_shape"]), names)


def policy_of(recording: str) -> Path | None:
    """The policy that was recorded, if it is shipped or lies beside the recording."""
    played = {take.policy.get("digest") for take in Recording.load(recording).takes}
    names = (recording, recording.removesuffix("-validation"))  # its play on other levels
    shipped = [SHIPPED / f"{name}.policy.pt" for name in names if name in shipped_policies()]
    for path in (*shipped, Path(recording).with_name(POLICY)):
        if path.is_file() and {load_policy(path).provenance["digest"]} == played:
            return path
    return None


def weights_digest(net: nn.Module) -> str:
    """Identity of a network's weights, whatever their layout in memory."""
    state = {name: x.cpu().contiguous().numpy() for name, x in net.state_dict().items()}
    return digest(*(part for name, x in state.items() for part in (name, x.tobytes())))
