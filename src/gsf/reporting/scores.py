"""Evaluation rows of one split and mode, arranged as [seeds, levels] per method and game.

Every trained run at the same step, on the same levels in the same order; what had to be left out
for that is said in `notes`.
"""

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gsf.core.errors import UserError
from gsf.evaluation.rows import MODES, REFERENCES
from gsf.learn.legend import in_order
from gsf.reporting.gather import missing_runs
from gsf.suites import LEAST_WAY, known_facts

Array = NDArray[np.float64]
LEAST_LEVELS = 100  # seen levels that a recorded player has to have played to be judged by them


@dataclass(frozen=True)
class Scores:
    """Raw returns of one split and mode at one point of training."""

    split: str
    mode: str
    returns: dict[str, dict[str, Array]]  # method -> game -> [seeds, levels]
    seeds: dict[str, dict[str, tuple[int, ...]]]
    steps: dict[str, int]  # game -> gradient steps of its trained runs
    games: tuple[str, ...]  # those that every trained method has: aggregates are over them
    notes: tuple[str, ...]  # what is missing and was left out
    caveats: tuple[str, ...]  # what is there and was left out on purpose
    temperatures: dict[str, tuple[float, ...]]  # at which each method's actions were drawn
    entropy: dict[str, dict[str, Array]]  # method -> game -> [seeds]: of the play, in nats
    weak: frozenset[str]  # games left out of means: their player is too near random play
    is_raw: bool = False  # no min-max scores: one game needs none

    @property
    def methods(self) -> list[str]:
        """Methods with runs of all `games`: only these can be aggregated."""
        return [m for m, by_game in self.returns.items() if set(self.games) <= set(by_game)]

    @functools.cached_property
    def ranges(self) -> dict[str, tuple[float, float]] | None:
        """Game -> least and most return; None if a game has none: then returns stay as they are."""
        if self.is_raw:
            return None
        games = {game for by_game in self.returns.values() for game in by_game}
        facts = {game: known_facts(game) for game in games}
        found = {g: x.score_range for g, x in facts.items() if x and x.score_range}
        return found if len(found) == len(games) else None

    @property
    def unit(self) -> str:
        return "return" if self.ranges is None else "min-max score"

    @property
    def actions(self) -> str:
        """How actions were chosen, for a caption."""
        if self.mode == "greedy":
            return "greedy actions"
        drawn = {m: x for m, x in self.temperatures.items() if m not in REFERENCES}
        return f"actions sampled at temperature {spell((drawn or self.temperatures).values())}"

    def n_seeds(self, method: str, games: Iterable[str] | None = None) -> int:
        return min(len(self.seeds[method][g]) for g in (self.games if games is None else games))

    def normalise(self, game: str, x: Array) -> Array:
        low, high = self.ranges[game] if self.ranges else (0.0, 1.0)
        return (x - low) / (high - low)

    def run_means(self, method: str, game: str) -> Array:
        """[seeds]: mean over levels. One run, one number."""
        means: Array = self.returns[method][game].mean(axis=1)
        return means


def spell(temperatures: Iterable[Iterable[float]]) -> str:
    """The least and the most of them: 0.35-0.7."""
    found = {x for some in temperatures for x in some}
    return "-".join(f"{x:g}" for x in sorted({min(found), max(found)}))


def scores(
    rows: pd.DataFrame, split: str = "unseen", mode: str = "greedy", step: int | None = None
) -> Scores:
    """Runs at `step`, by default at `last_steps`; what is left out is in `notes`."""
    left_out: dict[str, list[str]] = {}
    part = _select(rows, split, mode, step, left_out)
    returns: dict[str, dict[str, Array]] = {}
    seeds: dict[str, dict[str, tuple[int, ...]]] = {}
    entropy: dict[str, dict[str, Array]] = {}
    for game, group in part.groupby("game", observed=True, sort=True):
        for method, runs in _by_level(group, str(game), split, left_out).items():
            seeds.setdefault(method, {})[str(game)] = runs.seeds
            returns.setdefault(method, {})[str(game)] = runs.returns
            entropy.setdefault(method, {})[str(game)] = runs.entropy
    methods = in_order(returns)
    trained_in = {game for m in methods if m not in REFERENCES for game in returns[m]}
    weak, caveats = _weak_games(rows, trained_in)
    games, notes = _common_games({m: set(returns[m]) - weak for m in methods})
    notes = [f"{why}: {', '.join(x)}." for why, x in left_out.items()] + notes
    trained = part[~part["method"].isin(REFERENCES)]
    last = trained.groupby("game", observed=True)["step"].max()
    steps = {str(game): int(step) for game, step in last.items()}
    ordered = {m: returns[m] for m in methods}
    drawn = part.groupby("method", observed=True)["temperature"].unique()
    temperatures = {m: tuple(map(float, sorted(drawn[m]))) for m in methods}
    return Scores(
        split=split,
        mode=mode,
        returns=ordered,
        seeds=seeds,
        steps=steps,
        games=tuple(games),
        notes=tuple(notes),
        caveats=tuple(caveats),
        temperatures=temperatures,
        entropy=entropy,
        weak=frozenset(weak),
    )


def last_steps(rows: pd.DataFrame) -> dict[str, int]:
    """Game -> the last step of trained runs that all splits and modes played there have in common.

    So a gap between splits is between the same networks, also where an evaluation was cut short.
    """
    found: dict[str, int] = {}
    trained = rows[~rows["method"].isin(REFERENCES)]
    for game, group in trained.groupby("game", observed=True):
        by_kind = group.groupby(["split", "mode"], observed=True)["step"]
        common = set.intersection(*(set(steps) for _, steps in by_kind))
        if common:
            found[str(game)] = max(common)
    return found


def _select(
    rows: pd.DataFrame, split: str, mode: str, step: int | None, left_out: dict[str, list[str]]
) -> pd.DataFrame:
    """Rows of every trained run at the same step, and of the references at theirs."""
    is_reference = rows["method"].isin(REFERENCES)
    trained = rows[~is_reference & (rows["split"] == split) & (rows["mode"] == mode)]
    if step is None:
        own = trained.groupby("game", observed=True)["step"].transform("max")
        last = trained["game"].astype(str).map(last_steps(rows)).fillna(own)
        chosen = trained[trained["step"] == last]
    else:
        chosen = trained[trained["step"] == step]
    everyone = rows[~is_reference]
    grid = [sorted(set(everyone[name])) for name in ("game", "method", "seed")]
    nowhere = set(missing_runs(everyone, *grid))  # `report` names them once
    absent = set(missing_runs(trained, *grid))
    behind = "left out, behind the others" if step is None else f"not evaluated at step {step}"
    for run in [run for run in missing_runs(chosen, *grid) if run not in nowhere]:
        why = f"no {split} rows with {mode} actions" if run in absent else behind
        left_out.setdefault(why, []).append(run)
    parts = [chosen]
    for name in REFERENCES:
        reference = rows[(rows["method"] == name) & (rows["split"] == split)]
        asked = "sampled" if name == "random" else mode  # random play is the same in all modes
        in_mode = reference[reference["mode"] == asked]
        if len(reference) and not len(in_mode):
            played = {str(x) for x in reference["mode"].unique()}
            other = next(m for m in ("sampled", *MODES) if m in played)  # any one
            in_mode = reference[reference["mode"] == other]
            if name != "random":
                left_out.setdefault(f"shown with {other} actions instead", []).append(name)
        last_step = in_mode.groupby("game", observed=True)["step"].transform("max")
        parts.append(in_mode[in_mode["step"] == last_step])
    part = pd.concat(parts)
    if not len(part):
        raise UserError(
            f"no {split} rows with {mode} actions; evaluate the runs on {split} levels."
        )
    return part


class _Runs(NamedTuple):
    seeds: tuple[int, ...]
    returns: Array  # [seeds, levels]
    entropy: Array  # [seeds]


def _by_level(
    group: pd.DataFrame, game: str, split: str, left_out: dict[str, list[str]]
) -> dict[str, _Runs]:
    """Method -> its runs in one game, all on the same levels in the same order."""
    try:
        both = group.astype({"method": str}).pivot(
            index=["method", "seed"], columns="level", values=["return", "entropy"]
        )
    except ValueError:
        raise UserError(
            f"{game} has several rows for one method, seed and {split} level: one episode per "
            "level and run is expected, more would be counted as runs."
        ) from None
    table, nats = both["return"], both["entropy"]
    played = table.notna().to_numpy()
    is_reference = table.index.get_level_values("method").isin(REFERENCES)
    voting = played if is_reference.all() else played[~is_reference]
    counts = Counter(row.tobytes() for row in voting)
    # The levels that most trained runs played; if two sets are as frequent, the larger.
    shared = np.frombuffer(max(counts, key=lambda b: (counts[b], sum(b), b)), dtype=bool)
    complete = played[:, shared].all(axis=1)
    for (method, seed), row in zip(table.index[~complete], played[~complete], strict=True):
        why = f"{int((row & shared).sum())} of {int(shared.sum())} {split} levels"
        left_out.setdefault(f"left out with {why}", []).append(f"{game}/{method}/seed{seed}")
    values = table.to_numpy(dtype=float)[:, shared]
    means = nats.to_numpy(dtype=float)[:, shared].mean(axis=1)
    found: dict[str, _Runs] = {}
    names = table.index.get_level_values("method").to_numpy()
    numbers = table.index.get_level_values("seed").to_numpy()
    for method in sorted(set(names[complete])):
        of_method = complete & (names == method)
        run_seeds = tuple(int(s) for s in numbers[of_method])
        found[str(method)] = _Runs(run_seeds, values[of_method], means[of_method])
    return found


def _common_games(games_of: Mapping[str, set[str]]) -> tuple[list[str], list[str]]:
    """Games that every trained method has; if there is none, methods with few games are dropped."""
    trained = [m for m in games_of if m not in REFERENCES] or list(games_of)
    kept = sorted(trained, key=lambda m: len(games_of[m]), reverse=True)
    while not (common := set.intersection(*(games_of[m] for m in kept))):
        kept.pop()
    notes = []
    for game in sorted(set().union(*games_of.values()) - common):
        lacking = ", ".join(m for m in trained if game not in games_of[m]) or "every trained method"
        notes.append(f"aggregates leave out {game}: no run of {lacking}.")
    for method, games in games_of.items():
        if not common <= games:
            lacking = ", ".join(sorted(common - games))
            notes.append(f"aggregates leave out {method}: no run of {lacking}.")
    return sorted(common), notes


def _weak_games(rows: pd.DataFrame, games: set[str]) -> tuple[set[str], list[str]]:
    """Games whose recorded player is too near to random play, on the levels it was recorded on.

    If all games are so, none is left out, and a caveat says it. A game is judged only if enough
    levels of it were played.
    """
    seen = rows[(rows["split"] == "seen") & (rows["mode"] == "sampled")].astype({"game": str})
    players = seen[(seen["method"] == "behaviour") & seen["game"].isin(list(games))]
    ways: dict[str, float] = {}
    for game, played in players.groupby("game"):
        last = played[played["step"] == played["step"].max()]
        facts = known_facts(str(game))
        if facts is not None and last["level"].nunique() >= LEAST_LEVELS:
            way = facts.way(float(last["return"].mean()))
            ways |= {str(game): way} if way is not None and way < LEAST_WAY else {}
    if not ways:
        return set(), []
    least = f"less than {LEAST_WAY:.0%} of the way from random to published play"
    if set(ways) == games:
        return set(), [f"Every recorded player is {least}: this data can hardly rank methods."]
    said = ", ".join(f"{game} ({way:.0%})" for game, way in sorted(ways.items()))
    return set(ways), [f"In no mean over games: {said}, whose recorded player is {least}."]
