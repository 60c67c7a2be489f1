import pandas as pd

from gsf.evaluation.temperature import pool
from gsf.nets.acting import TEMPERATURES, mode_at


def validation(method: str, seed: int, best: float, high: float = 1.0) -> list[dict[str, object]]:
    """Two levels, on which the method earns `high` at its best temperature and else nothing."""
    who = {"method": method, "seed": seed, "split": "validation"}
    return [
        {**who, "mode": mode_at(t), "level": level, "return": high * (t == best)}
        for t in TEMPERATURES
        for level in (1, 2)
    ]


def test_methods_weigh_alike_whatever_their_seeds():
    rows = validation("bc", 0, best=0.25, high=3.0)
    rows += [row for seed in range(5) for row in validation("cql", seed, best=1.0, high=2.0)]
    rows += [{**rows[0], "mode": "sampled", "return": 99.0}]  # no temperature of the grid
    rows += [{**rows[0], "split": "unseen", "mode": "sampled-0.5", "return": 99.0}]
    means = pool(pd.DataFrame(rows))
    assert means == {"0.25": 1.5, "1": 1.0, "0.7": 0.0, "0.5": 0.0, "0.35": 0.0}
    assert list(means) == ["0.25", "1", "0.7", "0.5", "0.35"]  # of equals the highest
