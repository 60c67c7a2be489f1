"""The temperature of sampled actions: chosen on validation levels, before any test level is played.

How near to uniform a policy is differs between methods (CQL's scores are flatter than BC's), and
play depends on it. So every network plays the validation levels at each temperature of one short
grid, and the highest mean return decides; of equals the highest temperature, nearest to the policy
as it was learnt. The choice goes with the run and is not made again. `pool` chooses one temperature
for all methods of a game instead (`gsf run --temperature pooled`).
"""

from pathlib import Path

import pandas as pd

from gsf.core.logs import console
from gsf.core.sealed import write_json
from gsf.evaluation.players import Player
from gsf.learn.agent import read_temperatures
from gsf.nets.acting import CHOSEN, TEMPERATURES, mode_at


def choose(player: Player, rows: pd.DataFrame) -> dict[str, float]:
    """Temperature -> mean return on validation levels, best first. `rows`: of this player."""
    validation = rows[rows["split"] == "validation"]
    means = validation.groupby("mode")["return"].mean()
    return _best_first({t: float(means[mode_at(t)]) for t in player.temperatures})


def pool(rows: pd.DataFrame) -> dict[str, float]:
    """As `choose`, of all runs of a game at one step: the mean over methods, which weigh alike."""
    tried = rows[(rows["split"] == "validation") & rows["mode"].isin(map(mode_at, TEMPERATURES))]
    means = tried.groupby(["mode", "method"], observed=True)["return"].mean()
    by_mode = means.groupby("mode", observed=True).mean()
    return _best_first({t: float(by_mode[mode_at(t)]) for t in TEMPERATURES})


def _best_first(means: dict[float, float]) -> dict[str, float]:
    """Of equals the highest temperature."""
    return {f"{t:g}": means[t] for t in sorted(means, key=lambda t: (-means[t], -t))}


def is_pooled(run: Path, step: int) -> bool:
    return bool(read_temperatures(run).get(str(step), {}).get("pooled"))


def keep(
    run: Path, step: int, means: dict[str, float], n_levels: int, pooled: bool = False
) -> None:
    """Writes the choice beside the run, where `load_agent` finds it."""
    path = run / CHOSEN
    known = read_temperatures(run)
    known[str(step)] = {
        "temperature": float(next(iter(means))),
        "n_levels": n_levels,
        "mean_return": {t: round(x, 4) for t, x in means.items()},
    } | ({"pooled": True} if pooled else {})
    ordered = {k: known[k] for k in sorted(known, key=int)}
    try:
        write_json(path, ordered)
    except OSError as error:  # it is somebody else's; the rows have the temperature, too
        console.print(f"[yellow]cannot write {path}: {error.strerror}.[/]", soft_wrap=True)
