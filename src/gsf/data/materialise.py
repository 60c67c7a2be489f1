"""Stage: recording -> pixel dataset, replayed in a stream and verified on the way.

In: a recording (file or the name of a shipped one). Out: a dataset directory, whole or not at all.
Memory does not grow with the recording's length. Needs the suite, not torch.
"""

import itertools
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsf.core.code import decided_by
from gsf.core.errors import UserError
from gsf.core.logs import console, progress
from gsf.core.stage import Identity
from gsf.data.options import MaterialiseConfig as MaterialiseConfig
from gsf.data.played import PlayWriter
from gsf.data.recording import Recording
from gsf.data.replay import Replay
from gsf.suites import find_game, looks
from gsf.suites.looks import Draw, named, wardrobe

Mask = NDArray[np.bool_]


def materialise(config: MaterialiseConfig) -> Path:
    """Replays a recording into a dataset directory, verifying every frame; returns its path.

    materialise(MaterialiseConfig("coinrun", out=Path("dataset"), transitions=100_000))
    """
    recording = Recording.load(config.recording)
    drawing = {} if config.looks is None else decided_by(looks.__name__)  # all else is verified
    identity = Identity.of("dataset", config, {"recording": recording.digest} | drawing)
    if identity.is_done(config.out):
        console.print(f"{config.out} is there already.", soft_wrap=True)
        return config.out
    levels = _first_levels(recording, config.levels)
    facts = recording.find_suite().games[find_game(recording.game)[1]]
    drawn = _looks(recording, levels, config)
    recording, kept = _choose(recording, levels, config)
    actions = facts.action_ids(config.actions)
    position = facts.action_classes if config.actions == "distinct" else actions
    n_kept = [int(n) for mask in kept for n in mask.sum(1)]
    with PlayWriter(
        config.out,
        n_kept * config.views,
        position,
        **({"levels": levels, "name": recording.game} | drawn),
        obs_shape=facts.obs_shape,
        n_actions=len(actions),
    ) as play:
        mismatches = _replay(recording, config, kept, play)
        play.finish(
            identity,
            difficulty=recording.difficulty,
            actions=actions.tolist(),  # action i of the dataset is the suite's actions[i]
            provenance=[take.policy | {"epsilon": take.epsilon} for take in recording.takes],
            pixels_match=None if drawn else mismatches == 0,
        )
    if mismatches:
        blocks = sum(take.pixels.size for take in recording.takes)
        console.print(
            f"[yellow]warning:[/] pixels differ in {mismatches} of {blocks} checksums (another CPU "
            "or system renders differently); rewards, levels and ends are right.",
            soft_wrap=True,
        )
    n = sum(n_kept) * config.views
    console.print(f"{n:,} transitions of {recording.game} in {config.out}.", soft_wrap=True)
    return config.out


def _first_levels(recording: Recording, n: int | None) -> list[int]:
    levels = recording.levels
    if n is not None and n > len(levels):
        raise UserError(f"cannot take {n} levels of a recording that has {len(levels)}.")
    return levels[:n]


def _looks(
    recording: Recording, levels: Sequence[int], config: MaterialiseConfig
) -> dict[str, Any]:
    """What a dataset drawn in looks is called, and its contexts."""
    if config.looks is None:
        return {}
    wardrobe(config.look_kind, recording.game).check(config.looks, config.first_look)
    if list(levels) != list(range(len(levels))):
        raise UserError(f"--looks needs play on levels from 0 on; {levels[0]} is the first here.")
    name = named(recording.game, config.look_kind, len(levels))
    return {"levels": range(config.first_look, config.first_look + config.looks), "name": name}


def _choose(
    recording: Recording, levels: Sequence[int], config: MaterialiseConfig
) -> tuple[Recording, list[Mask]]:
    """The slots to replay, and which of their steps [n_envs, n_steps] to keep, take by take."""
    kept = [np.ones((take.n_envs, take.n_steps), bool) for take in recording.takes]
    if config.levels is not None:  # which level a step is of is only known after a replay
        for mask, take in zip(kept, recording.takes, strict=True):
            at = 0
            for block in Replay(recording, take, config.threads):
                n = block.level.shape[1]
                mask[:, at : at + n] = np.isin(block.level, levels)
                at += n
    total = sum(int(mask.sum()) for mask in kept)
    wanted = config.transitions or total
    if not 0 < wanted <= total:
        raise UserError(f"cannot take {wanted} transitions of a recording that has {total}.")
    slots = []
    for mask in kept:  # whole slots; of each take its share
        share = wanted * int(mask.sum()) / total
        slots.append(1 + int(np.searchsorted(mask.sum(1).cumsum(), share - 1e-6)))
    kept = [mask[:n] for mask, n in zip(kept, slots, strict=True)]
    dropped = sum(int(mask.sum()) for mask in kept) - wanted
    for steps in (steps for mask in reversed(kept) for steps in reversed(mask)):
        last = np.flatnonzero(steps)[::-1][:dropped]
        steps[last] = False
        dropped -= len(last)
    return recording.first_slots(slots), kept


def _replay(
    recording: Recording, config: MaterialiseConfig, kept: Sequence[Mask], play: PlayWriter
) -> int:
    """Writes a block while the next one is played; returns mismatches."""
    mismatches, slot, done = 0, 0, 0
    views = [*itertools.product(range(config.views), zip(recording.takes, kept, strict=True))]
    n_frames = len(recording) * config.views
    with (
        progress(f"materialise {recording.game}", n_frames, "frames") as advance,
        ThreadPoolExecutor(1) as aside,
    ):
        for view, (take, mask) in views:
            drawn = None
            if config.looks is not None:
                seed = config.look_seed + take.seed
                drawn = Draw(config.look_kind, config.looks, seed, view, config.first_look)
            replay, at = Replay(recording, take, config.threads, drawn), 0
            pending: Future[Any] = aside.submit(int)
            for block in replay:
                pending.result()  # a block's buffer is played into again two blocks later
                n = block.action.shape[1]
                pending = aside.submit(play.write, block, slot, mask[:, at : at + n])
                at += n
                done += block.action.size
                advance(done)
            pending.result()
            slot += take.n_envs
            mismatches += replay.pixel_mismatches
    return mismatches
