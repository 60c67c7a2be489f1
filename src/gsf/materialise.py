"""Stage: recording -> pixel dataset, replayed in a stream and verified on the way.

In: a recording (file or the name of a shipped one). Out: a dataset directory, whole or not at all.
Memory does not grow with the recording's length. Needs Procgen, not torch.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

from gsf.config import require_positive, to_json
from gsf.envs import N_ACTIONS, OBS_SHAPE
from gsf.layout import DatasetWriter, read_facts
from gsf.recording import Recording, Replay, Take
from gsf.runs import UserError, console, progress

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class MaterialiseConfig:
    """Replay a recording into a dataset of pixels on disk, verifying every checksum."""

    recording: tyro.conf.Positional[str]
    """A recording file, or the name of a shipped one (see `gsf data list`)."""
    out: Path
    """Directory of the dataset to make."""
    transitions: int | None = None
    """Only so many, of the first env slots over the whole time, so that epsilon keeps its range."""
    threads: int | None = None
    """Procgen's threads; the result does not depend on it. Default: one per core."""

    def __post_init__(self) -> None:
        require_positive(self, "transitions")


def materialise(config: MaterialiseConfig) -> Path:
    recording = Recording.load(config.recording)
    source = recording.digest
    if is_materialised(config.out, source, config.transitions):
        console.print(f"{config.out} is there already.")
        return config.out
    n = config.transitions or len(recording)
    if n < len(recording):
        recording = recording.cut(n)
    dropped = len(recording) - n  # of the last slots: whole slots are replayed, n rows are kept
    kept = [
        _kept_steps(take, dropped if take is recording.takes[-1] else 0) for take in recording.takes
    ]
    mismatches, blocks = 0, 0
    with (
        DatasetWriter(
            config.out,
            name=recording.game,
            obs_shape=OBS_SHAPE,
            n_actions=N_ACTIONS,
            levels=recording.levels,
            region_frames=np.concatenate(kept).tolist(),
        ) as writer,
        progress(f"materialise {recording.game}", len(recording), "frames") as advance,
    ):
        columns: list[Columns] = []
        region = 0
        for take, steps in zip(recording.takes, kept, strict=True):
            replay = Replay(recording, take, config.threads)
            columns.append(_write_take(replay, steps, writer, region, advance))
            region += take.n_envs
            mismatches += replay.pixel_mismatches
            blocks += take.pixels.size
        rows = _join(columns, recording.levels)
        writer.finish(
            rows,
            config=to_json(config) | {"recording": str(config.recording)},
            inputs={"recording": source},
            mode=recording.mode,
            provenance=[take.policy | {"epsilon": take.epsilon} for take in recording.takes],
            pixels_match=mismatches == 0,
        )
    if mismatches:
        console.print(
            f"[yellow]warning:[/] pixels differ in {mismatches} of {blocks} checksums (another CPU "
            "or system renders differently); rewards, levels and ends are right."
        )
    console.print(f"{n:,} transitions of {recording.game} in {config.out}.")
    return config.out


def is_materialised(out: Path, source: str, transitions: int | None) -> bool:
    """Whether `out` is the dataset asked for; another one in its place is refused."""
    if not out.exists():
        return False
    manifest = read_facts(out)
    same = manifest["inputs"].get("recording") == source
    if not same or manifest["config"].get("transitions") != transitions:
        raise UserError(f"{out} holds another dataset; remove it or choose another --out.")
    return True


def _kept_steps(take: Take, dropped: int) -> NDArray[np.int64]:
    """Steps to keep of each slot: all, but `dropped` from the ends of the last slots."""
    kept = np.full(take.n_envs, take.n_steps)
    for slot in reversed(range(take.n_envs)):
        kept[slot] -= min(dropped, take.n_steps)
        dropped -= take.n_steps - kept[slot]
    return kept


def _write_take(
    replay: Replay, steps: NDArray[np.int64], writer: DatasetWriter, region: int, advance: Any
) -> Columns:
    """Writes a take's frames as they are replayed; returns its columns, each [n_envs, n_steps]."""
    parts: list[Columns] = []
    at, names = 0, ("action", "reward", "level", "terminated", "truncated")
    for block in replay:
        n = block.action.shape[1]
        for slot in range(len(steps)):
            keep = int(np.clip(steps[slot] - at, 0, n))
            if keep:
                writer.append(region + slot, block.obs[slot, :keep])
        parts.append({name: getattr(block, name).copy() for name in names})
        at += n
        advance(at * len(steps))
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in names} | {
        "steps": steps
    }


def _join(takes: list[Columns], levels: list[int]) -> Columns:
    """Columns of the whole dataset, slot after slot."""
    joined: dict[str, list[NDArray[Any]]] = {}
    episode = 0
    for take in takes:
        for slot, n in enumerate(take["steps"]):
            rows = {name: take[name][slot, :n] for name in take if name != "steps"}
            ended = rows["terminated"] | rows["truncated"]
            begun = np.concatenate([[0], np.cumsum(ended)[:-1]])  # episode number inside the slot
            starts = np.flatnonzero(np.diff(begun, prepend=-1))
            rows["episode"] = episode + begun
            rows["t"] = np.arange(n) - starts[begun]
            # Procgen shows no terminal observation, and a slot's last row has no successor.
            rows["has_next"] = ~ended & (np.arange(n) < n - 1)
            rows["level"] = np.searchsorted(levels, rows["level"])
            episode += int(begun[-1]) + 1 if n else 0
            for name, values in rows.items():
                joined.setdefault(name, []).append(values)
    columns = {name: np.concatenate(values) for name, values in joined.items()}
    return columns | {"frame": np.arange(len(columns["action"]))}
