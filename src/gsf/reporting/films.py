"""Film strips: every agent on the same unseen levels, as `gsf evaluate` has it play them.

Needs the games and torch, imported late: a report without them says so and goes on.
"""

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gsf.reporting import pictures
from gsf.reporting.sources import Stage

GAP = 2  # pixels between frames; report.js knows it too


@dataclass(frozen=True)
class Film:
    game: str
    method: str
    level: int
    result: str
    n_frames: int
    strip: bytes  # WebP, frames side by side


def film(
    game: str,
    run: Stage | None,
    dataset: Stage | None,
    levels: Sequence[int],
    mode: Literal["greedy", "sampled"],
    *,
    max_steps: int,
    limit: int,
) -> list[Film]:
    """One film per level, of random play where there is no run. `limit`: bytes of each."""
    from gsf.evaluation.players import find_players

    place = dataset.path if dataset else None  # it knows the difficulty
    if run is None:
        player = find_players("random", game=game, dataset=place)[0]
    else:
        player = find_players(str(run.path), dataset=place, device="cpu")[0]
    films = []
    for level, (frames, result) in zip(levels, _play(player, levels, mode, max_steps), strict=True):
        chosen = [frames[i] for i in pick(len(frames), limit // pictures.BYTES)]
        strip = pictures.sheet(chosen, len(chosen), limit, GAP)
        films.append(Film(game, player.method, level, result, len(chosen), strip))
    return films


def pick(n: int, wanted: int) -> list[int]:
    """At least 8 and at most 24 of n frames, evenly, the first and the last among them."""
    n_shown = min(n, max(8, min(wanted, 24)))
    places: list[int] = np.linspace(0, n - 1, n_shown).round().astype(int).tolist()
    return places


def _play(
    player: Any, levels: Sequence[int], mode: Literal["greedy", "sampled"], max_steps: int
) -> list[tuple[list[NDArray[np.uint8]], str]]:
    """Frames of the first `max_steps` steps of every level, and how it went."""
    from gsf.evaluation.rollout import rollout

    frames: list[list[NDArray[np.uint8]]] = [[] for _ in levels]
    total, over = np.zeros(len(levels)), [""] * len(levels)
    options: dict[str, Any] = {"difficulty": player.difficulty, "threads": 0}
    steps = rollout(player.actor, player.game, levels, mode, seed=player.seed, **options)
    with contextlib.closing(steps):
        for step in itertools.islice(steps, max_steps):
            total[step.at] += step.reward
            for slot, i in enumerate(step.at):
                frames[i].append(step.obs[slot])
                if step.ended[slot]:
                    how = "completed" if step.completed[slot] else "ended"
                    over[i] = f"return {total[i]:g}, {how} after {len(frames[i])} steps"
    so_far = [f"return {x:g} in the first {max_steps} steps" for x in total]
    return [(frames[i], over[i] or so_far[i]) for i in range(len(levels))]
