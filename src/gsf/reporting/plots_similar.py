"""The figure of `gsf similar`: two rows of frames, alike in state and value, unlike in action."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gsf.reporting.plots import new_figure, styled
from gsf.suites import facts_of

_BLUE, _ORANGE = "#3e2c8b", "#d55e00"


@styled
def similar_segments(
    facts: Mapping[str, Any], frames: Sequence[Sequence[NDArray[np.uint8]]]
) -> Figure:
    """`facts` as `similar.describe` has them; frames of both segments, uint8 [H,W,3] each."""
    length, names = len(frames[0]), facts_of(facts["game"]).actions
    note = (
        f"{facts['game']}, training levels; mean over steps: cosine similarity of latent states "
        f"{facts['state_cosine']:.3f}, normalised squared error of values "
        f"{facts['value_error']:.4f}, total variation between action distributions "
        f"{facts['total_variation']:.3f}; values: {facts['values']}"
    )
    figure = new_figure(5.4, note=note)
    heights = {"height_ratios": [1, 0.62, 1]}
    axes = figure.subplots(3, length, squeeze=False, gridspec_kw=heights)
    for row, segment, images in zip((0, 2), facts["segments"], frames, strict=True):
        for t, ax in enumerate(axes[row]):
            ax.imshow(images[t], interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            ax.grid(visible=False)
            ax.set_title(f"value {segment['value'][t]:.2f}", loc="center", fontsize=7.5)
            likely = int(np.argmax(segment["probs"][t]))
            name = names[likely]
            ax.set_xlabel(f"{name} {segment['probs'][t][likely]:.2f}", fontsize=7)
        axes[row][0].set_ylabel(f"level {segment['level']}", fontsize=8.5)
    for t, ax in enumerate(axes[1]):
        _actions(ax, *(segment["probs"][t] for segment in facts["segments"]))
        ax.set_title(f"TV {facts['total_variation_by_step'][t]:.2f}", loc="center", fontsize=7.5)
    axes[1][0].set_ylabel("policy", fontsize=8.5)
    return figure


def _actions(ax: Any, above: Sequence[float], below: Sequence[float]) -> None:
    """Both action distributions, the upper segment's upwards, the lower one's downwards."""
    places = np.arange(len(above))
    ax.bar(places, above, 0.8, color=_BLUE)
    ax.bar(places, -np.asarray(below), 0.8, color=_ORANGE)
    ax.axhline(0, color="black", linewidth=0.6)
    ax.set(xticks=[], yticks=[], ylim=(-1, 1))
    ax.grid(visible=False)
