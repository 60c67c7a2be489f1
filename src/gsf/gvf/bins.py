"""How many bins: the paper's Theorem 1 as a tool (`gsf label --suggest-bins`, and the report)."""

from collections.abc import Mapping, Sequence

import numpy as np

from gsf.core.errors import UserError
from gsf.equations import suggest_bins, theorem1_terms
from gsf.gvf.training_labels import Array

CANDIDATE_BINS = (2, 3, 4, 5, 7, 10, 15, 20, 30, 50)


def bins_table(terms: Mapping[int, Mapping[str, float]], epsilon: float) -> str:
    """What `choose_bins` found, as text: Theorem 1's terms and the criterion that does choose K."""
    best = min(terms, key=lambda k: terms[k]["width"] + terms[k]["flip"])
    lines = [
        f"K against Theorem 1 at epsilon = {epsilon:g} of a level's range, mean over levels:",
        "   K  estimation  p(n,K,eps)   bin width  P[flip]  width + flip",
    ]
    for k, x in terms.items():
        lines.append(
            f"{k:4d}  {x['estimation']:10.3f}  {x['p']:10.3f}  {x['width']:10.3f}  {x['flip']:7.3f}"
            f"  {x['width'] + x['flip']:12.3f}{'  <- suggested' if k == best else ''}"
        )
    return "\n".join(lines)


def choose_bins(
    values: Array,
    level: Array,
    candidates: Sequence[int],
    epsilon: float,
    rng: np.random.Generator,
    max_groups: int = 20,
    max_rows: int = 5_000,
) -> dict[int, dict[str, float]]:
    """Per K: Theorem 1's two terms (estimation, p) and the terms of `suggest_bins`.

    Means over a sample of the levels (and components), their values scaled to [0, 1].
    """
    groups = []
    for i in np.unique(level):
        for x in values[level == i].reshape(np.sum(level == i), -1).T:
            known = x[~np.isnan(x)]
            if len(known) > 1 and np.ptp(known) > 0:
                groups.append((known - known.min()) / np.ptp(known))
    if not groups:
        raise UserError("no level has two distinct values: there is nothing to bin.")
    rows: dict[int, list[dict[str, float]]] = {k: [] for k in candidates}
    for g in rng.permutation(len(groups))[:max_groups]:
        x = rng.permutation(groups[g])[:max_rows]
        if np.ptp(x) == 0:
            continue
        _, table = suggest_bins(x, candidates, rng)
        for k in candidates:
            bound = theorem1_terms(x, k, epsilon, rng, n_boot=50)
            rows[k].append({**table[k], "estimation": bound["estimation"], "p": bound["width"]})
    return {
        k: {name: float(np.mean([row[name] for row in found])) for name in found[0]}
        for k, found in rows.items()
    }
