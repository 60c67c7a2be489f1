"""One episode on each level, as a table: what `gsf evaluate` plays, for any agent."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
import pandas as pd

from gsf.core.interrupts import Stop
from gsf.core.options import Seed, between
from gsf.evaluation.rollout import Actor, Array, rollout
from gsf.evaluation.rows import RESULTS


def evaluate_agent(
    agent: Actor,
    game: str,
    levels: Sequence[int],
    temperature: float | Sequence[float] | Array = 0.0,
    *,
    seed: Seed = 0,
    n_envs: Annotated[int, between(1, 4096)] = 100,
    difficulty: str | None = None,
    threads: int | None = None,
    max_frames: int | None = None,
    count: Callable[[int, int], None] | None = None,
    stop: Stop | None = None,
) -> pd.DataFrame:
    """One episode on each level, in the order given: level, temperature, then rows.RESULTS.

    evaluate_agent(load_agent("run"), "coinrun", range(1_000_000, 1_000_100))["return"].mean()

    `agent` is anything with policy(obs, temperature), see `Actor`. `temperature`: 0 is greedy; one,
    or one for each of the levels. `count` hears of episodes ended and frames. Asked to `stop`, it
    returns the episodes that are over.
    """
    m = len(levels)
    returns, length, entropy = np.zeros(m), np.zeros(m, np.int64), np.zeros(m)
    completed, over = np.zeros(m, bool), np.zeros(m, bool)
    options: dict[str, Any] = {"n_envs": n_envs, "difficulty": difficulty, "threads": threads}
    options |= {"max_frames": max_frames, "seed": seed}
    with contextlib.closing(rollout(agent, game, levels, temperature, **options)) as steps:
        for step in steps:
            returns[step.at] += step.reward
            length[step.at] += 1
            entropy[step.at] += step.entropy
            completed[step.at], over[step.at] = step.completed, step.ended
            if count is not None:
                count(int(step.ended.sum()), len(step.at))
            if stop is not None and stop.asked:
                break
    played = {"level": levels, "temperature": np.broadcast_to(temperature, m)}
    results = (returns, length, completed, (entropy / length.clip(1)).round(4))
    found = pd.DataFrame(played | dict(zip(RESULTS, results, strict=True)))
    return found[over].reset_index(drop=True)
