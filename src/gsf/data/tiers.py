"""Recordings and policies that come with gsf: where they lie, of which game and tier each is.

A tier is how good the play is: GAME is a policy's, GAME-planned is planned and knows the future,
GAME-weak is an early policy's, GAME-best the best there is, but for random actions.
GAME...-validation is the same player on other levels.
"""

from pathlib import Path
from typing import NamedTuple

from gsf.core.errors import UserError, did_you_mean

SHIPPED = Path(__file__).parent / "shipped"
POLICY_TIER = "policy"
TIERS = (POLICY_TIER, "weak", "planned", "best")  # as they are listed; others come behind
WEAK = 0.3  # how far a weak policy is from random to published play
_HELD_OUT = "-validation"


class Tier(NamedTuple):
    """What the name of a shipped recording says."""

    game: str
    tier: str
    held_out: bool  # play on levels that nobody trains on


def tier_of(name: str) -> Tier:
    player = name.removesuffix(_HELD_OUT)
    game, _, tier = player.partition("-")
    return Tier(game, tier or POLICY_TIER, player != name)


def list_shipped() -> list[Path]:
    """By game, then by tier."""
    return sorted(SHIPPED.glob("*.gsfrec"), key=lambda path: _order(path.stem))


def recorded_policies() -> list[str]:
    """Of each game the recording that is meant where nothing else is said: a policy's play."""
    return [x.stem for x in list_shipped() if tier_of(x.stem)[1:] == (POLICY_TIER, False)]


def shipped_policies() -> list[str]:
    return sorted(path.name.removesuffix(".policy.pt") for path in SHIPPED.glob("*.policy.pt"))


def find_recording(path: Path | str) -> Path:
    """A recording's file; a shipped one by its name."""
    shipped = SHIPPED / f"{path}.gsfrec"
    found = shipped if shipped.parent == SHIPPED and shipped.is_file() else Path(path)
    if not found.is_file():
        names = [p.stem for p in list_shipped()]
        meant = did_you_mean(str(path), names)
        shipped_ones = ", ".join(names) or "none"
        raise UserError(f"no recording at {path}; {meant}shipped ones are: {shipped_ones}.")
    return found


def find_policy(name: Path | str) -> Path:
    """A policy file or the directory of a collect; a shipped policy by its name."""
    shipped = SHIPPED / f"{name}.policy.pt"
    is_shipped = shipped.parent == SHIPPED and shipped.is_file() and not Path(name).exists()
    return shipped if is_shipped else Path(name)


def _order(name: str) -> tuple[str, int, str, bool]:
    game, tier, held_out = tier_of(name)
    return game, TIERS.index(tier) if tier in TIERS else len(TIERS), tier, held_out
