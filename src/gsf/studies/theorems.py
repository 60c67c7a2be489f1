"""The paper's theorems, drawn: how many bins (Theorem 1), visits per label (Theorem 2)."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from gsf.core.drawing import BLUE, ORANGE, in_a_row, styled
from gsf.data.dataset import Dataset
from gsf.equations import quantile_labels, theorem2_bound
from gsf.gvf.bins import CANDIDATE_BINS, choose_bins
from gsf.gvf.training_labels import load_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EPSILON = 0.2  # Theorem 1's, as a share of a level's range of values
GAMMA = 0.9  # of the random walks
Array = NDArray[Any]
Terms = Mapping[int, Mapping[str, float]]  # `gvf.bins.choose_bins`


def bins_of(labels: Path, dataset: Path) -> Terms:
    data = Dataset.open(dataset)
    values = load_labels(labels, data).values.numpy()
    rng = np.random.default_rng(0)
    return choose_bins(values, data.level, CANDIDATE_BINS, EPSILON, rng, max_groups=10)


@styled
def draw_bins(terms: Terms) -> "Figure":
    """Theorem 1's terms against K (left), and the criterion that does choose K (right)."""
    note = "training data; Theorem 1 as printed cannot choose K"
    figure, (left, right) = in_a_row(2, 2.8, note)
    _draw_terms(left, terms, {"estimation": "estimation", "p": "p(n, K, eps)"}, "bound")
    left.set_title(f"Theorem 1's terms at epsilon = {EPSILON:g}")
    left.set_ylabel("probability (bound)")
    _draw_terms(right, terms, {"width": "width", "flip": "flip"}, "sum")
    right.set_title("bin width + label flips")
    best = min(terms, key=lambda k: terms[k]["width"] + terms[k]["flip"])
    right.axvline(best, color=ORANGE, linestyle="--", linewidth=1.2)
    at: Any = {"xy": (best, 1), "xycoords": ("data", "axes fraction"), "fontsize": 7.5}
    away: Any = {"xytext": (4, -8), "textcoords": "offset points", "color": ORANGE}
    right.annotate(f"suggested K = {best}", **at, **away)
    return figure


def _draw_terms(ax: "Axes", terms: Terms, names: Mapping[str, str], total: str) -> None:
    bins = sorted(terms)
    for (name, shown), style in zip(names.items(), ("-o", ":s"), strict=True):
        hue = BLUE if style == "-o" else "#36aae8"
        ax.plot(bins, [terms[k][name] for k in bins], style, color=hue, label=shown)
    sums = [sum(terms[k][name] for name in names) for k in bins]
    ax.plot(bins, sums, color="black", linewidth=2, label=total)
    ax.set_ylim(-0.03 * max(sums), max(sums) * 1.12)
    ax.set_xticks(bins)
    ax.set_xlabel("number of bins K")
    ax.legend(fontsize=7.5, loc="center right")


def visits_per_label(
    n_states: int, n_steps: int, gamma: float, n_bins: int, rng: np.random.Generator
) -> dict[str, Array]:
    """Theorem 2 on a chain: visits and label of each state, and mean visits per label.

    A walk that steps right with probability 1/4, left with 3/4, starts at the left end; G(o) is
    the successor representation of the counts, P~(o,o') = n(o,o') / (n(o) + 1), ranked by its L1
    norm. "visits" [S], "norm" [S], "label" [S], "mean_visits" [K] (NaN for an empty bin).
    """
    steps = np.where(rng.random(n_steps) < 0.25, 1, -1)
    counts = np.zeros((n_states, n_states))
    state = 0
    for step in steps:
        following = min(max(state + step, 0), n_states - 1)
        counts[state, following] += 1
        state = following
    visits = counts.sum(1)
    transition = counts / (visits + 1)[:, None]
    norm = np.linalg.inv(np.eye(n_states) - gamma * transition).sum(1)
    found = quantile_labels(norm, np.zeros(n_states, np.int64), n_bins)
    sizes = np.bincount(found[found >= 0], minlength=n_bins)
    sums = np.bincount(found[found >= 0], visits[found >= 0], minlength=n_bins)
    mean_visits = np.where(sizes > 0, sums / np.maximum(sizes, 1), np.nan)
    return {"visits": visits, "norm": norm, "label": found, "mean_visits": mean_visits}


@styled
def draw_visits(n_walks: int = 10, n_steps: int = 20_000) -> "Figure":
    """Visits of the states in each label bin, and both forms of the bound on G at their mean."""
    rngs = map(np.random.default_rng, range(n_walks))
    walks = [visits_per_label(10, n_steps, GAMMA, 5, rng)["mean_visits"] for rng in rngs]
    visits = np.nan_to_num(walks)
    middle, ends = visits.mean(0), np.quantile(visits, [0.1, 0.9], axis=0)
    note = f"random walks on a chain; whiskers: 10-90 % of {n_walks} walks"
    figure, (ax, bound) = in_a_row(2, 2.8, note)
    bins = np.arange(len(middle))
    whiskers = np.maximum([middle - ends[0], ends[1] - middle], 0)
    ax.bar(bins, middle, 0.75, color=BLUE, yerr=whiskers)
    ax.set_ylabel("visits per observation")
    ax.set_yscale("log")
    forms: tuple[Literal["printed", "proof"], ...] = ("printed", "proof")
    for form, style, hue in zip(forms, ("--o", "-o"), (ORANGE, BLUE), strict=True):
        bound.plot(bins, theorem2_bound(middle, GAMMA, form)[0], style, color=hue, label=form)
    bound.set_ylabel("lower bound on ||G(o)||")
    bound.legend(fontsize=7.5)
    for panel in (ax, bound):
        panel.set_xlabel("label (quantile bin)")
        panel.set_xticks(bins)
        panel.grid(axis="x", visible=False)
    return figure
