"""A recording played again for `gsf similar`: what the policy would do, values, latent states."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsf.core.errors import UserError
from gsf.core.logs import progress
from gsf.core.stage import check_files, read_manifest
from gsf.data.format import read_facts
from gsf.data.recording import Recording, Take
from gsf.data.replay import Replay
from gsf.gvf.monte_carlo import monte_carlo
from gsf.suites import make_env

Array = NDArray[Any]


@dataclass(frozen=True)
class Plays:
    """What was played, a row for each step: a slot after the other, a take after the other."""

    take: NDArray[np.int64]
    slot: NDArray[np.int64]
    step: NDArray[np.int64]  # of the vector env
    level: NDArray[np.int64]
    episode: NDArray[np.int64]
    action: NDArray[np.int64]
    probs: NDArray[np.float32]  # [n,A], of the policy
    value: NDArray[np.float32]  # NaN: not known


class FitValues:
    """A fit's values, looked up by take and slot of the recording behind its dataset."""

    def __init__(self, gvf: Path, dataset: Path | None, recording: Recording) -> None:
        manifest = read_manifest(gvf, "gvf")
        dataset = dataset or Path(manifest["config"]["dataset"])
        facts = read_facts(dataset)
        if facts["digest"] != manifest["inputs"]["dataset"]:
            raise UserError(f"{gvf} was fitted on another dataset; give it as --dataset.")
        if facts["inputs"].get("recording") != recording.digest:
            raise UserError(f"{dataset}, which {gvf} is of, was made of another recording.")
        check_files(gvf, manifest)
        self._values: Array = np.load(gvf / "values.npy", allow_pickle=False)
        if self._values.ndim != 1:
            raise UserError(
                f"{gvf} ranks {self._values.shape[1]} components; give a fit with one value "
                "per observation, such as that of the reward."
            )
        self.digest: str = manifest["digest"]
        if facts["config"].get("levels"):
            raise UserError(f"{dataset} holds some levels only; give a fit of all of them.")
        kept = facts["config"].get("transitions")
        cut = recording.cut(kept) if kept else recording
        slots = [(take, slot) for take, x in enumerate(cut.takes) for slot in range(x.n_envs)]
        self._rows = {
            slot: (start, stop) for slot, (start, stop) in zip(slots, facts["regions"], strict=True)
        }

    def in_slot(self, take: int, slot: int, n_steps: int) -> NDArray[np.float32]:
        """A slot's values, step by step; NaN where the dataset does not hold the step."""
        found = np.full(n_steps, np.nan, np.float32)
        start, stop = self._rows.get((take, slot), (0, 0))
        found[: stop - start] = self._values[start:stop]
        return found


def replay(recording: Recording, policy: Any, values: FitValues | None, gamma: float) -> Plays:
    """Plays a recording again, verified by its checksums on the way."""
    parts = []
    episodes = 0
    with progress("replay", len(recording), "frames") as advance:
        done = 0
        for number, take in enumerate(recording.takes):
            blocks = []
            for block in Replay(recording, take, drawn=policy.drawn):
                n_envs, n = block.action.shape
                probs = policy.act_probs(block.obs.reshape(-1, *block.obs.shape[2:]))
                names = ("level", "action", "reward", "terminated", "truncated")
                facts = {name: getattr(block, name).copy() for name in names}
                blocks.append(facts | {"probs": probs.reshape(n_envs, n, -1)})
                done += block.action.size
                advance(done)
            joined = {k: np.concatenate([x[k] for x in blocks], axis=1) for k in blocks[0]}
            for slot in range(take.n_envs):
                rows = {name: column[slot] for name, column in joined.items()}
                ended = rows.pop("terminated"), rows.pop("truncated")
                rows["episode"] = episodes + np.cumsum(np.append(False, (ended[0] | ended[1])[:-1]))
                episodes = int(rows["episode"][-1]) + 1
                reward = rows.pop("reward")[:, None]
                rows["value"] = (
                    monte_carlo(reward, rows["episode"], ended[0], gamma)[:, 0]
                    if values is None
                    else values.in_slot(number, slot, take.n_steps)
                )
                where = {"take": number, "slot": slot}
                rows |= {name: np.full(take.n_steps, x) for name, x in where.items()}
                parts.append(rows | {"step": np.arange(take.n_steps)})
    return Plays(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


Looked = dict[int, Any]


def look(recording: Recording, plays: Plays, rows: Iterable[int]) -> tuple[Looked, Looked]:
    """Latent state (bytes) and frame of the rows, by a second replay."""
    states: Looked = {}
    frames: Looked = {}
    row_at = {(plays.take[r], plays.step[r], plays.slot[r]): r for r in sorted(set(rows))}
    for number, take in enumerate(recording.takes):
        steps = sorted({int(step) for t, step, _ in row_at if t == number})
        if steps:
            _look_at(recording, number, take, steps, row_at, states, frames)
    return states, frames


def _look_at(
    recording: Recording,
    number: int,
    take: Take,
    steps: list[int],
    row_at: dict[tuple[int, int, int], int],
    states: Looked,
    frames: Looked,
) -> None:
    env = make_env(
        recording.game, take.levels, take.n_envs, take.seed, difficulty=recording.difficulty
    )
    asked = set(steps)
    obs, _ = env.reset()
    for step in range(steps[-1] + 1):
        if step in asked:
            latent = env.latent_state()
            for slot in range(take.n_envs):
                if (row := row_at.get((number, step, slot))) is not None:
                    states[row], frames[row] = latent[slot], obs[slot]
        obs, *_ = env.step(take.actions[step])
    env.close()
