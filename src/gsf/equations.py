"""Every formula of the paper, one pure function each, in the paper's order.

Torch or numpy in, the same kind out. `@_in(library, name="shape")` states the shape of each array,
checks it, and names the library that the body is written in. Randomness is an argument (`rng`).

Glossary, used in the whole package:
    obs action reward     o_t, a_t, r_t of a logged transition; next_x is x one step later in time
    terminated truncated  the episode ended by itself / was cut: only the first makes the future 0
    level                 i = 0..m-1, the POMDP (Procgen level, site, device) of an observation
    cumulant              c(o, a): reward, state features or one-hot action
    value                 G_i(o), the discounted sum of cumulants: the GVF of level i
    label                 quantile bin 0..n_bins-1 of a value within its level; -1: ignored
    u                     rank of a value within its level, in [0, 1); NaN: ignored
    z, q, logits          latent f(o); Q(o, .), one per action; scores before a softmax
    target_x              x of an EMA network, or a bootstrapped target
    gamma tau epsilon     discount; temperature; exploration rate or a tolerance (Theorem 1)
    alpha, rate           weight of CQL's conservative term (the paper's lambda); EMA step
    expectile, beta       of IQL: how near V is to the best; how much the policy prefers it
    pi, ratio             pi(a|o) of the agent; pi(a|o) / mu(a|o) with mu of who logged the data
In shapes: n samples, T time steps, d components of a cumulant, m levels, A actions, K bins;
`...` is any number of axes, the same ones wherever it appears.
"""

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

# torch.Tensor | np.ndarray. Any to the type checker: a union would ask every caller for a cast.
Array: TypeAlias = Any
P = ParamSpec("P")
R = TypeVar("R")

POPART_STD_RANGE = (1e-4, 1e6)


def _in(library: ModuleType, **shapes: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Run the function in `library` (torch or np) on arrays of these shapes; return what came in.

    A shape is axis names, `"n A"`; an array argument that is None is optional and left out.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            arguments = signature.bind(*args, **kwargs).arguments
            arrays = {name: x for name in shapes if (x := arguments.get(name)) is not None}
            tensors = [x for x in arrays.values() if isinstance(x, Tensor)]
            device = tensors[0].device if tensors else None
            arrays = {name: _to(library, x, device) for name, x in arrays.items()}
            sizes: dict[str, Any] = {}
            for name, x in arrays.items():
                _match(f"{function.__name__}: {name}", tuple(x.shape), shapes[name], sizes)
            result = function(**{**arguments, **arrays})  # type: ignore[call-arg]
            output: R = _convert(torch if tensors else np, result, device)
            return output

        return checked

    return decorate


def _to(library: ModuleType, x: Array, device: torch.device | None) -> Array:
    if library is np:
        return x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
    if isinstance(x, Tensor):
        return x
    # Torch warns about read-only arrays (memmaps) and refuses negative strides: both are copied.
    return torch.from_numpy(np.require(x, requirements=["C", "W"])).to(device)


def _convert(library: ModuleType, x: Any, device: torch.device | None) -> Any:
    if isinstance(x, tuple):
        return tuple(_convert(library, y, device) for y in x)
    if isinstance(x, dict):
        return {key: _convert(library, y, device) for key, y in x.items()}
    if library is np and isinstance(x, Tensor):
        return _to(np, x, None)
    if library is torch and isinstance(x, np.ndarray | np.generic):
        return torch.as_tensor(x, device=device)
    return x


def _match(what: str, shape: tuple[int, ...], axes: str, sizes: dict[str, Any]) -> None:
    """Bind the axis names to the shape, in agreement with `sizes`; raise ValueError otherwise."""
    names = axes.split()
    n_free = len(shape) - len(names) + 1  # axes that `...` stands for
    if "..." in names and n_free >= 0:
        k = names.index("...")
        bound = [*shape[:k], shape[k : k + n_free], *shape[k + n_free :]]
    else:
        bound = list(shape)
    known = {name: sizes[name] for name in names if name in sizes}
    found = dict(zip(names, bound, strict=False))
    if len(bound) != len(names) or any(found[name] != size for name, size in known.items()):
        where = f" with {known}" if known else ""
        raise ValueError(f"{what} has shape {list(shape)}, expected [{axes}]{where}")
    sizes.update(found)


def _real(x: Tensor) -> Tensor:
    return x if x.is_floating_point() else x.double()


# Motivating example


@_in(torch, p="... A", q="... A")
def total_variation(p: Array, q: Array) -> Array:
    """TV(p, q) = 1/2 sum_a |p(a) - q(a)|.  p, q [..., A] distributions -> [...]."""
    return 0.5 * (p - q).abs().sum(-1)


@_in(torch, value_1="... T", value_2="... T")
def normalised_squared_error(value_1: Array, value_2: Array) -> Array:
    """sum_t (v1 - v2)^2 / (1/2 sum_t (v1^2 + v2^2)), 0 if both are 0.  [..., T] -> [...]."""
    # Deviation: the paper does not say by what its error is normalised; symmetric, scale-free.
    scale = 0.5 * (value_1**2 + value_2**2).sum(-1)
    error = ((value_1 - value_2) ** 2).sum(-1)
    return error / torch.where(scale > 0, scale, torch.ones_like(scale))


# Quantifying future behaviour with GVFs


@_in(torch, cumulants="T ...", ended="T")
def gvf_return(cumulants: Array, gamma: float, ended: Array = None) -> Array:
    """G_t = sum_{k>=0} gamma^k c_{t+k} along a trajectory.  cumulants [T] or [T, d] -> same shape.

    `ended` [T]: the step was the last of its episode, so that [T] may hold many episodes in a row.
    """
    # Deviation: from k = 0 as in Algorithm 1, not 1 as in the Definition.
    total = _real(cumulants).clone()
    discount = total.new_full((len(total), *[1] * (total.ndim - 1)), gamma)
    if ended is not None:
        discount[ended.bool()] = 0.0
    # Doubling: after each round total[t] sums `span` steps and discount[t] leads past them.
    span = 1
    while span < len(total) and discount.any():
        total = torch.cat([total[:-span] + discount[:-span] * total[span:], total[-span:]])
        discount = torch.cat([discount[:-span] * discount[span:], discount[-span:]])
        span *= 2
    return total


@_in(torch, cumulants="n k ...", taken="n k")
def gvf_sum(cumulants: Array, taken: Array, gamma: float) -> Array:
    """sum_k gamma^k c_{t+k} over the steps that are taken.  [n, k, ...], [n, k] -> [n, ...]."""
    cumulants = _real(cumulants)
    k = torch.arange(taken.shape[1], dtype=torch.float64, device=taken.device)
    weight = (gamma**k * taken).to(cumulants)
    return (weight.reshape(*taken.shape, *[1] * (cumulants.ndim - 2)) * cumulants).sum(1)


@_in(torch, cumulant="n ...", next_value="n ...", terminated="n")
def gvf_target(
    cumulant: Array, next_value: Array, terminated: Array, gamma: float | Array
) -> Array:
    """y = c + gamma (1 - terminated) G~(o').  [n] or [n, d], terminated [n] -> as cumulant.

    Over m steps: c is their `gvf_sum`, o' what follows the last of them, gamma is gamma^m [n(, 1)].
    """
    alive = ~terminated.bool().reshape(-1, *[1] * (next_value.ndim - 1))
    return cumulant + torch.as_tensor(gamma, dtype=torch.float64) * (alive * next_value)


# Measuring distances between GVFs of different POMDPs


@_in(torch, value_1="...", value_2="...")
def gvf_distance(value_1: Array, value_2: Array) -> Array:
    """d_mu(o1, o2) = |G_i(o1) - G_j(o2)|, elementwise."""
    return (value_1 - value_2).abs()


@_in(np, values="n", g="...")
def empirical_cdf(values: Array, g: Array) -> Array:
    """F^(g) = 1/n sum_j 1[G_j < g], strict as printed.  values [n], g [...] -> [...]."""
    return np.searchsorted(np.sort(values), g, side="left") / len(values)


@_in(np, values="n", p="...")
def empirical_quantile(values: Array, p: Array) -> Array:
    """F^-1(p) = inf {g : p <= F^(g)} = the ceil(p n)-th smallest value.  values [n], p [...]."""
    # Deviation: F^ with <= here. With the printed < the infimum is the same number but is not
    # attained, and p = 0 would give the end of the range of G instead of the smallest value.
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("empirical_quantile: p must lie in [0, 1]")
    position = np.ceil(p * len(values) * (1 - 1e-12))  # k/K * n must not round up past an integer
    return np.sort(values)[np.maximum(position, 1).astype(np.int64) - 1]


@_in(np, values="n")
def bin_edges(values: Array, n_bins: int) -> Array:
    """F^-1(k/K) for k = 0..K: bin I(k) lies between edges k and k+1.  values [n] -> [K+1]."""
    return empirical_quantile(values, np.arange(n_bins + 1) / n_bins)


@_in(np, values="...", edges="K+1")
def in_bin(values: Array, edges: Array, k: int) -> Array:
    """o in I(k): F^-1(k/K) <= G(o) <= F^-1((k+1)/K), both ends in.  values [...] -> bool [...]."""
    return (edges[k] <= values) & (values <= edges[k + 1])


@_in(np, values="...", edges="K+1")
def labels_from_edges(values: Array, edges: Array) -> Array:
    """l(o) = max {k : o in I(k)}, -1 in no bin (or NaN).  values [...], edges [K+1] -> int64 [...].

    The label of Algorithm 2, `quantiles="batch"`; `quantile_labels` is the default.
    """
    label = np.searchsorted(edges[:-1], values, side="right") - 1
    return np.where(values <= edges[-1], label, -1).astype(np.int64)


@_in(np, values="n ...", level="n")
def quantile_labels(values: Array, level: Array, n_bins: int) -> Array:
    """l_i(o) = floor(K rank / n_i), rank = 0..n_i-1 of G_i(o) among the n_i values of its level.

    Equal values share their middle rank. -1 where the value is NaN (not known, not in n_i) or the
    level has fewer than two distinct ones.  values [n] or [n, d], level [n] -> int64 as values.
    """
    # Deviation: ranks instead of edges: bins of equal size, and in one bin only (I(k) overlap).
    if n_bins < 1:
        raise ValueError(f"quantile_labels: n_bins is {n_bins}, expected at least 1")
    twice_rank, n_level = _twice_middle_rank(values, level)
    label = twice_rank * n_bins // np.maximum(2 * n_level, 1)  # integers: nothing is rounded
    return np.where(n_level > 0, label, -1)


@_in(np, values="n ...", level="n")
def within_level_rank(values: Array, level: Array) -> Array:
    """u = middle rank / n_i in [0, 1), NaN where `quantile_labels` gives -1.  float64 as values."""
    twice_rank, n_level = _twice_middle_rank(values, level)
    return np.where(n_level > 0, twice_rank / np.maximum(2 * n_level, 1), np.nan)


def _twice_middle_rank(values: Array, level: Array) -> tuple[Array, Array]:
    """(2 x middle rank, n_i), int64 as values; n_i = 0 where there is no rank."""
    twice_rank = np.zeros(values.shape, np.int64)
    n_level = np.zeros(values.shape, np.int64)
    for component in np.ndindex(values.shape[1:]):
        column = values[(slice(None), *component)]
        known = np.flatnonzero(~np.isnan(column))
        order = known[np.lexsort((column[known], level[known]))]
        value, group = column[order], level[order]
        new_level = np.ones(len(order), bool)
        new_level[1:] = group[1:] != group[:-1]
        new_value = new_level.copy()
        new_value[1:] |= value[1:] != value[:-1]
        tie_start, tie_size = _runs(new_value)
        level_start, level_size = _runs(new_level)
        middle = np.repeat(2 * tie_start + tie_size - 1, tie_size)
        n_distinct = np.diff(np.searchsorted(tie_start, np.append(level_start, len(order))))
        twice_rank[(order, *component)] = middle - np.repeat(2 * level_start, level_size)
        n_level[(order, *component)] = np.repeat(level_size * (n_distinct > 1), level_size)
    return twice_rank, n_level


def _runs(first: Array) -> tuple[Array, Array]:
    """Start and length of each run, given where runs begin."""
    start = np.flatnonzero(first)
    return start, np.diff(start, append=len(first))


# Self-supervised learning of GSFs


@_in(torch, logits="n ... K", label="n ...")
def contrastive_cce(logits: Array, label: Array, tau: float) -> Array:
    """l_NCE = -E[log softmax(W^T h(z) / tau)_label] over label >= 0; 0 if there is none.

    logits [n, K] with label [n], or [n, d, K] with [n, d] -> scalar.
    """
    label = label.long().flatten()
    nll = cross_entropy(logits.flatten(0, -2) / tau, label, ignore_index=-1, reduction="sum")
    return nll / (label >= 0).sum().clamp(min=1)


# Algorithm: the agents under the auxiliary loss


@_in(torch, reward="n", terminated="n", next_q="n A", next_q_target="n A")
def td_target(
    reward: Array, terminated: Array, next_q: Array, next_q_target: Array, gamma: float | Array
) -> Array:
    """y = r + gamma (1 - terminated) Q~(o', a*), a* = argmax_a Q(o', a).  [n], [n, A] -> [n]."""
    # Deviation: double DQN. next_q = next_q_target gives the paper's max_a Q~(o', a).
    best = next_q.argmax(1, keepdim=True)
    return gvf_target(reward, next_q_target.gather(1, best)[:, 0], terminated, gamma)


@_in(torch, q="n", target="n", mask="n")
def td_loss(q: Array, target: Array, mask: Array = None) -> Array:
    """E[(Q(o, a) - y)^2] over the rows that have a target at all (mask), 0 if none has.  [n]."""
    mask = torch.ones_like(q, dtype=torch.bool) if mask is None else mask.bool()
    error = q - torch.where(mask, target, q)
    return (error**2).sum() / mask.sum().clamp(min=1)


@_in(torch, q="n A", action="n", target="n", mask="n")
def cql_loss(
    q: Array, action: Array, target: Array, alpha: float, mask: Array = None
) -> tuple[Array, dict[str, Array]]:
    """l_CQL = E[(Q(o, a) - y)^2] + alpha E[LSE_a Q(o, .) - Q(o, a)], one critic.

    q [n, A], action [n], target [n] -> scalar, info. mask [n]: rows that have a target at all (the
    first expectation is over these, the second over all rows).
    """
    chosen = q.gather(1, action.long()[:, None])[:, 0]
    td = td_loss(chosen, target, mask)
    conservative = (q.logsumexp(1) - chosen).mean()
    info = {"td": td, "conservative": conservative, "q": chosen.mean()}
    return td + alpha * conservative, {name: x.detach() for name, x in info.items()}


@_in(torch, logits="n A", action="n")
def bc_loss(logits: Array, action: Array) -> tuple[Array, dict[str, Array]]:
    """l_BC = -E[log softmax(logits)_a].  logits [n, A], action [n] -> scalar, info."""
    accuracy = (logits.argmax(1) == action).to(logits.dtype).mean()
    return cross_entropy(logits, action.long()), {"accuracy": accuracy}


# Implicit Q-learning (Kostrikov, Nair and Levine 2021), another agent under the auxiliary loss


@_in(torch, error="...")
def expectile_loss(error: Array, expectile: float) -> Array:
    """L_2^e(u) = |e - 1[u < 0]| u^2, elementwise; e = 1/2 is half the square."""
    return (expectile - (error < 0).to(error.dtype)).abs() * error**2


@_in(torch, value="n", target_q="n")
def iql_value_loss(value: Array, target_q: Array, expectile: float) -> Array:
    """l_V = E[L_2^e(Q~(o, a) - V(o))]: near e = 1, V is Q~ of the best logged action.  [n]."""
    return expectile_loss(target_q - value, expectile).mean()


@_in(torch, logits="n A", action="n", advantage="n")
def iql_policy_loss(
    logits: Array, action: Array, advantage: Array, beta: float, max_weight: float
) -> tuple[Array, dict[str, Array]]:
    """l_pi = -E[min(exp(beta A), max_weight) log softmax(logits)_a].  [n, A], [n], [n]."""
    weight = (beta * advantage.detach()).exp().clamp(max=max_weight)
    nll = cross_entropy(logits, action.long(), reduction="none")
    return (weight * nll).mean(), {"advantage": advantage.detach().mean(), "weight": weight.mean()}


# Choice of the number of quantiles K


@_in(np, values="n")
def theorem1_terms(
    values: Array,
    n_bins: int,
    epsilon: float,
    rng: np.random.Generator,
    delta: float = 0.0,
    n_boot: int = 200,
) -> dict[str, float]:
    """P[sup |G1 - G2| > 3 eps] <= 2 exp(-2 n eps^2 / 4) + p(n, K, eps) + delta.  values [n].

    p(n, K, eps) = P[max_k |F^-1((k+1)/K) - F^-1(k/K)| > eps], by bootstrap. The first term does
    not depend on K and bounds F, not F^-1, whatever the unit of eps: see `suggest_bins`.
    """
    # Deviation: k = 0..K-1; the printed k = K would ask for the quantile (K+1)/K.
    n = len(values)
    widest = [np.diff(bin_edges(rng.choice(values, n), n_bins)).max() for _ in range(n_boot)]
    return {
        "estimation": 2 * math.exp(-2 * n * epsilon**2 / 4),
        "width": float(np.mean(np.array(widest) > epsilon)),
        "delta": delta,
    }


@_in(np, values="n")
def suggest_bins(
    values: Array, candidates: Sequence[int], rng: np.random.Generator, n_boot: int = 50
) -> tuple[int, dict[int, dict[str, float]]]:
    """argmin_K width(K) + flip(K) and both terms of every K.  values [n] of one level.

    width = mean bin width / range of the values (1/K); flip = P[a label changes if the level's
    values are redrawn]. Both lie in [0, 1].
    """
    # Deviation: not Theorem 1, whose terms cannot choose K.
    spread = np.ptp(values)
    if not spread > 0:
        raise ValueError("suggest_bins: needs at least two distinct values")
    flip = dict.fromkeys(candidates, 0.0)
    own = _twice_rank_among(values, values)
    for _ in range(n_boot):
        redrawn = _twice_rank_among(values, rng.choice(values, len(values)))
        for k in candidates:
            flip[k] += float(np.mean(own * k // (2 * len(own)) != redrawn * k // (2 * len(own))))
    table = {
        k: {"width": float(np.diff(bin_edges(values, k)).mean() / spread), "flip": flip[k] / n_boot}
        for k in candidates
    }
    return min(table, key=lambda k: table[k]["width"] + table[k]["flip"]), table


def _twice_rank_among(values: Array, sample: Array) -> Array:
    """2 x middle rank of values [n] among another sample, within 0..2n-1."""
    sample = np.sort(sample)
    below, up_to = (np.searchsorted(sample, values, side) for side in ("left", "right"))
    return np.clip(below + up_to - 1, 0, 2 * len(sample) - 1)


# Appendix: experimental details


@_in(torch, mean="m d", mean_sq="m d", debias="m", values="n d", level="n")
def popart_statistics(
    mean: Array, mean_sq: Array, debias: Array, values: Array, level: Array, rate: float = 1e-2
) -> tuple[Array, Array, Array]:
    """nu <- (1 - rate) nu + rate (batch mean of level i), for each level i in the batch, once.

    nu = mean [m, d] of y, mean_sq [m, d] of y^2, debias [m] of 1; all start at 0. They are biased
    towards 0 until `popart_mean_std` divides by debias. values [n, d], level [n].
    """
    level = level.long()
    count = torch.zeros_like(debias).index_add(0, level, torch.ones_like(level).to(debias))
    step = rate * (count > 0).to(debias)

    def moved(old: Tensor, new: Tensor) -> Tensor:
        total = torch.zeros_like(old).index_add(0, level, new)
        return old + step[:, None] * (total / count.clamp(min=1)[:, None] - old)

    # Squared in the statistics' own precision: float64 keeps sigma when |mu| >> sigma.
    values = values.to(mean)
    return moved(mean, values), moved(mean_sq, values**2), debias + step * (1 - debias)


@_in(torch, mean="m d", mean_sq="m d", debias="m")
def popart_mean_std(mean: Array, mean_sq: Array, debias: Array) -> tuple[Array, Array]:
    """mu = mean / debias, sigma^2 = mean_sq / debias - mu^2, sigma clipped; unseen levels 0, 1."""
    seen = (debias > 0)[:, None]
    weight = torch.where(seen, debias[:, None], torch.ones_like(debias[:, None]))
    mu = mean / weight
    sigma = (mean_sq / weight - mu**2).clamp(min=0).sqrt().clamp(*POPART_STD_RANGE)
    return mu, torch.where(seen, sigma, torch.ones_like(sigma))


@_in(torch, weight="... x", bias="...", old_mean="...", old_std="...", mean="...", std="...")
def popart_rescale(
    weight: Array, bias: Array, old_mean: Array, old_std: Array, mean: Array, std: Array
) -> tuple[Array, Array]:
    """w' = w s/s', b' = (s b + mu - mu') / s': keeps G = sigma (w.x + b) + mu as it was.

    weight [..., x], the others [...]; for a head of m levels and d components ... is m, d.
    """
    new_weight = weight * (old_std / std)[..., None]
    new_bias = (old_std * bias + old_mean - mean) / std
    return new_weight.to(weight.dtype), new_bias.to(bias.dtype)


@_in(torch, y="...", mean="...", std="...")
def popart_normalise(y: Array, mean: Array, std: Array) -> Array:
    """(y - mu_i) / sigma_i; mean and std already indexed by level, all of one shape."""
    return (y - mean) / std


@_in(torch, y="...", mean="...", std="...")
def popart_denormalise(y: Array, mean: Array, std: Array) -> Array:
    """sigma_i y + mu_i, the inverse of `popart_normalise`."""
    return std * y + mean


def epsilon_schedule(t: Any, n_total: int, literal: bool = False) -> Any:
    """eps_t = 0.1 (1 - t / N) after t of N transitions; literal: 0.1 - 3.96e-9 t."""
    # Deviation: the literal rule ends at 0.080 after 5M; the paper means it to end at 0.
    return 0.1 - 3.96e-9 * t if literal else 0.1 * (1 - t / n_total)


@_in(torch, target="...", online="...")
def ema(target: Array, online: Array, rate: float) -> Array:
    """theta~ <- rate theta + (1 - rate) theta~, one tensor of parameters."""
    return rate * online + (1 - rate) * target


# Appendix: Theorem 2


@_in(torch, visits="...")
def theorem2_bound(
    visits: Array, gamma: float, form: Literal["printed", "proof"] = "printed"
) -> tuple[Array, Array]:
    """(lower, upper) of ||G(o)||_1 for the indicator cumulant, after n(o) visits.

    printed: 1 + gamma + gamma/(n+1) <= ||G||_1 <= the same + gamma^2/(1-gamma): falls with n.
    proof:   1 + gamma - gamma/(n+1), likewise: rises with n, so that I(K) holds the most visited
    observations, as the proof concludes. Derived from the substochastic successor representation
    of Machado et al. (2020), which the proof cites: P~(o, o') = n(o, o') / (n(o) + 1) has rows that
    sum to n/(n+1), so ||G||_1 = sum_t gamma^t (P~^t 1)(o) is 1 + gamma n/(n+1) for t <= 1, and
    all later terms add between 0 and gamma^2/(1-gamma).
    """
    signs = {"printed": 1, "proof": -1}
    if form not in signs:
        raise ValueError(f"theorem2_bound: form is {form!r}, expected one of {list(signs)}")
    lower = 1 + gamma + signs[form] * gamma / (_real(visits) + 1)
    return lower, lower + gamma**2 / (1 - gamma)


# Appendix: choice of contrastive objective


@_in(torch, s1="... x", s2="... x")
def cosine_distance(s1: Array, s2: Array) -> Array:
    """d(s1, s2) = -s1.s2 / (|s1| |s2|).  [..., x] -> [...]."""
    return -(normalize(s1, dim=-1) * normalize(s2, dim=-1)).sum(-1)


def _pairwise_cosine(embedding: Tensor) -> Tensor:
    """-d(s_i, s_j) of all pairs.  [n, x] -> [n, n]."""
    unit = normalize(embedding, dim=-1)
    return unit @ unit.T


def _off_diagonal(pairs: Tensor) -> Tensor:
    """[n, n] -> [n, n-1]."""
    n = len(pairs)
    return pairs[~torch.eye(n, dtype=torch.bool, device=pairs.device)].view(n, n - 1)


@_in(torch, embedding="n x", label="n")
def contrastive_infonce(embedding: Array, label: Array, tau: float) -> Array:
    """l(S_P, S_N) = -log (sum_{s1,s2 in S_P} e^{-d/tau} / sum_{s1 in S_P, s2 in S_N} e^{-d/tau}).

    Mean over the classes with a positive pair (s1 != s2) and a negative; S_N is all other classes.
    0 if there is no such class.  embedding [n, x], label [n], -1 ignored -> scalar.
    """
    # Deviation: the diagonal is left out (printed, it is in); E over S_P is the mean over classes.
    pairs = _pairwise_cosine(embedding) / tau
    losses = []
    for k in label[label >= 0].unique():
        anchor, other = label == k, (label >= 0) & (label != k)
        if anchor.sum() > 1 and other.any():
            positive = _off_diagonal(pairs[anchor][:, anchor])
            negative = pairs[anchor][:, other]
            losses.append(negative.flatten().logsumexp(0) - positive.flatten().logsumexp(0))
    return torch.stack(losses).mean() if losses else 0.0 * embedding.sum()


# Beyond the paper's text: its first open question, and the metric of PSE


@_in(torch, embedding="n x", u="n")
def rank_contrast(embedding: Array, u: Array, tau: float, bandwidth: float) -> Array:
    """-E_i sum_{j!=i} w_ij log softmax_j(cos_ij / tau), w_ij ~ exp(-|u_i - u_j| / bandwidth).

    w sums to 1 over j != i. No bins: u [n] are ranks within a level, comparable across levels; NaN
    is ignored, 0 if fewer than two are left.  embedding [n, x] -> scalar.
    """
    known = ~u.isnan()
    embedding, u = embedding[known], u[known].to(embedding.dtype)
    if len(u) < 2:
        return 0.0 * embedding.sum()
    weight = _off_diagonal(-(u[:, None] - u).abs() / bandwidth).softmax(1)
    log_p = _off_diagonal(_pairwise_cosine(embedding) / tau).log_softmax(1)
    return -(weight * log_p).sum(1).mean()


@_in(torch, cost="T1 T2")
def policy_similarity_metric(cost: Array, gamma: float, absorbing: bool = False) -> Array:
    """d_ij = c_ij + gamma d_{i+1,j+1}, indices clamped at the edges, d = c at the last corner.

    cost [T1, T2] between the steps of two episodes -> [T1, T2]. absorbing: both episodes stay in
    their last step for ever, d = c / (1 - gamma) at the last corner.
    """
    d = _real(cost).clone()
    if absorbing:
        d[-1, -1] /= 1 - gamma
    d[-1] = gvf_return(d[-1], gamma)
    d[:, -1] = gvf_return(d[:, -1], gamma)
    for i in reversed(range(len(d) - 1)):
        d[i, :-1] += gamma * d[i + 1, 1:]
    return d


# Beyond the paper: judging an agent by logged data alone


@_in(torch, q="n A ...", pi="n A ...")
def expected_value(q: Array, pi: Array) -> Array:
    """V(o) = sum_a pi(a|o) Q(o, a).  [n, A] -> [n]; [n, A, d] -> [n, d].

    With `gvf_target`, y = r + gamma (1 - terminated) sum_a pi(a|o') Q~(o', a): the target of fitted
    Q evaluation (Le, Voloshin and Yue 2019), a GVF of reward under the agent's policy.
    """
    return (pi * q).sum(1)


@_in(torch, scores="n A", action="n")
def tempered_nll(scores: Array, action: Array, temperature: float) -> Array:
    """-log softmax(scores / temperature)_a of every row.  [n, A], [n] -> [n]."""
    return cross_entropy(_real(scores) / temperature, action.long(), reduction="none")


@_in(torch, scores="n A", action="n")
def fit_temperature(
    scores: Array, action: Array, bounds: tuple[float, float] = (1e-3, 1e3)
) -> float:
    """argmin_T E[-log softmax(scores / T)_a], by bisection.  scores [n, A], action [n].

    The mean is convex in b = 1/T with slope E[sum_a softmax(b s)_a s_a - s_action]. Scores that say
    nothing, or are never wrong, end at a bound.
    """
    s = _real(scores).double()
    chosen = s.gather(1, action.long()[:, None])[:, 0]
    low, high = math.log(bounds[0]), math.log(bounds[1])
    for _ in range(60):
        middle = (low + high) / 2
        expected = ((s / math.exp(middle)).softmax(1) * s).sum(1)
        if (expected - chosen).mean() <= 0:  # a larger 1/T, so a lower T, is better
            high = middle
        else:
            low = middle
    return math.exp((low + high) / 2)


@_in(np, confidence="n", correct="n")
def calibration_bins(confidence: Array, correct: Array, n_bins: int = 15) -> Array:
    """(rows, sum of confidence, sum of correct) of each bin of confidence.  [n] -> [n_bins, 3].

    Bin k is (k/K, (k+1)/K], as in Guo et al. (2017); sums, so that they add up over episodes.
    """
    of_bin = np.clip(np.ceil(confidence * n_bins).astype(np.int64) - 1, 0, n_bins - 1)
    weights = (np.ones(len(of_bin)), confidence, correct)
    return np.stack([np.bincount(of_bin, w, n_bins) for w in weights], 1)


@_in(np, bins="... K 3")
def calibration_error(bins: Array) -> Array:
    """ECE = sum_k n_k/n |accuracy_k - confidence_k| of `calibration_bins` [..., K, 3] -> [...]."""
    return np.abs(bins[..., 2] - bins[..., 1]).sum(-1) / bins[..., 0].sum(-1)


@_in(np, ratio="n T")
def decision_weights(ratio: Array) -> Array:
    """w_it = prod_{k<=t} ratio_ik, each column divided by its largest.  [n, T] -> the same.

    Of n episodes; after its end an episode has ratio 1. What a column is divided by cancels in
    `weighted_return` and would overflow in long episodes. A column of zeros stays.
    """
    with np.errstate(divide="ignore"):
        total = np.log(ratio).cumsum(1)
    largest = total.max(0)
    return np.exp(total - np.where(np.isfinite(largest), largest, 0.0))


@_in(np, weighted_reward="... T", weight="... T")
def weighted_return(weighted_reward: Array, weight: Array, gamma: float) -> Array:
    """sum_t gamma^t (sum_i w_it r_it) / (sum_i w_it): per-decision weighted importance sampling.

    The sums over episodes come in, [..., T] -> [...] (Precup et al. 2000). NaN where some step has
    no weight at all: nobody who logged did what the agent does.
    """
    discount = gamma ** np.arange(weight.shape[-1])
    with np.errstate(invalid="ignore", divide="ignore"):
        return (discount * weighted_reward / weight).sum(-1)


@_in(np, weight="n")
def effective_share(weight: Array) -> float:
    """(sum_i w_i)^2 / (n sum_i w_i^2), 0 if all are 0: the share of episodes that count.  [n]."""
    square = float((weight**2).sum())
    return float(weight.sum()) ** 2 / (len(weight) * square) if square else 0.0
