"""`gsf probe --looks`: how near an encoder puts two looks of one state. Out: looks.csv.

A dataset of two views (`gsf materialise --looks 16 --views 2`) has every state twice: what is alike
is known. Of every run, with intervals over looks:
closer    how often two looks of one state are nearer than two states of one look (chance: 0.5)
distance  how far the former are apart, where the latter are 1 apart (cosine of z)
action    how often the best action is the same in both looks
And of the data: the same of its pixels, and how often a state's two labels agree (labels).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gsf.core.errors import UserError
from gsf.core.logs import console, progress
from gsf.core.results import Results, Stage
from gsf.core.sealed import write_table
from gsf.data.dataset import Dataset
from gsf.equations import quantile_labels
from gsf.evaluation.intervals import estimate, mean_over_levels, redraw
from gsf.gvf.monte_carlo import monte_carlo
from gsf.learn.agent import load_agent
from gsf.studies.embeddings import GAMMA, N_BINS, PIXELS, flat_pixels
from gsf.studies.options import ProbeConfig
from gsf.suites.looks import inside

Array = NDArray[Any]


class Twins(NamedTuple):
    """States in two looks: images [n,H,W,C], the first one's look and the labels of both [n]."""

    first: Array
    second: Array
    look: Array
    labels: tuple[Array, Array]


def probe_looks(config: ProbeConfig) -> Path:
    assert config.looks is not None
    data = Dataset.open(config.looks)
    twins, game = draw_twins(data, config.sample), inside(data.name)
    trained = Results(config.runs).of_kind("run")
    runs = [x for x in trained if inside(str(x.manifest["game"])) == game]
    if not runs:
        raise UserError(f"none of the runs is of {game}, whose looks {config.looks} has.")
    rows = list(_of_the_data(twins))
    with progress("probe", len(runs), "runs") as advance:
        for done, run in enumerate(runs, 1):
            try:
                rows += _of_a_run(run, twins)
            except UserError as error:  # a run that is not done yet
                console.print(f"[yellow]left out:[/] {run.path}: {error}", soft_wrap=True)
            advance(done)
    frame = pd.DataFrame(rows)
    frame.insert(0, "game", game)
    write_table(config.out / "looks.csv", frame, float_format="%.4f")
    means = frame.groupby(["method", "measure"], sort=False)["value"].mean().unstack("measure")
    print(means.round(3).to_string(na_rep="-"))
    return config.out


def draw_twins(data: Dataset, n: int) -> Twins:
    """States drawn evenly, among those of the first view that the second has, too."""
    views = data.manifest["config"].get("views", 1)
    if views < 2:
        raise UserError(
            f"{data.path} shows each state in one look; `gsf materialise --looks 16 --views 2` "
            "shows it in two."
        )
    half = len(data) // views
    first = np.random.default_rng(0).choice(half, min(n, half), replace=False)
    value = monte_carlo(data.reward[:, None], data.episode, data.terminated, GAMMA)[:, 0]
    label = quantile_labels(value, data.level, N_BINS)
    one, other = (data.observations(rows).numpy() for rows in (first, half + first))
    return Twins(one, other, data.level[first], (label[first], label[half + first]))


def _of_the_data(twins: Twins) -> Iterator[dict[str, Any]]:
    first, second = np.split(flat_pixels(np.concatenate([twins.first, twins.second])), 2)
    yield from _named(PIXELS, 0, nearness(first, second, twins.look))
    one, other = twins.labels
    known = (one >= 0) & (other >= 0)
    if known.any():
        agree = mean_over_levels((one == other)[known], twins.look[known])
        yield from _named("labels", 0, {"labels": agree})


def _of_a_run(run: Stage, twins: Twins) -> list[dict[str, Any]]:
    agent = load_agent(run.path)
    first, second = (agent.embed(x) for x in (twins.first, twins.second))
    found = nearness(first, second, twins.look)
    best = (agent.policy(x, 0.0).argmax(1) for x in (twins.first, twins.second))
    found["action"] = mean_over_levels(np.equal(*best), twins.look)
    return list(_named(str(run.manifest["method"]), int(run.manifest["seed"]), found))


def _named(method: str, seed: int, found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for measure, numbers in found.items():
        yield {"method": method, "seed": seed, "measure": measure, **numbers}


def nearness(first: Array, second: Array, look: Array) -> dict[str, dict[str, float]]:
    """`closer` and `distance` of z of the same states in two looks, each [n,d].

    Another state of one look: the next in a random order of those that are seen in that look.
    """
    stranger = np.arange(len(look))
    rng = np.random.default_rng(0)
    for number in np.unique(look):
        rows = rng.permutation(np.flatnonzero(look == number))
        stranger[rows] = np.roll(rows, 1)
    has_one = stranger != np.arange(len(look))
    apart, beside = distance(first, second)[has_one], distance(first, first[stranger])[has_one]
    look = look[has_one]
    if not len(look):
        raise UserError("no two states are seen in one look; probe a larger --sample.")
    looks, place = np.unique(look, return_inverse=True)
    far, near = (np.bincount(place, x, len(looks)) for x in (apart, beside))
    weights = redraw(len(looks), np.random.default_rng(0))
    floor = np.finfo(np.float64).tiny  # of an encoder that tells nothing apart
    return {
        "closer": mean_over_levels((apart < beside) + 0.5 * (apart == beside), look),
        "distance": estimate(
            far.sum() / max(near.sum(), floor), (weights @ far) / np.maximum(weights @ near, floor)
        ),
    }


def distance(x: Array, y: Array) -> Array:
    """1 - cosine, row by row."""
    lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    found: Array = 1 - (x * y).sum(1) / np.maximum(lengths, 1e-12)
    return found.clip(0)
