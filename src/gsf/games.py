"""Facts about the 16 Procgen games (easy): step limits, score ranges, published PPO returns."""

from dataclasses import dataclass

from gsf.runs import UserError


@dataclass(frozen=True)
class Game:
    step_limit: int
    score_min: float  # the range of min-max scores
    score_max: float
    ppo_seen: float  # PPO after 25M frames on 200 levels, on those levels and on unseen ones
    ppo_unseen: float


GAMES = {
    "bigfish": Game(6000, 1, 40, 12.1, 4.8),
    "bossfight": Game(4000, 0.5, 13, 8.3, 7.6),
    "caveflyer": Game(1000, 3.5, 12, 7.2, 5.3),
    "chaser": Game(1000, 0.5, 13, 6.6, 5.9),
    "climber": Game(1000, 2, 12.6, 8.6, 5.9),
    "coinrun": Game(1000, 5, 10, 9.5, 8.7),
    "dodgeball": Game(1000, 1.5, 19, 5.0, 1.9),
    "fruitbot": Game(1000, -1.5, 32.4, 29.7, 26.5),
    "heist": Game(1000, 3.5, 10, 7.9, 2.8),
    "jumper": Game(1000, 3, 10, 8.6, 5.7),
    "leaper": Game(500, 3, 10, 6.2, 5.8),
    "maze": Game(500, 5, 10, 9.3, 5.5),
    "miner": Game(1000, 1.5, 13, 12.8, 9.4),
    "ninja": Game(1000, 3.5, 10, 7.7, 5.8),
    "plunder": Game(4000, 4.5, 30, 5.3, 4.6),
    "starpilot": Game(1000, 2.5, 64, 30.0, 23.8),
}


def find_game(name: str) -> Game:
    if name not in GAMES:
        raise UserError(f"unknown game {name!r}; Procgen has {', '.join(GAMES)}.")
    return GAMES[name]
