"""An agent, as it acts: `load_agent(run).act(obs)` is what comes out of training."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from gsf.core.errors import UserError
from gsf.core.files import load_checkpoint
from gsf.core.stage import read_manifest
from gsf.learn.learner import AgentConfig, make_networks
from gsf.nets.encoders import Encoder
from gsf.nets.heads import Critic, Policy

ACT_BATCH = 512  # images encoded at once, so that memory does not grow with the number of envs


Array = npt.NDArray[Any]


Mode = Literal["greedy", "sampled"]


@dataclass(frozen=True, eq=False)
class Agent:
    """A trained policy. Images are uint8 [n,H,W,C], or [H,W,C] for one; nothing is cropped."""

    encoder: Encoder
    head: Critic | Policy
    obs_shape: tuple[int, ...]
    n_actions: int
    method: str
    step: int
    device: str = "cpu"

    def act(
        self, obs: Array, mode: Mode = "greedy", uniform: Array | np.random.Generator | None = None
    ) -> Array:
        """Actions, int64 [n] (or one). sampled draws at temperature 1 by `uniform`.

        `uniform`: one number in [0, 1) per image, or the generator to draw them from.
        """
        scores = self.scores(obs)
        if mode == "greedy":
            return np.asarray(scores.argmax(-1))[()]
        if mode != "sampled" or uniform is None:
            raise ValueError("mode is greedy, or sampled with uniform=numbers or a generator")
        cdf = torch.from_numpy(scores).double().softmax(-1).cumsum(-1).numpy()
        if isinstance(uniform, np.random.Generator):
            uniform = uniform.random(cdf.shape[:-1])
        below = cdf <= np.asarray(uniform)[..., None]
        return np.asarray(np.minimum(below.sum(-1), self.n_actions - 1))[()]

    def scores(self, obs: Array) -> Array:
        """What actions are chosen by, float32 [n,A]: min of the critics, or BC's logits."""
        out = self.head(torch.from_numpy(self.embed(obs)).to(self.device))
        scores = torch.minimum(*out) if isinstance(out, tuple) else out
        array: Array = scores.detach().cpu().numpy()
        return array

    @torch.no_grad()
    def embed(self, obs: Array) -> Array:
        """z, float32 [n,256] (or [256])."""
        images = np.require(obs, requirements=["C", "W"])  # torch warns about read-only arrays
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
    """The agent of a run directory, at its latest checkpoint or at a kept step."""
    run = Path(run)
    manifest = read_manifest(run, "run", whole=False)
    name = "checkpoint.pt" if step is None else f"checkpoints/step_{step}.pt"
    state = load_run_checkpoint(run / name, manifest["method"])
    config = AgentConfig(
        **{k: manifest["config"][k] for k in ("method", "base", "encoder", "critic")}
    )
    obs_shape, n_actions = tuple(manifest["obs_shape"]), int(manifest["n_actions"])
    encoder, head = make_networks(config, obs_shape, n_actions)
    encoder.load_state_dict(state["encoder"])
    head.load_state_dict(state["head"])
    for module in (encoder, head):
        module.to(device).eval().requires_grad_(False)
    return Agent(encoder, head, obs_shape, n_actions, config.method, state["step"], device)


def load_run_checkpoint(path: Path, method: str) -> dict[str, Any]:
    """A checkpoint of this method and no other."""
    state = load_checkpoint(path)
    if state.get("method") != method:
        raise UserError(
            f"{path} is a checkpoint of method {state.get('method')}, but its run is of {method}; "
            "put the right file back or train again into another --out."
        )
    return state
