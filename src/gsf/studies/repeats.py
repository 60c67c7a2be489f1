"""`gsf data levels`: how often the levels of a game repeat each other. Out: levels.csv.

Procgen draws a level from its number, and different numbers may give the same level. Looked at are
the training levels and as many unseen ones as asked for:
first_frames  share of all whose first image is that of another one
alike         share of all that play like another one: the same images, rewards and ends over a
              fixed list of 64 actions
left_out      share of the unseen ones that play like a training level: they are in no split
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich.console import Console

from gsf.core.logs import progress
from gsf.core.sealed import write_table
from gsf.evaluation.splits import Play, plays
from gsf.studies.options import LevelsConfig
from gsf.suites import find_game


def levels(config: LevelsConfig) -> None:
    rows = []
    with progress("levels", len(config.games), "games") as advance:
        for done, game in enumerate(config.games, 1):
            rows.append(repeats(game, config.n))
            advance(done)
    table = pd.DataFrame(rows)
    shown = table.to_string(index=False, float_format="{:.1%}".format)
    Console().print(shown, highlight=False, soft_wrap=True)
    if config.out is not None:
        write_table(config.out, table, float_format="%.4f")


def repeats(game: str, n: int) -> dict[str, Any]:
    """A row of the table: of the game's training levels and its first n unseen ones."""
    suite, name = find_game(game)
    training = tuple(suite.training_levels)
    first = suite.first_level("unseen")
    known = plays(name, training, None)
    unseen = plays(name, tuple(range(first, first + n)), None)
    return {"game": game, "training": len(known), "unseen": n} | shares(known, unseen)


def shares(known: Sequence[Play], unseen: Sequence[Play]) -> dict[str, float]:
    both = [*known, *unseen]
    images, whole = Counter(x.first for x in both), Counter(x.whole for x in both)
    seen = {x.whole for x in known}
    return {
        "first_frames": sum(images[x.first] > 1 for x in both) / len(both),
        "alike": sum(whole[x.whole] > 1 for x in both) / len(both),
        "left_out": sum(x.whole in seen for x in unseen) / len(unseen),
    }
