"""The paper's motivating figure, found in the data: alike in state and value, unlike in action.

In: a recording and the policy that made it (any policy of the game will do). All 5-step segments of
its first slots are compared across levels; the pair with the best `score` is drawn with its three
distances. Out: similar.png, similar.svg and similar.json. Needs Procgen and torch.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gsf.behaviour.policy import load_policy, policy_of
from gsf.core.drawing import BLUE, ORANGE, new_figure, save, styled
from gsf.core.errors import UserError
from gsf.core.files import atomic_directory, digest, digest_file
from gsf.core.logs import console
from gsf.core.sealed import write_json
from gsf.core.stage import Identity
from gsf.data.recording import Recording
from gsf.equations import cosine_distance, normalised_squared_error, total_variation
from gsf.studies.options import SimilarConfig as SimilarConfig
from gsf.studies.replays import FitValues, Looked, Plays, look, replay
from gsf.suites import facts_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[Any]


@dataclass(frozen=True)
class Pair:
    """Two segments of play, by their first rows, and how far they are apart at each step."""

    rows: tuple[int, int]
    value_error: float
    variation: NDArray[np.float64]  # [length]
    cosine: NDArray[np.float64]  # [length], similarity of latent states

    @property
    def score(self) -> float:
        """High for unlike actions at alike values and states; each of the three is about 0 to 1."""
        return float(self.variation.mean() - self.value_error - (1 - self.cosine.mean()))


def similar(config: SimilarConfig) -> Path:
    recording = Recording.load(config.recording)
    chosen = config.policy or policy_of(config.recording)
    if chosen is None:
        raise UserError(
            f"the policy that played {config.recording} is not at hand; name one with --policy."
        )
    policy = load_policy(chosen)
    if policy.provenance.get("game", recording.game) != recording.game:
        raise UserError(
            f"{config.policy} plays {policy.provenance['game']}, the recording is of "
            f"{recording.game}; give a policy of that game."
        )
    inputs = {"recording": recording.digest, "policy": policy.provenance["digest"]}
    values = FitValues(config.gvf, config.dataset, recording) if config.gvf else None
    if values is not None:
        inputs["gvf"] = values.digest
    identity = Identity.of("similar", config, inputs)
    if identity.is_done(config.out):
        console.print(f"{config.out} is there already.", soft_wrap=True)
        return config.out
    searched = recording.cut(min(config.transitions, len(recording)))
    plays = replay(searched, policy, values, config.gamma)
    starts = segments(plays, config)
    pairs = far_in_action(plays, starts, config)
    wanted = {row + t for pair in pairs for row in pair.rows for t in range(config.length)}
    states, frames = look(searched, plays, wanted)
    found = [_with_states(pair, states, config.length) for pair in pairs]
    best = max(found, key=lambda pair: pair.score)
    _write(config, recording, plays, best, frames, identity, len(starts), len(found))
    return config.out


def segments(plays: Plays, config: SimilarConfig) -> NDArray[np.int64]:
    """First rows of segments: each inside an episode, its values known and not almost 0."""
    n = len(plays.value) - config.length + 1
    if n < 1:
        played = len(plays.value)
        raise UserError(f"--length {config.length} is more than the {played} steps played.")
    start = np.arange(n)
    last = start + config.length - 1
    usable = (plays.episode[start] == plays.episode[last]) & (plays.slot[start] == plays.slot[last])
    if config.levels:
        usable &= np.isin(plays.level[start], config.levels)
    window = np.lib.stride_tricks.sliding_window_view(np.abs(plays.value), config.length)
    size = window.mean(1)  # NaN if any value is
    usable &= np.isfinite(size)
    # Two segments that lead to nothing have equal values too: that is no likeness worth a figure.
    if usable.any():
        usable &= size >= 0.5 * size[usable].mean()
        usable &= size > 0
    start = start[usable]
    if len(np.unique(plays.level[start])) < 2:
        raise UserError(
            "fewer than two levels have segments with known values; search more --transitions."
        )
    rng = np.random.default_rng(config.seed)
    if len(start) > config.segments:
        start = np.sort(rng.choice(start, config.segments, replace=False))
    return start


def far_in_action(plays: Plays, starts: NDArray[np.int64], config: SimilarConfig) -> list[Pair]:
    """Pairs of different levels with close values, those with the farthest actions first."""
    steps = starts[:, None] + np.arange(config.length)
    value, probs = plays.value[steps].astype(np.float64), plays.probs[steps]
    level = plays.level[starts]
    found: list[tuple[float, int, int]] = []
    for i in range(len(starts) - 1):
        others = i + 1 + np.flatnonzero(level[i + 1 :] != level[i])
        same = np.broadcast_to(value[i], (len(others), config.length))
        others = others[normalised_squared_error(same, value[others]) <= config.max_value_error]
        if not len(others):
            continue
        far = total_variation(np.broadcast_to(probs[i], probs[others].shape), probs[others])
        far = far.mean(1)
        for j in np.argsort(-far, kind="stable")[:3]:  # few, so that none fills the list
            found.append((-float(far[j]), i, int(others[j])))
    if not found:
        raise UserError(
            "no two segments of different levels have close values; search more --transitions or "
            "raise --max-value-error."
        )
    pairs = []
    for _, i, j in sorted(found)[: config.candidates]:
        error = float(normalised_squared_error(value[i], value[j]))
        variation = np.asarray(total_variation(probs[i], probs[j]), np.float64)
        unknown = np.full(config.length, np.nan)
        pairs.append(Pair((int(starts[i]), int(starts[j])), error, variation, unknown))
    return pairs


def _with_states(pair: Pair, states: Looked, length: int) -> Pair:
    cosine = [
        state_cosine(states[pair.rows[0] + t], states[pair.rows[1] + t]) for t in range(length)
    ]
    return Pair(pair.rows, pair.value_error, pair.variation, np.array(cosine))


def state_cosine(one: bytes, two: bytes) -> float:
    """Cosine similarity of two latent states as byte vectors, the shorter one padded with 0."""
    size = max(len(one), len(two))
    padded = np.zeros((2, size))
    for row, state in zip(padded, (one, two), strict=True):
        row[: len(state)] = np.frombuffer(state, np.uint8)
    return -float(cosine_distance(padded[0], padded[1]))


def _write(
    config: SimilarConfig,
    recording: Recording,
    plays: Plays,
    best: Pair,
    frames: Looked,
    identity: Identity,
    n_segments: int,
    n_compared: int,
) -> None:
    facts = describe(plays, best, config.length) | {
        "game": recording.game,
        "values": "gvf" if config.gvf else f"logged return, gamma {config.gamma:g}",
        "n_segments": n_segments,
        "n_states_compared": n_compared,
    }
    rows = [[frames[row + t] for t in range(config.length)] for row in best.rows]
    with atomic_directory(config.out) as out:
        save(draw(facts, rows), out / "similar")
        write_json(out / "similar.json", facts)
        files = {path.name: digest_file(path) for path in sorted(out.iterdir())}
        identity.write(out, digest(json.dumps(files)), game=recording.game, files=files)
    print(
        f"{config.out}: {recording.game} levels {facts['segments'][0]['level']} and "
        f"{facts['segments'][1]['level']}: state similarity {facts['state_cosine']:.3f}, value "
        f"error {facts['value_error']:.4f}, total variation {facts['total_variation']:.3f}"
    )


def describe(plays: Plays, pair: Pair, length: int) -> dict[str, Any]:
    """Everything the figure shows, as JSON."""
    described = []
    for row in pair.rows:
        rows = np.arange(row, row + length)
        described.append(
            {
                "level": int(plays.level[row]),
                "take": int(plays.take[row]),
                "slot": int(plays.slot[row]),
                "step": int(plays.step[row]),
                "value": [round(float(x), 6) for x in plays.value[rows]],
                "action": plays.action[rows].astype(int).tolist(),
                "probs": [[round(float(p), 6) for p in x] for x in plays.probs[rows]],
            }
        )
    return {
        "segments": described,
        "state_cosine": round(float(pair.cosine.mean()), 6),
        "value_error": round(pair.value_error, 6),
        "total_variation": round(float(pair.variation.mean()), 6),
        "total_variation_by_step": [round(float(x), 6) for x in pair.variation],
        "score": round(pair.score, 6),
    }


@styled
def draw(facts: Mapping[str, Any], frames: Sequence[Sequence[NDArray[np.uint8]]]) -> "Figure":
    """`facts` as `describe` has them; frames of both segments, uint8 [H,W,3] each."""
    length = len(frames[0])
    names = ["nothing" if name == "-" else name for name in facts_of(facts["game"]).actions]
    note = (
        f"{facts['game']}; mean over steps: cosine similarity of latent states "
        f"{facts['state_cosine']:.3f}, normalised squared error of values "
        f"{facts['value_error']:.4f}, total variation between action distributions "
        f"{facts['total_variation']:.3f}; values: {facts['values']}"
    )
    figure = new_figure(5.6, note)
    heights = {"height_ratios": [1, 0.62, 1]}
    axes = figure.subplots(3, length, squeeze=False, gridspec_kw=heights)
    for row, segment, images in zip((0, 2), facts["segments"], frames, strict=True):
        for t, ax in enumerate(axes[row]):
            ax.imshow(images[t], interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            ax.grid(visible=False)
            ax.set_title(f"value {segment['value'][t]:.2f}", loc="center", fontsize=7.5)
            likely = int(np.argmax(segment["probs"][t]))
            ax.set_xlabel(f"{names[likely]} {segment['probs'][t][likely]:.2f}", fontsize=7)
        axes[row][0].set_ylabel(f"level {segment['level']}", fontsize=8.5)
    probs = np.array([segment["probs"] for segment in facts["segments"]])  # [2, length, A]
    chosen = np.flatnonzero(probs.max((0, 1)) > 0)  # actions that the policy takes at all
    for t, ax in enumerate(axes[1]):
        above, below = probs[:, t, chosen]
        bars = _actions(ax, above, below, [names[i] for i in chosen])
        variation = facts["total_variation_by_step"][t]
        ax.set_title(f"total variation {variation:.2f}", loc="center", fontsize=7)
    axes[1][0].set_ylabel("probability", fontsize=8.5)
    where = ("up", "down")
    levels = [f"level {s['level']} ({w})" for s, w in zip(facts["segments"], where, strict=True)]
    words = ["what the policy would do in " + level for level in levels]
    figure.legend(bars, words, loc="outside upper center", ncols=2, fontsize=7.5)
    return figure


def _actions(ax: Any, above: Array, below: Array, names: Sequence[str]) -> list[Any]:
    """Both action distributions, the upper segment's upwards, the lower one's downwards."""
    at = np.arange(len(above))
    up = ax.bar(at, above, 0.8, color=BLUE)
    down = ax.bar(at, -below, 0.8, color=ORANGE)
    ax.axhline(0, color="black", linewidth=0.6)
    ax.set(yticks=[], ylim=(-1, 1))
    ax.set_xticks(at, names, rotation=90, fontsize=4.5 if len(names) > 9 else 6)
    ax.tick_params(axis="x", length=0, pad=1)
    ax.grid(visible=False)
    return [up, down]
