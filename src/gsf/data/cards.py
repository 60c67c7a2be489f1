"""Cards: what a stranger has to know of a recording, or of a dataset made of one."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gsf.data.recording import Recording
from gsf.data.tiers import list_shipped, tier_of
from gsf.suites import find_game, known_facts

LICENCE = "MIT, as gsf and Procgen"
Card = dict[str, str]


def card_of(name: str, recording: Recording) -> Card:
    """Of a recording; a shipped one's name says its tier."""
    shipped = tier_of(name) if name in {path.stem for path in list_shipped()} else None
    returns = [take.returns for take in recording.takes if take.returns]
    covered = max((int(r["levels_covered"] or 0) for r in returns), default=0)
    levels, mean = recording.levels, mean_return(recording)
    return {
        "game": f"{recording.game} ({recording.difficulty})",
        "tier": "none" if shipped is None else shipped.tier,
        **played_by([take.policy for take in recording.takes]),
        "epsilon": one_of(epsilon(take.epsilon) for take in recording.takes),
        **earned(recording.game, mean, levels),
        "levels": f"{covered or '?'} of {len(levels)} ({levels[0]}..{levels[-1]})",
        "transitions": f"{len(recording):,}",
        "digest": recording.digest,
        "licence": licence(recording.game),
    }


def played_by(policies: Sequence[Mapping[str, Any]]) -> Card:
    return {"player": one_of(map(player, policies)), "entropy": one_of(map(entropy, policies))}


def earned(game: str, mean: float | None, levels: Sequence[Any]) -> Card:
    way = share_of_the_way(game, mean, levels)
    return {
        "return": "unknown" if mean is None else f"{mean:.2f}",
        "way": "unknown" if way is None else f"{way:z.0%} from random to published play",
    }


def licence(game: str) -> str:
    return LICENCE if known_facts(game) else "its owner's to say"


def share_of_the_way(game: str, mean: float | None, levels: Sequence[Any]) -> float | None:
    """From random to published play, which is known of the suite's training levels only."""
    if mean is None or known_facts(game) is None:
        return None
    suite, name = find_game(game)
    seen = set(levels) <= set(suite.training_levels)
    return suite.games[name].way(mean) if seen else None


def mean_return(recording: Recording) -> float | None:
    """Of the episodes recorded; None while they have not been counted."""
    returns = [take.returns for take in recording.takes if take.returns]
    episodes = [int(r["episodes"] or 0) for r in returns]
    if not sum(episodes):
        return None
    means = [float(r["mean_return"] or 0) for r in returns]
    return float(np.average(means, weights=episodes))


def player(policy: Mapping[str, Any]) -> str:
    """Who acted, as a sentence's end."""
    frames, name = policy.get("frames"), str(policy.get("algorithm", "unknown"))
    if name == "plan":
        knows = "knows the future" if policy.get("chances", 1) == 1 else "does not know chance"
        names = ("width", "depth", "commit", "chances")
        return f"a planner that {knows}, {_options(policy, names)}"
    return f"{name}, {frames / 1e6:.1f}M frames" if frames else name


def entropy(policy: Mapping[str, Any]) -> str:
    found = policy.get("entropy")
    return f"{found:.2f} nats" if isinstance(found, float) else "unknown"


def epsilon(schedule: Mapping[str, Any]) -> str:
    """The chance of a random action, from the first step to the last."""
    ends = [x for x in (schedule.get("first"), schedule.get("last")) if isinstance(x, int | float)]
    return " to ".join(dict.fromkeys(f"{x:.3g}" for x in ends)) or "unknown"


def one_of(values: Any) -> str:
    """Each of them once."""
    return "; ".join(dict.fromkeys(values))


def _options(policy: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{name} {policy[name]}" for name in names if name in policy)


def markdown(title: str, card: Mapping[str, str]) -> str:
    rows = [f"| {name} | {value} |" for name, value in card.items()]
    return "\n".join([f"## {title}", "", "| | |", "|---|---|", *rows, ""])
