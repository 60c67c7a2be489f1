"""Facts of the 16 Procgen games (easy): actions that do the same, step limits, returns."""

from gsf.suites import Game

# Procgen's own ids: pairs of arrow keys, then keys whose meaning is the game's.
ACTIONS = (
    *("left down", "left", "left up", "down", "-", "up", "right down", "right", "right up"),
    *("D", "A", "W", "S", "Q", "E"),
)
# Ids that lead to the same future from every state, the plainest first; all others differ.
_RIGHT_LEFT_JUMP = ((4, 3, 9, 10, 11, 12, 13, 14), (1, 0), (7, 6))
_RIGHT_LEFT_FIRE = ((4, 3, 5, 10, 11, 12, 13, 14), (1, 0, 2), (7, 6, 8))
_FOUR_WAYS = ((4, 9, 10, 11, 12, 13, 14), (1, 0, 2), (7, 6, 8))
_EIGHT_WAYS = ((4, 9, 10, 11, 12, 13, 14),)
_EIGHT_WAYS_AND_FIRE = ((4, 10, 11, 12, 13, 14),)
_NINJA = ((4, 3), (1, 0), (7, 6), (9, 13, 14))
_STARPILOT = ((9, 11, 12, 13, 14),)


def _game(
    same: tuple[tuple[int, ...], ...],
    low: float,
    high: float,
    seen: float,
    unseen: float,
    random: float,
) -> Game:
    return Game((64, 64, 3), ACTIONS, 4, same, (low, high), random, (seen, unseen))


# Equal actions, score range, PPO's returns on seen and on unseen levels, and those of uniform play
# over the actions that differ (levels 0..199, two episodes on each: docs/results/random.csv.gz).
GAMES = {
    "bigfish": _game(_EIGHT_WAYS, 1, 40, 12.1, 4.8, 0.96),
    "bossfight": _game(_EIGHT_WAYS_AND_FIRE, 0.5, 13, 8.3, 7.6, 0),
    "caveflyer": _game(_EIGHT_WAYS_AND_FIRE, 3.5, 12, 7.2, 5.3, 2.74),
    "chaser": _game(_EIGHT_WAYS, 0.5, 13, 6.6, 5.9, 0.56),
    "climber": _game(_RIGHT_LEFT_JUMP, 2, 12.6, 8.6, 5.9, 2.73),
    "coinrun": _game(_RIGHT_LEFT_JUMP, 5, 10, 9.5, 8.7, 3.93),
    "dodgeball": _game(_EIGHT_WAYS_AND_FIRE, 1.5, 19, 5.0, 1.9, 0.58),
    "fruitbot": _game(_RIGHT_LEFT_FIRE, -1.5, 32.4, 29.7, 26.5, -2.63),
    "heist": _game(_EIGHT_WAYS, 3.5, 10, 7.9, 2.8, 4.4),
    "jumper": _game(_RIGHT_LEFT_JUMP, 3, 10, 8.6, 5.7, 3.95),
    "leaper": _game(_FOUR_WAYS, 3, 10, 6.2, 5.8, 2.75),
    "maze": _game(_FOUR_WAYS, 5, 10, 9.3, 5.5, 5.25),
    "miner": _game(_FOUR_WAYS, 1.5, 13, 12.8, 9.4, 1.08),
    "ninja": _game(_NINJA, 3.5, 10, 7.7, 5.8, 2.55),
    "plunder": _game(_RIGHT_LEFT_FIRE, 4.5, 30, 5.3, 4.6, 3.45),
    "starpilot": _game(_STARPILOT, 2.5, 64, 30.0, 23.8, 0.42),
}
STEP_LIMITS = dict.fromkeys(GAMES, 1000) | {
    "bigfish": 6000,
    "bossfight": 4000,
    "leaper": 500,
    "maze": 500,
    "plunder": 4000,
}
