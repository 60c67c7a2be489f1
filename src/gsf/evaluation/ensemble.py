"""Several runs that act as one, by the mean of their policies: `gsf evaluate --ensemble`."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gsf.core.errors import UserError
from gsf.core.files import digest
from gsf.evaluation.players import Player
from gsf.evaluation.rollout import Actor, Array


class Ensemble:
    """Draws from the mean of its members' probabilities, all at the same temperature."""

    def __init__(self, members: Sequence[Actor]) -> None:
        self._members = members

    def policy(self, obs: Array, temperature: Array) -> Array:
        mean: Array = np.mean([x.policy(obs, temperature) for x in self._members], axis=0)
        return mean


def together(players: Sequence[Player]) -> Player:
    """The players as one, named after the first; its temperature is still to be chosen."""
    first = players[0]
    for other in players[1:]:
        for what in ("game", "method", "difficulty"):
            mine, theirs = getattr(first, what), getattr(other, what)
            if mine != theirs:
                raise UserError(f"an ensemble has one {what}, not {mine} and {theirs}.")
        if list(first.training or ()) != list(other.training or ()):
            raise UserError("an ensemble's runs have learnt from the same levels; these have not.")
    if len({player.identity for player in players}) < len(players):
        raise UserError("--ensemble names a run twice, or two that are the same network.")
    if any(getattr(getattr(x.actor, "base", None), "memory", 0) for x in players):
        raise UserError(f"{first.method} acts by its memory of an episode: it has no ensemble.")
    return replace(
        first,
        actor=Ensemble([player.actor for player in players]),
        method=f"{first.method}+evaluate.ensemble={len(players)}",
        identity=digest(*(player.identity for player in players)),
        temperature=None,
        code=tuple(dict.fromkeys(module for player in players for module in player.code)),
    )
