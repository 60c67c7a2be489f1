"""Stage: what an embedding knows of value quantiles, on levels of its data and on held-out ones.

The premise of GSF, measured: does z tell the per-level quantile of the logged return where it was
not trained? Of every run: agreement of neighbours from other levels, accuracy of a linear probe
fitted on seen levels, and, of GSF, accuracy of its own head. Out: probe.csv, probe.png, probe.svg.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gsf.core.drawing import panels, save, styled
from gsf.core.errors import UserError
from gsf.core.logs import console, progress
from gsf.core.results import Results, Stage, read_stage
from gsf.core.sealed import load_checkpoint, write_table
from gsf.evaluation.intervals import mean_over_levels
from gsf.learn.agent import load_agent
from gsf.learn.legend import colour, in_order
from gsf.nets.heads import WIDTH, Projection
from gsf.nets.probe import fit_probe
from gsf.studies.embeddings import PIXELS, Sample, agree, draw_sample, flat_pixels, similarity
from gsf.studies.options import ProbeConfig as ProbeConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEEN, HELD_OUT = "seen", "held out"
Array = NDArray[Any]


def probe(config: ProbeConfig) -> Path:
    if config.looks is not None:
        from gsf.studies.twins import probe_looks

        return probe_looks(config)
    held_out = {str(stage.manifest["name"]): stage for stage in map(_dataset, config.held_out)}
    results = Results(config.runs)
    runs = [run for run in results.of_kind("run") if run.manifest["game"] in held_out]
    if not runs:
        raise UserError("none of the runs is of a game with a --held-out dataset.")
    data = {run.path: _trained_on(run, results, held_out) for run in runs}
    rows: list[dict[str, Any]] = []
    samples: dict[Path, tuple[Sample, Sample, Sample]] = {}
    with progress("probe", len(runs), "runs") as advance:
        for done, run in enumerate(runs, 1):
            game, trained = str(run.manifest["game"]), data[run.path]
            if trained.path not in samples:
                samples[trained.path] = _samples(trained, held_out[game], config.sample)
                rows += _pixels(game, samples[trained.path], config.k)
            try:
                rows += list(_probe(run, samples[trained.path], config.k))
            except UserError as error:  # a run that is not done yet
                console.print(f"[yellow]left out:[/] {run.path}: {error}", soft_wrap=True)
            advance(done)
    frame = pd.DataFrame(rows)
    if set(frame["method"]) == {PIXELS}:
        raise UserError("none of the runs can be probed; the reasons are above.")
    write_table(config.out / "probe.csv", frame, float_format="%.4f")
    save(draw(frame), config.out / "probe")
    _print(frame)
    return config.out


def _dataset(path: Path) -> Stage:
    stage = read_stage(path)
    if stage.kind != "dataset":
        raise UserError(f"--held-out {path} is no dataset; `gsf materialise` makes one.")
    return stage


def _trained_on(run: Stage, results: Results, held_out: Mapping[str, Stage]) -> Stage:
    """The run's dataset; refused if levels of it are held out."""
    trained = results.dataset_of(run)
    if trained is None:
        raise UserError(f"{run.path} was trained on {run.config['dataset']}, which is not there.")
    other = held_out[str(run.manifest["game"])]
    if set(trained.manifest["levels"]) & set(other.manifest["levels"]):
        raise UserError(f"{other.path} has levels of {trained.path}: they are not held out.")
    return trained


def _samples(trained: Stage, held_out: Stage, n: int) -> tuple[Sample, Sample, Sample]:
    """Seen levels to fit a probe on, seen levels to test it on, held-out levels."""
    both = draw_sample(trained, None, 2 * n)
    order = np.random.default_rng(1).permutation(len(both.level))
    fitted, tested = (_rows(both, half) for half in np.array_split(order, 2))
    return fitted, tested, draw_sample(held_out, None, n)


def _rows(sample: Sample, rows: Array) -> Sample:
    names = ("obs", "level", "label", "returns")
    return replace(sample, **{name: getattr(sample, name)[rows] for name in names})


def _pixels(game: str, samples: tuple[Sample, Sample, Sample], k: int) -> Iterator[dict[str, Any]]:
    """The reference that learns nothing: neighbours by the images themselves."""
    for levels, sample in ((SEEN, samples[1]), (HELD_OUT, samples[2])):
        found = agree(similarity(flat_pixels(sample.obs), sample.level), sample, k)
        who = {"game": game, "method": PIXELS, "seed": 0}
        yield {**who, "levels": levels, "measure": "agreement", **found, "chance": sample.chance}


def _probe(run: Stage, samples: tuple[Sample, Sample, Sample], k: int) -> Iterator[dict[str, Any]]:
    agent = load_agent(run.path)
    fitted, seen, held_out = samples
    classify = fit_probe(agent.embed(fitted.obs), fitted.label, fitted.n_bins)
    head = _head(run, fitted.n_bins)
    who = {name: run.manifest[name] for name in ("game", "method", "seed")}
    for levels, sample in ((SEEN, seen), (HELD_OUT, held_out)):
        z = agent.embed(sample.obs)
        found = {"agreement": agree(similarity(z, sample.level), sample, k)}
        for measure, guess in (("probe", classify), ("head", head)):
            if guess is not None:
                right = guess(torch.from_numpy(z)).numpy() == sample.label
                found[measure] = mean_over_levels(right, sample.level)
        most = float(np.bincount(sample.label).max() / len(sample.label))
        for measure, numbers in found.items():
            chance = sample.chance if measure == "agreement" else most
            yield {**who, "levels": levels, "measure": measure, **numbers, "chance": chance}


def _head(run: Stage, n_bins: int) -> Any:
    """GSF's own classifier of reward labels, z -> label; None if the run has none."""
    weights = load_checkpoint(run.path / "checkpoint.pt").get("loss.gsf", {})
    if run.config.get("method") != "gsf-reward" or len(weights.get("w.weight", ())) != n_bins:
        return None
    z_dim = weights["h.0.weight"].shape[1]
    h, w = Projection(z_dim, WIDTH), nn.Linear(WIDTH, n_bins, bias=False)
    h.load_state_dict({k[2:]: x for k, x in weights.items() if k.startswith("h.")})
    w.load_state_dict({"weight": weights["w.weight"]})

    @torch.no_grad()
    def guess(z: Tensor) -> Tensor:
        labels: Tensor = w(h(z)).argmax(1)
        return labels

    return guess


def _print(frame: pd.DataFrame) -> None:
    means = frame.groupby(["game", "measure", "levels", "method"])["value"].mean().unstack("method")
    print(means[in_order(means.columns)].round(3).to_string())


@styled
def draw(frame: pd.DataFrame) -> "Figure":
    """A panel per game and measure, filled dots on seen levels, open on held-out ones."""
    groups = list(frame.groupby(["game", "measure"], sort=True))
    methods = in_order(frame["method"])[::-1]
    note = "mean over runs, lines: range over them; filled: seen levels, open: held out; chance: "
    note += "dotted on seen levels, dashed on held-out ones"
    height = 0.4 + 0.2 * len(methods)
    titles = [f"{game}: {measure}" for (game, measure), _ in groups]
    figure, axes, left, _ = panels(titles, height, columns=3, note=note, sharey=True)
    for ax, (_, group) in zip(axes, groups, strict=True):
        for (name, levels), runs in group.groupby(["method", "levels"]):
            method = str(name)
            y = methods.index(method) + (0.15 if levels == SEEN else -0.15)
            face = colour(method) if levels == SEEN else "white"
            ax.plot([runs["value"].min(), runs["value"].max()], [y, y], color=colour(method))
            ax.plot(runs["value"].mean(), y, "o", color=colour(method), markerfacecolor=face)
        for levels, chance in group.groupby("levels")["chance"].mean().items():
            ax.axvline(
                chance, color="black", linestyle=":" if levels == SEEN else "--", linewidth=1
            )
        ax.grid(axis="y", visible=False)
    for ax in left:
        ax.set_yticks(range(len(methods)), methods)
    return figure
