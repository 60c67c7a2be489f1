"""The returns a report is about: of its headline, of seen levels, of the other action mode."""

import itertools
import math
from dataclasses import dataclass

import pandas as pd

from gsf.evaluation.rows import REFERENCES, SPLITS
from gsf.reporting import stats
from gsf.reporting.page import Page, Part, text
from gsf.reporting.scores import Scores, scores
from gsf.reporting.stats import Replicates


@dataclass(frozen=True)
class Returns:
    """Bootstrapped returns, and the baseline that methods are compared with."""

    rows: pd.DataFrame
    baseline: str
    main: Replicates  # on unseen levels, unless these were not played or others asked for
    seen: Replicates | None
    other_mode: Replicates | None

    @property
    def all(self) -> list[Replicates]:
        return [x for x in (self.main, self.seen, self.other_mode) if x is not None]

    @property
    def source(self) -> Scores:
        return self.main.scores

    @property
    def several(self) -> bool:
        """Whether there are several games. Of one, IQM, mean and median are the same number."""
        return len(self.source.games) > 1

    @property
    def names(self) -> dict[str, str]:
        """What the words of figures and tables are filled in with."""
        source, unit = self.source, self.source.unit
        names = {"split": source.split, "actions": source.actions, "baseline": self.baseline}
        average = "Aggregate" if self.several else "Mean"
        n_games = str(len(source.games))
        return names | {"unit": unit, "Unit": unit.capitalize(), "Aggregate": average, "n": n_games}


def find_returns(
    rows: pd.DataFrame, split: str, mode: str, baseline: str, replicates: int, page: Page
) -> Returns | None:
    """Of the split and mode asked for, or of others where these have no rows; None: no rows."""

    def find(split: str, mode: str) -> Replicates | None:
        here = rows[(rows["split"] == split) & (rows["mode"] == mode)]
        if here["method"].isin(REFERENCES).all():  # or none at all
            return None
        found = stats.bootstrap(scores(rows, split, mode), n=replicates)
        return found.raw() if len(found.scores.games) == 1 else found

    for way, levels in itertools.product(
        dict.fromkeys((mode, "sampled", "greedy")), dict.fromkeys((split, *reversed(SPLITS)))
    ):
        if (main := find(levels, way)) is not None:
            seen = find("seen", way) if levels != "seen" else None
            other = "sampled" if way == "greedy" else "greedy"
            return Returns(rows, baseline, main, seen, find(levels, other))
        if len(rows):
            page.problems.append(f"No run has {levels} rows with {way} actions.")
    return None


def define_scores(source: Scores) -> Part | None:
    """What a min-max score is; nothing where returns stay as they are."""
    if source.ranges is None:
        return None
    low = [g for g in source.games if _random_return(source, g) < source.ranges[g][0]]
    shown = [f"{g} {source.ranges[g][0]:g} to {source.ranges[g][1]:g}" for g in source.games]
    words = "Scores make games comparable: (return - low) / (high - low), by each game's published "
    words += f"range. Ranges: {', '.join(shown)}. "
    if low:
        words += "Below 0 is below that range: so is random play, which earns less than the range "
        words += f"begins with in {', '.join(low)}."
    return text(words.strip(), "note")


def _random_return(source: Scores, game: str) -> float:
    played = source.returns.get("random", {})
    return float(source.run_means("random", game).mean()) if game in played else math.inf
