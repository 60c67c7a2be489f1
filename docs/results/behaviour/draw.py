"""Draws how the players learnt, players.png: `python docs/results/behaviour/draw.py`."""

import math
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from ship import read_rows, recorded

from gsf.core.drawing import BLUE, DOTTED, ORANGE, panels, rendered, styled
from gsf.core.files import write_atomic
from gsf.suites.procgen import GAMES

HERE = Path(__file__).parent
NOTE = (
    "Blue: return of the episodes of training, as a share of the way from random play (0) to PPO "
    "after 25M frames as published (1, dotted). Orange: entropy of the policy, as a share of that "
    "of play at random. From the curves in this folder."
)


@styled
def draw() -> Figure:
    games = recorded()
    figure, axes, _, _ = panels(games, 1.15, note=NOTE, x="frames, million")
    for ax, game in zip(axes, games, strict=True):
        facts, curve = GAMES[game], read_rows(HERE / f"{game}.csv")
        frames, score, entropy = (
            np.array([float(row[name] or "nan") for row in curve])
            for name in ("step", "ppo/return", "ppo/entropy")
        )
        width = max(len(curve) // 60, 1)  # of the running mean
        nats = math.log(round(math.exp(entropy[0])))  # it begins at random
        ax.axhline(1, **DOTTED)
        for values, colour in ((facts.way(score), BLUE), (entropy / nats, ORANGE)):
            mean = np.convolve(values, np.full(width, 1 / width), "valid")
            ax.plot(frames[width - 1 :] / 1e6, mean, color=colour, linewidth=1.2)
        ax.set_ylim(-0.2, 1.6)
        ax.set_xlim(0)
    return figure


if __name__ == "__main__":
    write_atomic(HERE / "players.png", rendered(draw(), "png"))
