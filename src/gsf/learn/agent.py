"""An agent, as it acts: `load_agent(run).act(obs)` is what comes out of training."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gsf.core.errors import UserError
from gsf.core.images import as_trained
from gsf.core.options import from_json
from gsf.core.schema import COUNT, NUMBER
from gsf.core.sealed import fitting, load_checkpoint, read_json
from gsf.core.stage import read_manifest
from gsf.learn import bases
from gsf.learn.context import Past, Spec
from gsf.learn.memory import Memory
from gsf.nets import encoders
from gsf.nets.acting import CHOSEN, Mode, sample, temperature_of, tempered
from gsf.nets.encoders import Encoder

ACT_BATCH = 512  # images encoded at once, so that memory does not grow with the number of envs


Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Agent:
    """A trained policy. Images are uint8 [n,H,W,C], or [H,W,C] for one; nothing is cropped.

    Channels may also come first, or be left out where there is one.
    """

    encoder: Encoder
    base: bases.Base
    obs_shape: tuple[int, ...]
    n_actions: int
    method: str
    step: int
    device: str = "cpu"
    actions: tuple[int, ...] | None = None  # the env's ids of its actions; None: 0..n_actions-1
    temperature: float = 1.0  # of sampled actions: the run's own, once it has been evaluated
    rng: np.random.Generator = field(default_factory=np.random.default_rng)

    def act(
        self,
        obs: Array,
        mode: Mode = "greedy",
        uniform: Array | np.random.Generator | None = None,
        memory: Memory | None = None,
    ) -> Array:
        """Actions as the env calls them, int64 [n] (or one): the best ones, or drawn.

        `sampled` draws at the agent's temperature, `sampled-1` at 1. `uniform`: one number in
        [0, 1) per image, or the generator to draw them from; by default the agent's own.
        `memory`: of these slots' episodes, without which every image is an episode's first. Only
        `dt` acts by it; for any agent this is right:

            memory = agent.memory(len(obs))
            action = agent.act(obs, memory=memory)  # then a step of the env, and
            memory.after(action, reward, terminated | truncated)
        """
        policy = self.policy(obs, temperature_of(mode, self.temperature), memory)
        if uniform is None or isinstance(uniform, np.random.Generator):
            uniform = (uniform or self.rng).random(policy.shape[:-1])
        return sample(policy, uniform)

    def memory(self, n: int = 1) -> Memory:
        """Of n slots, whose episodes begin."""
        z_dim = self.encoder.z_dim
        ids = range(self.n_actions) if self.actions is None else self.actions
        return Memory(n, max(1, self.base.memory), z_dim, ids)

    def policy(self, obs: Array, temperature: float | Array, memory: Memory | None = None) -> Array:
        """pi(. | obs) over the env's ids of actions, float64 [n,A]; temperature 0: the best one."""
        chosen = tempered(self.scores(obs, memory), temperature)
        if self.actions is None:
            return chosen
        by_id = np.zeros((*chosen.shape[:-1], max(self.actions) + 1))
        by_id[..., list(self.actions)] = chosen
        return by_id

    def scores(self, obs: Array, memory: Memory | None = None) -> Array:
        """What actions are chosen by, float32 [n,A]: the base says what that is."""
        z = self.embed(obs)
        if memory is None:
            return self.scores_of(z)
        found = self.scores_in(memory.see(z.reshape(-1, z.shape[-1])))
        return found.reshape(*z.shape[:-1], -1)

    def scores_in(self, past: Past) -> Array:
        """The same of agents that remember their episode."""
        array: Array = (
            self.base.scores_in(past.map(lambda x: x.to(self.device))).detach().cpu().numpy()
        )
        return array

    def scores_of(self, z: Array) -> Array:
        """The same from z, float32 [n,256] -> [n,A]."""
        z_of_one = z.ndim == 1
        rows = torch.from_numpy(z[None] if z_of_one else z).to(self.device)
        array: Array = self.base.scores(rows).detach().cpu().numpy()
        return array[0] if z_of_one else array

    @torch.no_grad()
    def embed(self, obs: Array) -> Array:
        """z, float32 [n,256] (or [256])."""
        images = as_trained(np.asarray(obs), self.obs_shape)
        images = np.require(images, requirements=["C", "W"])  # torch warns about read-only arrays
        if images.dtype != np.uint8 or images.shape[-3:] != self.obs_shape:
            raise UserError(
                f"the agent sees uint8 images {list(self.obs_shape)}, "
                f"not {images.dtype} {list(images.shape)}."
            )
        parts = torch.split(torch.from_numpy(images.reshape(-1, *self.obs_shape)), ACT_BATCH)
        z = torch.cat([self.encoder(part.to(self.device)).cpu() for part in parts])
        array: Array = z.numpy().reshape(*images.shape[:-3], -1)
        return array


def load_agent(run: Path | str, step: int | None = None, device: str = "cpu") -> Agent:
    """The agent of a run directory, at its latest checkpoint or at a kept step.

    action = load_agent("run").act(obs)  # uint8 [n,H,W,C] -> int64 [n]
    """
    run = Path(run)
    manifest = read_manifest(run, "run", whole=False)
    name = "checkpoint.pt" if step is None else f"checkpoints/step_{step}.pt"
    state = load_run_checkpoint(run / name, manifest["method"])
    config = manifest["config"]
    found = encoders.find_again(config["encoder"], manifest["inputs"].get("encoder"))
    spec = Spec(
        obs_shape=tuple(manifest["obs_shape"]),
        n_actions=int(manifest["n_actions"]),
        n_levels=len(manifest["levels"]),
        gamma=config["gamma"],
        z_dim=found.value.z_dim,
        head=config["head"],
        encoder=found.value,
        reward_scale=manifest["reward_scale"],
    )
    name = manifest["options"]["on"]
    kind = bases.find_again(config["on"], manifest["inputs"].get(name)).value
    encoder = Encoder(spec.obs_shape, found.value)
    base = kind(from_json(kind.Config, config["parts"][name]), spec)
    with fitting(run / name):
        encoder.load_state_dict(state["encoder"])
        base.load_state_dict(state["base"])
    for module in (encoder, base):
        module.to(device).eval().requires_grad_(False)
    return Agent(
        encoder,
        base,
        spec.obs_shape,
        spec.n_actions,
        manifest["method"],
        state["step"],
        device,
        tuple(manifest["actions"]) if manifest.get("actions") else None,
        read_temperature(run, state["step"]) or 1.0,
        np.random.default_rng(manifest["seed"]),
    )


def read_temperature(run: Path, step: int) -> float | None:
    """What `gsf evaluate` chose for the network of this step; None: nothing yet."""
    chosen = read_temperatures(run).get(str(step))
    return None if chosen is None else float(chosen["temperature"])


def read_temperatures(run: Path) -> dict[str, Any]:
    """By step."""
    path = run / CHOSEN
    return read_json(path, {str: {"temperature": NUMBER}}) if path.is_file() else {}


CHECKPOINT = {"method": str, "step": COUNT, "encoder": dict, "base": dict}


def load_run_checkpoint(path: Path, method: str) -> dict[str, Any]:
    """A checkpoint of this method and no other."""
    state = load_checkpoint(path, CHECKPOINT)
    if state["method"] != method:
        raise UserError(
            f"{path} is a checkpoint of method {state['method']}, but its run is of {method}; "
            "put the right file back or train again into another --out."
        )
    return state
