"""The numbers of one agent on logged data: agreement, likelihood, calibration, estimated return.

Each is a statistic of sums over episodes, so that one bootstrap (contexts, their episodes) gives
every interval. The temperature is never fitted on the context it is used for: contexts are dealt
into folds, and a fold's temperature comes from the others. FQE's interval is over where episodes
begin; it does not know how wrong the fitted Q may be.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from gsf.core.logs import progress
from gsf.data.dataset import Dataset
from gsf.equations import (
    calibration_bins,
    calibration_error,
    decision_weights,
    effective_share,
    fit_temperature,
    gvf_return,
    tempered_nll,
    weighted_return,
)
from gsf.evaluation.held_out_rows import ANY, JUDGED, OVERALL
from gsf.evaluation.intervals import estimate_sums, redraw_within
from gsf.gvf.fqe import fitted_q
from gsf.learn.agent import Agent
from gsf.learn.context import Past
from gsf.nets.acting import temperature_of, tempered

Array = npt.NDArray[Any]
FOLDS = 5
N_BINS = 15
FRAMES = 512  # frames that the agent is shown at once


@dataclass(frozen=True)
class Measure:
    """A quantity: what each episode adds to some sums, [E,k], and a statistic of the totals."""

    quantity: str
    mode: str
    sums: Array
    statistic: Callable[[Array], Array]
    at: float = np.nan
    per_context: bool = True


def judge(
    agent: Agent, dataset: Dataset, gamma: float, fqe: bool, mu: Array | None
) -> pd.DataFrame:
    """Every quantity of one agent, overall and per context.

    mu [n]: the probability with which each logged action was taken, if that is known.
    """
    features, scores = look(agent, dataset)
    pi = policies(scores)
    starts, stops = (np.array(x) for x in zip(*dataset.episodes(), strict=True))
    measures = [*imitation(scores[dataset.frame], pi[dataset.frame], dataset, starts)]
    from_start = np.asarray(dataset.t)[starts] == 0
    if fqe and from_start.any():
        value = np.zeros((len(starts), len(JUDGED)))
        value[from_start] = fitted_q(dataset, features, pi, gamma, starts[from_start])
        measures += [_mean("fqe", mode, value[:, i], from_start) for i, mode in enumerate(JUDGED)]
    whole = from_start & np.asarray(dataset.terminated | dataset.truncated)[stops - 1]
    if whole.any():
        measures += logged(pi[dataset.frame], dataset, starts, stops, whole, gamma, mu)
    return pd.DataFrame(_rows(measures, dataset, starts))


def look(agent: Agent, dataset: Dataset) -> tuple[Array, Array]:
    """What the agent makes of every frame: z [n_frames,z_dim], and scores [n_frames,A]."""
    features, scores, n = [], [], len(dataset.obs)
    remembers = agent.base.memory > 0
    with progress(f"look at {dataset.path.name}", n, "frames") as advance:
        for start in range(0, n, FRAMES):
            z = agent.embed(dataset.obs[start : start + FRAMES])
            features.append(z if remembers else z.astype(np.float16))
            scores.append(agent.scores_of(z))
            advance(start + len(z))
    z = np.concatenate(features)
    if not remembers:
        return z, np.concatenate(scores)
    return z.astype(np.float16), with_past(agent, dataset, z)


def with_past(agent: Agent, dataset: Dataset, z: Array) -> Array:
    """Scores at every frame after what was logged before it in its episode.  [n_frames,A]."""
    scores = np.zeros((len(z), agent.n_actions), np.float32)
    for start, stop in dataset.episodes():
        frame = np.asarray(dataset.frame[start:stop], np.int64)
        if dataset.has_next[stop - 1]:  # what the last step led to
            frame = np.append(frame, frame[-1] + 1)
        n = len(frame)
        action = np.append(dataset.action[start:stop], 0)[:n].astype(np.int64)
        earned = np.cumsum(np.append(0.0, dataset.reward[start:stop]))[:n].astype(np.float32)
        first = np.maximum(np.arange(n) - agent.base.memory + 1, 0)
        steps = np.minimum(first[:, None] + np.arange(agent.base.memory), n - 1)  # [n,T]
        for some in np.array_split(np.arange(n), -(-n // FRAMES)):
            at = steps[some]
            parts = (z[frame[at]], action[at], earned[at], some - first[some])
            scores[frame[some]] = agent.scores_in(Past(*map(torch.from_numpy, parts)))
    return scores


def policies(scores: Array) -> Array:
    """pi(a|o) as the agent plays, in the order of JUDGED.  [n,A] -> float32 [n,A,2]."""
    shares = [tempered(scores, temperature_of(mode, 1.0)) for mode in JUDGED]
    return np.stack(shares, 2).astype(np.float32)


def folds(level: Array, starts: Array) -> Array:
    """0..FOLDS-1 of every row, by context; by episode if there is one context only."""
    group = (
        level
        if len(np.unique(level)) > 1
        else np.searchsorted(starts, np.arange(len(level)), "right")
    )
    fold: Array = np.unique(group, return_inverse=True)[1] % FOLDS
    return fold


def cross_fitted(scores: Array, action: Array, fold: Array) -> Array:
    """The temperature of every row, fitted on the rows of other folds; 1 if there are none."""
    temperature = np.ones(len(action))
    if len(np.unique(fold)) > 1:
        for k in np.unique(fold):
            temperature[fold == k] = fit_temperature(scores[fold != k], action[fold != k])
    return temperature


def imitation(scores: Array, pi: Array, dataset: Dataset, starts: Array) -> Iterator[Measure]:
    """How well agents predict logged actions; scores [n,A] and pi [n,A,modes] of the rows."""
    action, steps = dataset.action.astype(np.int64), np.arange(len(dataset))
    n_steps = np.diff(np.append(starts, len(dataset)))

    def per_episode(x: Array) -> Array:
        return np.add.reduceat(x.astype(np.float64), starts, axis=0)

    for i, mode in enumerate(JUDGED):
        yield _mean("agreement", mode, per_episode(pi[steps, action, i]), n_steps)
    temperature = cross_fitted(scores, action, folds(np.asarray(dataset.level), starts))
    divided = scores.astype(np.float64) / temperature[:, None]
    yield _mean("nll", ANY, per_episode(tempered_nll(divided, action, 1.0)), n_steps)
    best = fit_temperature(scores, action)
    yield _fixed("temperature", ANY, best, len(starts))
    correct = scores.argmax(1) == action
    for name, logits in (("ece", divided), ("ece_played", scores)):
        confidence = tempered(logits, 1.0).max(1)
        bins = np.stack(
            [
                calibration_bins(confidence[a:b], correct[a:b], N_BINS)
                for a, b in zip(starts, starts + n_steps, strict=True)
            ]
        )  # [E,K,3]
        flat = bins.reshape(len(starts), -1)
        yield Measure(
            name, ANY, flat, lambda x: calibration_error(x.reshape(*x.shape[:-1], N_BINS, 3))
        )
        for n, total, right in bins.transpose(1, 2, 0) if name == "ece" else ():
            if n.any():
                sums, at = np.stack([right, n], 1), float(total.sum() / n.sum())
                yield Measure("reliability", ANY, sums, _ratio, at, per_context=False)


def logged(
    pi: Array,
    dataset: Dataset,
    starts: Array,
    stops: Array,
    whole: Array,
    gamma: float,
    mu: Array | None,
) -> Iterator[Measure]:
    """Returns of whole episodes, as logged and, if `mu` is known, weighted for the agent."""
    last = np.zeros(len(dataset), bool)
    last[stops - 1] = True
    returns = gvf_return(np.asarray(dataset.reward, np.float64), gamma, last)[starts]
    yield _mean("logged_return", ANY, np.where(whole, returns, 0.0), whole)
    if mu is None:
        return
    longest = int((stops - starts)[whole].max())
    steps = np.arange(len(dataset))
    rows = np.minimum(starts[:, None] + np.arange(longest), stops[:, None] - 1)  # [E,T]
    running = starts[:, None] + np.arange(longest) < stops[:, None]
    reward = np.where(running, np.asarray(dataset.reward, np.float64)[rows], 0.0)
    for i, mode in enumerate(JUDGED):
        ratio = pi[steps, dataset.action, i].astype(np.float64) / mu
        weight = np.zeros((len(starts), longest))
        weight[whole] = decision_weights(np.where(running, ratio[rows], 1.0)[whole])
        sums = np.concatenate([weight * reward, weight], 1)
        yield Measure(
            "wis", mode, sums, lambda x: weighted_return(x[..., :longest], x[..., longest:], gamma)
        )
        yield _fixed("effective", mode, effective_share(weight[whole, -1]), len(starts))


def _ratio(sums: Array) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio: Array = sums[..., 0] / sums[..., 1]
    return ratio


def _mean(quantity: str, mode: str, total: Array, count: Array) -> Measure:
    return Measure(quantity, mode, np.stack([total, count], 1).astype(np.float64), _ratio)


def _fixed(quantity: str, mode: str, value: float, n_episodes: int) -> Measure:
    """A number without an interval."""
    return Measure(
        quantity, mode, np.zeros((n_episodes, 1)), lambda _: np.asarray(value), per_context=False
    )


def _rows(measures: list[Measure], dataset: Dataset, starts: Array) -> Iterator[dict[str, Any]]:
    level = dataset.level[starts]
    n_steps = np.diff(np.append(starts, len(dataset)))
    everything = np.ones(len(starts), bool)
    parts = [(OVERALL, everything), *((dataset.levels[k], level == k) for k in np.unique(level))]
    for context, mine in parts:
        counts = redraw_within(level[mine], np.random.default_rng(0))
        size = {"n_contexts": len(np.unique(level[mine])), "n_episodes": int(mine.sum())}
        for x in measures:
            if mine.all() or x.per_context:
                found = dict.fromkeys(("low", "high"), np.nan)
                if x.sums.any():
                    found |= estimate_sums(x.statistic, x.sums[mine], counts)
                else:
                    found["value"] = float(x.statistic(x.sums[0]))
                yield {
                    "quantity": x.quantity,
                    "mode": x.mode,
                    "context": str(context),
                    "at": x.at,
                    **found,
                    **size,
                    "n_steps": int(n_steps[mine].sum()),
                }
