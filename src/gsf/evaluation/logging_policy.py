"""With what probability logged actions were taken: as the data or a recorded policy says.

A recording knows its policy and epsilon, so that mu(a|o) = (1 - eps_t) p(a|o) + eps_t u(a) with u
uniform over the actions that were explored; actions that do the same are added up.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from gsf.behaviour.policy import load_policy
from gsf.core.errors import UserError
from gsf.core.logs import progress
from gsf.data.dataset import Dataset

Array = npt.NDArray[Any]
FRAMES = 512


def logged_probabilities(dataset: Dataset, policy: str | None, device: str) -> Array | None:
    """mu(a|o) of every row's action, float64 [n]; None where nobody knows it."""
    if dataset.behaviour_prob is not None:
        return np.asarray(dataset.behaviour_prob, np.float64)
    return None if policy is None else recorded_probabilities(dataset, policy, device)


def recorded_probabilities(dataset: Dataset, policy: str, device: str) -> Array:
    played = load_policy(policy, device)
    if played.drawn:
        raise UserError(
            f"{policy} saw its game drawn plainly, so the images of {dataset.path} do not tell "
            "what it would do; leave --logged-by out."
        )
    epsilon = recorded_epsilon(dataset, policy, played.provenance["digest"])
    facts, n_actions = played.facts, dataset.n_actions
    classes = facts.action_classes if n_actions < len(facts.actions) else np.arange(n_actions)
    to_class = np.eye(n_actions)[classes]  # [ids,A]
    uniform = to_class[played.action_ids].mean(0)
    chosen = np.empty(len(dataset))
    action = dataset.action.astype(np.int64)
    with progress(f"ask {policy}", len(chosen), "frames") as advance:
        for start in range(0, len(chosen), FRAMES):
            part = slice(start, start + FRAMES)
            probs = played.act_probs(dataset.obs[dataset.frame[part]]) @ to_class
            mine = action[part]
            chosen[part] = probs[np.arange(len(mine)), mine]
            advance(start + len(mine))
    mu: Array = (1 - epsilon) * chosen + epsilon * uniform[action]
    return mu


def recorded_epsilon(dataset: Dataset, policy: str, digest: str) -> Array:
    """The chance of a random action at every row. A slot's frames are in the order of its steps."""
    takes = dataset.manifest.get("provenance", [])
    if [take.get("digest") for take in takes] != [digest]:
        raise UserError(
            f"{dataset.path} is not a recording of {policy} alone; leave --logged-by out."
        )
    schedule, options = takes[0]["epsilon"], dataset.manifest["options"]
    if schedule.get("schedule") != "decay" or options.get("levels") is not None:
        raise UserError(
            f"the epsilon that {dataset.path} was recorded with is not known step by step: that "
            "needs all levels, and an epsilon that decays to 0; leave --logged-by out."
        )
    starts = np.array([region[0] for region in dataset.manifest["regions"]])
    frame = np.asarray(dataset.frame)
    step = frame - starts[np.searchsorted(starts, frame, "right") - 1]
    n_steps = round(schedule["first"] / schedule["last"])  # eps_t = first (1 - t / n_steps)
    epsilon: Array = schedule["first"] * (1 - step / n_steps)
    return epsilon
