"""Section "On unseen levels": film strips of every agent on the same levels, as evaluation plays.

Needs the games and torch: a report without them says so and goes on.
"""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gsf.core.logs import progress
from gsf.core.results import Results, Stage
from gsf.evaluation.players import UserEnv, can_play, check_fits, find_players
from gsf.evaluation.rollout import rollout
from gsf.learn.legend import colour
from gsf.nets.acting import Mode
from gsf.reporting import pictures
from gsf.reporting.page import Page, Part, data_uri, part, text
from gsf.reporting.sections.explorer import Runs
from gsf.suites import known_facts

FILM_BYTES = 3_500_000  # of all films; base64 adds a third
GAP = 2  # pixels between frames; report.js knows it too


@dataclass(frozen=True)
class Film:
    game: str
    method: str
    level: int
    result: str
    n_frames: int
    strip: bytes  # WebP, frames side by side

    def part(self) -> Part:
        name = f"{self.method} on {self.game} level {self.level}, {self.result}"
        facts = {"name": name, "method": self.method, "result": self.result}
        source = data_uri("image/webp", self.strip)
        facts |= {"colour": colour(self.method), "source": source}
        return part("film", **facts, n_frames=self.n_frames)


def films(
    runs: Runs, found: Results, rows: pd.DataFrame, mode: Mode, max_steps: int, page: Page
) -> Iterator[Part]:
    """The same few unseen levels for every method of a game."""
    played = rows[rows["split"] == "unseen"]
    levels = {
        g: sorted(set(played.loc[played["game"] == g, "level"])) for g in runs if known_facts(g)
    }
    levels = {game: own for game, own in levels.items() if own}
    if runs.keys() - levels.keys():
        without = ", ".join(sorted(runs.keys() - levels.keys()))
        page.problems.append(
            f"No films of {without}: no unseen levels played, or no suite has it; your environment "
            "is named with --env."
        )
    n_agents = sum(len(runs[game]) + 1 for game in levels)
    if not n_agents:
        return
    n_levels = max(1, min(3, 60 // n_agents))
    limit = FILM_BYTES // (n_agents * n_levels)
    shown: list[Film] = []
    with progress("films", n_agents, "agents") as advance:
        for game, own in levels.items():
            chosen = [int(level) for level in own[:n_levels]]
            for run in (None, *runs[game].values()):
                dataset = found.dataset_of(run or next(iter(runs[game].values())))
                who = run.path if run else f"random play of {game}"
                with page.attempt(f"{who}: no film"):
                    options: Any = {"max_steps": max_steps, "limit": limit}
                    shown += film(game, run, dataset, chosen, mode, **options)
                advance(len({(f.game, f.method) for f in shown}))
    if not shown:
        return
    yield text(
        f"The run with the lowest seed of every method on the same unseen levels, {_manner(mode)}; "
        f"frames evenly over the episode, or over its first {max_steps} steps.",
        "note",
    )
    for game in dict.fromkeys(f.game for f in shown):
        parts = []
        for level in dict.fromkeys(f.level for f in shown if f.game == game):
            parts.append(part("heading", words=f"{game}, unseen level {level}"))
            parts += [f.part() for f in shown if (f.game, f.level) == (game, level)]
        yield part("details", summary=game, parts=parts, is_open=game == shown[0].game)


def _manner(mode: Mode) -> str:
    if mode == "greedy":
        return "greedy actions"
    own = "the run's own temperature" if mode == "sampled" else mode.replace("sampled-", "")
    return f"actions sampled at {own}"


def play_in(env: str, runs: Runs) -> None:
    """The user's environment, for the games that no suite has."""
    for game, of_game in runs.items():
        run = next(iter(of_game.values()))
        if not can_play(run.manifest):
            check_fits(str(run.path), run.manifest, env, UserEnv(env, 0).host(game))


def film(
    game: str,
    run: Stage | None,
    dataset: Stage | None,
    levels: Sequence[int],
    mode: Mode,
    *,
    max_steps: int,
    limit: int,
) -> list[Film]:
    """One film per level, of random play where there is no run. `limit`: bytes of each."""
    known = dataset.path if dataset else None  # it says the difficulty
    if run is None:
        player = find_players("random", game=game, dataset=known)[0]
    else:
        player = find_players(str(run.path), dataset=known, device="cpu")[0]
    films = []
    for level, (frames, result) in zip(levels, _play(player, levels, mode, max_steps), strict=True):
        chosen = [frames[i] for i in pick(len(frames), limit // pictures.BYTES)]
        strip = pictures.sheet(chosen, len(chosen), limit, GAP)
        films.append(Film(game, player.method, level, result, len(chosen), strip))
    return films


def pick(n: int, wanted: int) -> list[int]:
    """At least 8 and at most 24 of n frames, evenly, the first and the last among them."""
    n_shown = min(n, max(8, min(wanted, 24)))
    chosen: list[int] = np.linspace(0, n - 1, n_shown).round().astype(int).tolist()
    return chosen


def _play(
    player: Any, levels: Sequence[int], mode: Mode, max_steps: int
) -> list[tuple[list[NDArray[np.uint8]], str]]:
    """Frames of the first `max_steps` steps of every level, and how it went."""
    frames: list[list[NDArray[np.uint8]]] = [[] for _ in levels]
    total, over = np.zeros(len(levels)), [""] * len(levels)
    options: dict[str, Any] = {"difficulty": player.difficulty, "threads": 0}
    at = player.at(mode)
    steps = rollout(player.actor, player.game, levels, at, seed=player.seed, **options)
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
