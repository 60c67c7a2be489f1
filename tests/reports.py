"""A sweep to report on, made in seconds: real runs on a tiny dataset, made-up returns."""

from pathlib import Path

import pandas as pd

from gsf.evaluation.rows import KEYS
from gsf.learn.train import TrainConfig, train
from synthetic import FIRST_LEVEL
from tiny import write_dataset, write_labels

METHODS = ("bc", "cql", "gsf-reward")
SKILL = {"random": 0.0, "bc": 2.0, "cql": 3.0, "gsf-reward": 4.0}


def returns(method: str, seed: int, steps=(2, 4), game: str = "corridor") -> pd.DataFrame:
    rows = [
        dict(zip(KEYS, (game, method, seed, step, split, first + i, mode), strict=True))
        | {"return": SKILL.get(method, 1.0) + 0.1 * seed + (i % 3) + 0.2 * step + (first == 0)}
        for step in steps
        for split, first in FIRST_LEVEL.items()
        for mode in ("greedy", "sampled")
        for i in range(6)
    ]
    rows = pd.DataFrame(rows).assign(length=9, completed=True, entropy=1.0)
    return rows.assign(temperature=(rows["mode"] == "sampled") * 0.5)


def make_sweep(out: Path, n_seeds: int = 2) -> Path:
    """OUT/corridor/dataset, labels-reward-mc, <method>/seed<k> with returns.csv, random."""
    home = out / "corridor"
    dataset = write_dataset(home / "dataset", n_levels=6, n_episodes=24)
    labels = write_labels(home / "labels-reward-mc", dataset)
    small = {"encoder": "patches", "grad_steps": 4, "batch": 8, "device": "cpu", "keep": 2}
    for method in METHODS:
        for seed in range(n_seeds):
            run = home / method / f"seed{seed}"
            needs = {"labels": labels} if method.startswith("gsf") else {}
            what = {"dataset": dataset.path, "out": run, "method": method, "seed": seed}
            train(TrainConfig(**what, **needs, **small))
            returns(method, seed).to_csv(run / "returns.csv", index=False)
    (home / "random").mkdir()
    returns("random", 0, steps=(0,)).to_csv(home / "random" / "returns.csv", index=False)
    return out
