"""The report's first sentences: who is best on unseen levels, by how much, and how sure that is."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from gsf.evaluation.rows import REFERENCES
from gsf.reporting import stats
from gsf.reporting.figures import caveat
from gsf.reporting.stats import FEW_SEEDS, Replicates


def headline(unseen: Replicates) -> str:
    """Best method with its IQM, and whether its lead over the others can be told from nothing."""
    source = unseen.scores
    trained = [m for m in source.methods if m not in REFERENCES]
    if not trained:
        return "No trained method has results on the same games yet."
    overall = _iqm(stats.aggregates(unseen))
    best = max(trained, key=lambda m: overall[m].value)
    place = f"{source.split} levels ({source.mode} actions)"
    if len(trained) == 1:
        return f"{best} reaches {overall[best]} IQM {source.unit} on {place}."
    first = f"{best} has the highest IQM {source.unit} on {place}: {overall[best]}"
    behind = _iqm(stats.differences(unseen, best))
    rivals = [m for m in trained if m != best and behind[m].high >= 0]
    rivals.sort(key=lambda m: -overall[m].value)
    n_seeds = min(source.n_seeds(m) for m in trained)
    if n_seeds < FEW_SEEDS:
        return f"{first}. {n_seeds} seed{'s' * (n_seeds > 1)} per method cannot rank them."
    if not rivals:
        return f"{first}, ahead of every other method beyond the 95 % intervals."
    named = _join([f"{m} ({overall[m]})" for m in rivals[:3]])
    more = f" and {len(rivals) - 3} more" if len(rivals) > 3 else ""
    return f"{first}. Its lead over {named}{more} cannot be told from chance."


def support(unseen: Replicates, seen: Replicates | None, baseline: str) -> list[str]:
    """What a reader needs to weigh the headline."""
    source = unseen.scores
    overall = _iqm(stats.aggregates(unseen))
    lines = [_basis(unseen)]
    if baseline in source.methods:
        lines += _against(unseen, baseline)
    if seen is not None:
        lines += _gaps(seen, unseen)
    known = [m for m in REFERENCES if m in overall]
    if known:
        names = {"random": "Random play", "behaviour": "the behaviour policy"}
        scored = [f"{names[m]} scores {overall[m]}" for m in known]
        line = _join(scored)
        lines.append(f"For comparison: {line[0].lower()}{line[1:]}.")
    return lines


def warning(unseen: Replicates) -> str:
    return caveat(stats.aggregates(unseen))


def _basis(unseen: Replicates) -> str:
    source = unseen.scores
    trained = [m for m in source.methods if m not in REFERENCES]
    if not trained:
        return "No trained run is in these numbers: what is missing is listed below."
    seeds = {source.n_seeds(m) for m in trained}
    levels = {source.returns[m][g].shape[1] for m in trained for g in source.games}
    games = f"{len(source.games)} game{'s' * (len(source.games) != 1)}"
    games += f" ({', '.join(source.games)})" if len(source.games) <= 4 else ""
    n_seeds = f"{_range(seeds)} seed{'s' * (seeds != {1})} per method"
    steps = _range({source.steps[game] for game in source.games})
    return (
        f"From {games}, {n_seeds} after {steps} steps and {_range(levels)} levels per game, one "
        "episode each; brackets are 95 % intervals from a bootstrap over seeds and levels."
    )


def _against(unseen: Replicates, baseline: str) -> list[str]:
    """GSF's difference to the baseline: the question the paper asks."""
    found = _iqm(stats.differences(unseen, baseline))
    methods = [m for m in found if m.startswith("gsf")]
    if not methods:
        return []
    shown = _join([f"{m} {found[m]:+z.2f}" for m in methods])
    return [f"IQM minus {baseline}'s on the same levels: {shown}."]


def _gaps(seen: Replicates, unseen: Replicates) -> list[str]:
    found = _iqm(stats.gap(seen, unseen))
    gap = {m: x for m, x in found.items() if m not in REFERENCES}
    if not gap:
        return []
    least, most = (f(gap, key=lambda m: gap[m].value) for f in (min, max))
    text = f"The generalization gap (IQM on seen minus {unseen.scores.split} levels) is "
    if f"{gap[least]:+z.2f}" == f"{gap[most]:+z.2f}":
        return [f"{text}{gap[least]:+z.2f}{' for every method' if len(gap) > 1 else ''}."]
    small, large = (f"{gap[m]:+z.2f} with {m}" for m in (least, most))
    return [f"{text}between {small} and {large}."]


class _Estimate(NamedTuple):
    value: float
    low: float
    high: float

    def __format__(self, how: str) -> str:
        value, low, high = (format(x, how or "z.2f") for x in self)
        return f"{value} [{low}, {high}]"


def _iqm(tidy: pd.DataFrame) -> dict[str, _Estimate]:
    """method -> IQM, in the order of the frame."""
    rows = tidy[tidy["statistic" if "statistic" in tidy else "game"] == "iqm"]
    return {
        str(row["method"]): _Estimate(row["value"], row["low"], row["high"])
        for row in rows.to_dict("records")
    }


def _range(numbers: set[int]) -> str:
    return "-".join(f"{n:,}" for n in sorted({min(numbers), max(numbers)}))


def _join(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]
