"""Facts about the 16 Procgen games (easy): step limits, score ranges, returns to compare with."""

from dataclasses import dataclass

from gsf.runs import UserError


@dataclass(frozen=True)
class Game:
    step_limit: int
    score_min: float  # the range of min-max scores
    score_max: float
    ppo_seen: float  # PPO after 25M frames on 200 levels, on those levels and on unseen ones
    ppo_unseen: float
    random: float  # uniform play, one episode on each of levels 0..199 (docs/results/random.csv)


GAMES = {
    "bigfish": Game(6000, 1, 40, 12.1, 4.8, 0.97),
    "bossfight": Game(4000, 0.5, 13, 8.3, 7.6, 0.06),
    "caveflyer": Game(1000, 3.5, 12, 7.2, 5.3, 2.46),
    "chaser": Game(1000, 0.5, 13, 6.6, 5.9, 0.66),
    "climber": Game(1000, 2, 12.6, 8.6, 5.9, 2.42),
    "coinrun": Game(1000, 5, 10, 9.5, 8.7, 2.6),
    "dodgeball": Game(1000, 1.5, 19, 5.0, 1.9, 0.64),
    "fruitbot": Game(1000, -1.5, 32.4, 29.7, 26.5, -2.23),
    "heist": Game(1000, 3.5, 10, 7.9, 2.8, 3.4),
    "jumper": Game(1000, 3, 10, 8.6, 5.7, 3.6),
    "leaper": Game(500, 3, 10, 6.2, 5.8, 2.6),
    "maze": Game(500, 5, 10, 9.3, 5.5, 4.4),
    "miner": Game(1000, 1.5, 13, 12.8, 9.4, 1.5),
    "ninja": Game(1000, 3.5, 10, 7.7, 5.8, 2.45),
    "plunder": Game(4000, 4.5, 30, 5.3, 4.6, 4.09),
    "starpilot": Game(1000, 2.5, 64, 30.0, 23.8, 1.62),
}


def find_game(name: str) -> Game:
    if name not in GAMES:
        raise UserError(f"unknown game {name!r}; Procgen has {', '.join(GAMES)}.")
    return GAMES[name]
