"""The report's first sentences: who is best on unseen levels, by how much, and how sure that is.

For one game in returns, for several in scores, which make games comparable. A tie is called a tie,
and a method that plays no better than at random is said to.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from gsf.evaluation.intervals import intervals_over
from gsf.evaluation.rows import REFERENCES
from gsf.learn.legend import learns_from_labels
from gsf.reporting import contrasts, stats
from gsf.reporting.captions import caveat
from gsf.reporting.figures import NAMES_OF_REFERENCES
from gsf.reporting.scores import Scores, spell
from gsf.reporting.stats import FEW_SEEDS, Replicates


def headline(unseen: Replicates) -> str:
    """Who is best, and whether the lead over the others is more than chance."""
    source = unseen.scores
    trained = [m for m in source.methods if m not in REFERENCES]
    if not trained:
        return "No trained method has results on the same games yet."
    overall = _overall(unseen)
    best = max(trained, key=lambda m: overall[m].value)
    first, ties = _lead(unseen, best), _tied(overall, trained, best)
    beaten = _not_above_random(unseen)
    if len(trained) > 1 and len(beaten) == len(trained):
        return f"{first}. No method can be told from random play ({overall['random']})."
    below = f" {_join(beaten)} cannot be told from random play." if beaten else ""
    if len(trained) == 1 or len(ties) == len(trained):
        return f"{first}.{below}"
    n_seeds = min(source.n_seeds(m) for m in trained)
    if n_seeds < FEW_SEEDS:
        return f"{first}. {n_seeds} seed{'s' * (n_seeds > 1)} per method cannot rank them.{below}"
    behind = _pick(contrasts.differences(unseen, best), source)
    rivals = [m for m in trained if m not in ties and behind[m].high >= 0]
    rivals.sort(key=lambda m: -overall[m].value)
    if not rivals:
        others = "every other method" if len(ties) == 1 else "the others"
        return f"{first}, ahead of {others} beyond the 95 % intervals.{below}"
    named = _join([f"{m} ({overall[m]})" for m in rivals[:3]])
    more = f" and {len(rivals) - 3} more" if len(rivals) > 3 else ""
    return f"{first}. The lead over {named}{more} cannot be told from chance.{below}"


def _lead(unseen: Replicates, best: str) -> str:
    source, overall = unseen.scores, _overall(unseen)
    trained = [m for m in source.methods if m not in REFERENCES]
    unit = _unit(unseen)
    where = f"{source.split} levels" + (f" of {source.games[0]}" if len(source.games) == 1 else "")
    ties = _tied(overall, trained, best)
    one = f"{'an' if unit.startswith('IQM') else 'a'} {unit}"
    if len(trained) == 1:
        return f"{best} has {one} of {overall[best]} on {where}"
    if len(ties) > 1:
        who = f"All {len(ties)} methods" if len(ties) == len(trained) else _join(ties)
        at = f"{one} of {overall[best]} on {where}"
        return f"{who} {'are' if len(ties) == len(trained) else 'lead,'} tied at {at}"
    return f"{best} has the highest {unit} on {where}: {overall[best]}"


def _tied(overall: dict[str, "_Estimate"], trained: Sequence[str], best: str) -> list[str]:
    """Methods whose number, as it is printed, is the best one's."""
    return [m for m in trained if f"{overall[m].value:z.2f}" == f"{overall[best].value:z.2f}"]


def _not_above_random(unseen: Replicates) -> list[str]:
    """Trained methods that are below random play, or above it by what may be chance."""
    if "random" not in unseen.scores.methods:
        return []
    found = _pick(contrasts.differences(unseen, "random"), unseen.scores)
    return [m for m, x in found.items() if m not in REFERENCES and x.low <= 0]


def support(unseen: Replicates, seen: Replicates | None, baseline: str) -> list[str]:
    """What a reader needs to weigh the headline."""
    source, overall = unseen.scores, _overall(unseen)
    known = [m for m in REFERENCES if m in overall]
    lines = []
    if known:
        the = {"behaviour": "the "}
        scored = [f"{the.get(m, '')}{NAMES_OF_REFERENCES[m]} has {overall[m]}" for m in known]
        lines.append(f"For comparison: {_join(scored)}.{_poor(unseen)}")
    lines.append(_basis(unseen))
    if baseline in source.methods:
        lines += _against(unseen, baseline)
    if seen is not None:
        lines += _gaps(seen, unseen)
    return lines


def _poor(unseen: Replicates) -> str:
    """For each game, methods that are below random play or cannot be told from it."""
    if "random" not in unseen.scores.returns:
        return ""
    found = contrasts.differences(unseen, "random")
    found = found[found["game"].isin(unseen.scores.games) & ~found["method"].isin(REFERENCES)]
    words = ""
    for kind, poor in (
        ("Below random play", found[found["high"] < 0]),
        ("Cannot be told from random play", found[(found["low"] <= 0) & (found["high"] >= 0)]),
    ):
        by_game = [f"{_join(list(x['method']))} in {g}" for g, x in poor.groupby("game")]
        words += f" {kind}: {'; '.join(by_game)}." if by_game else ""
    return words


def warning(unseen: Replicates) -> str:
    """What to keep in mind of the numbers above; nothing if there is nothing."""
    return " ".join(x for x in (caveat(stats.aggregates(unseen)), *unseen.scores.caveats) if x)


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
    words = (
        f"From {games}, {n_seeds} after {steps} steps and {_range(levels)} levels per game, one "
        f"episode each, {source.actions}; brackets are {intervals_over(seeds)}, by a bootstrap."
    )
    drawn = {m: spell([source.temperatures[m]]) for m in trained}
    if source.mode == "sampled" and len(set(drawn.values())) > 1:
        words += f" Temperatures: {_join([f'{m} {t}' for m, t in drawn.items()])}."
    return words


def _against(unseen: Replicates, baseline: str) -> list[str]:
    """GSF's difference to the baseline: the question the paper asks."""
    found = _pick(contrasts.differences(unseen, baseline), unseen.scores)
    methods = [m for m in found if learns_from_labels(m)]
    if not methods:
        return []
    shown = _join([f"{m} {found[m]:+z.2f}" for m in methods])
    unit = _unit(unseen)
    return [f"{unit[0].upper()}{unit[1:]} minus {baseline}'s on the same levels: {shown}."]


def _gaps(seen: Replicates, unseen: Replicates) -> list[str]:
    found = _pick(contrasts.gap(seen, unseen), unseen.scores)
    gap = {m: x for m, x in found.items() if m not in REFERENCES}
    if not gap:
        return []
    least, most = (f(gap, key=lambda m: gap[m].value) for f in (min, max))
    text = (
        f"The generalization gap ({_unit(unseen)} on seen minus {unseen.scores.split} levels) is "
    )
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


def _unit(unseen: Replicates) -> str:
    """What the sentences count in: of one game the mean, of several the IQM."""
    statistic = "mean" if len(unseen.scores.games) == 1 else "IQM"
    return f"{statistic} {unseen.scores.unit}"


def _overall(unseen: Replicates) -> dict[str, _Estimate]:
    return _pick(stats.aggregates(unseen), unseen.scores)


def _pick(tidy: pd.DataFrame, source: Scores) -> dict[str, _Estimate]:
    """method -> mean or IQM, in the order of the frame."""
    statistic = "mean" if len(source.games) == 1 else "iqm"
    rows = tidy[tidy["statistic" if "statistic" in tidy else "game"] == statistic]
    return {
        str(row["method"]): _Estimate(row["value"], row["low"], row["high"])
        for row in rows.to_dict("records")
    }


def _range(numbers: set[int]) -> str:
    return "-".join(f"{n:,}" for n in sorted({min(numbers), max(numbers)}))


def _join(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]
