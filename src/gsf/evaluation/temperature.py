"""The temperature of sampled actions: chosen on validation levels, before any test level is played.

How near to uniform a policy is differs between methods (CQL's scores are flatter than BC's), and
play depends on it. So every network plays the validation levels at each temperature of one short
grid, and the highest mean return decides; of equals the highest temperature, nearest to the policy
as it was learnt. The choice goes with the run and is not made again.
"""

from pathlib import Path

import pandas as pd

from gsf.core.logs import console
from gsf.core.sealed import write_json
from gsf.evaluation.players import Player
from gsf.learn.agent import read_temperatures
from gsf.nets.acting import CHOSEN, mode_at


def choose(player: Player, rows: pd.DataFrame) -> dict[str, float]:
    """Temperature -> mean return on validation levels, best first. `rows`: of this player."""
    validation = rows[rows["split"] == "validation"]
    means = validation.groupby("mode")["return"].mean()
    found = {f"{t:g}": float(means[mode_at(t)]) for t in player.temperatures}
    return dict(sorted(found.items(), key=lambda item: (-item[1], -float(item[0]))))


def keep(run: Path, step: int, means: dict[str, float], n_levels: int) -> None:
    """Writes the choice beside the run, where `load_agent` finds it."""
    path = run / CHOSEN
    known = read_temperatures(run)
    known[str(step)] = {
        "temperature": float(next(iter(means))),
        "n_levels": n_levels,
        "mean_return": {t: round(x, 4) for t, x in means.items()},
    }
    ordered = {k: known[k] for k in sorted(known, key=int)}
    try:
        write_json(path, ordered)
    except OSError as error:  # it is somebody else's; the rows have the temperature, too
        console.print(f"[yellow]cannot write {path}: {error.strerror}.[/]", soft_wrap=True)
