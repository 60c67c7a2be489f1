"""Parts of the report that show more than returns: films, neighbours, data and method.

Each yields HTML and names in `made.problems` what it has to leave out.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gsf.core.errors import UserError
from gsf.core.files import digest
from gsf.core.logs import progress, read_metrics
from gsf.reporting import page, plots, plots_data, stats
from gsf.reporting.artifacts import Artifacts
from gsf.reporting.films import Film, film
from gsf.reporting.returns import gather, in_order
from gsf.reporting.sources import Sources, Stage, seconds_per_step
from gsf.suites import known_facts

FILM_BYTES = 3_500_000  # of all films; base64 adds a third
TILE_BYTES = 6_500_000  # of all pictures in the explorer
N_QUERIES, K = 84, 5  # observations to click on, and neighbours shown of each
EPSILON = 0.2  # Theorem 1's, as a share of a level's range of values
DEFAULT_SETTINGS = {"K": "7", "tau": "0.5", "loss": "cce", "head": "mlp"}
_BROKEN = (UserError, ImportError, KeyError, TypeError, ValueError, RuntimeError, OSError)

Runs = Mapping[str, Mapping[str, Stage]]  # game -> method -> run


def best_known(sources: Sources) -> Runs:
    """Of every game and method the run with the lowest seed that has a checkpoint."""
    found: dict[str, dict[str, Stage]] = {}
    runs = [run for run in sources.of("run") if (run.path / "checkpoint.pt").is_file()]
    complete = [run for run in runs if {"game", "method", "seed"} <= set(run.manifest)]
    for run in sorted(complete, key=lambda run: (str(run.manifest["seed"]), run.path)):
        of_game = found.setdefault(str(run.manifest["game"]), {})
        of_game.setdefault(str(run.manifest["method"]), run)
    return {game: {m: found[game][m] for m in in_order(found[game])} for game in sorted(found)}


def films(
    runs: Runs,
    sources: Sources,
    rows: pd.DataFrame,
    mode: Literal["greedy", "sampled"],
    max_steps: int,
    made: Artifacts,
) -> Iterator[str]:
    """The same few unseen levels for every method of a game."""
    tested = rows[rows["split"] == "unseen"]
    levels = {
        g: sorted(set(tested.loc[tested["game"] == g, "level"])) for g in runs if known_facts(g)
    }
    levels = {game: found for game, found in levels.items() if found}
    if runs.keys() - levels.keys():
        without = ", ".join(sorted(runs.keys() - levels.keys()))
        made.problems.append(f"No films of {without}: no suite has it, or no unseen levels played.")
    n_agents = sum(len(runs[game]) + 1 for game in levels)
    if not n_agents:
        return
    n_levels = max(1, min(3, 60 // n_agents))
    limit = FILM_BYTES // (n_agents * n_levels)
    shown: list[Film] = []
    with progress("films", n_agents, "agents") as advance:
        for game, found in levels.items():
            chosen = [int(level) for level in found[:n_levels]]
            for run in (None, *runs[game].values()):
                dataset = sources.dataset_of(run or next(iter(runs[game].values())))
                options: dict[str, Any] = {"max_steps": max_steps, "limit": limit}
                try:
                    shown += film(game, run, dataset, chosen, mode, **options)
                except _BROKEN as error:
                    who = run.path if run else f"random play of {game}"
                    made.problems.append(f"{who}: no film ({_said(error)}).")
                advance(len({(f.game, f.method) for f in shown}))
    if not shown:
        return
    yield page.paragraph(
        f"The run with the lowest seed of every method on the same unseen levels, {mode} actions; "
        f"frames evenly over the episode, or over its first {max_steps} steps.",
        "note",
    )
    for game in dict.fromkeys(f.game for f in shown):
        parts = []
        for level in dict.fromkeys(f.level for f in shown if f.game == game):
            parts.append(f"<h3>{page.text(game)}, unseen level {level}</h3>")
            parts += [_film(f) for f in shown if (f.game, f.level) == (game, level)]
        yield page.details(game, *parts, is_open=game == shown[0].game)


def _film(film: Film) -> str:
    name = f"{film.method} on {film.game} level {film.level}, {film.result}"
    source = page.data_uri("image/webp", film.strip)
    dot = f'<i style="background:{plots.colour(film.method)}"></i>'
    return (
        f'<div class="film" data-frames="{film.n_frames}">'
        f'<button type="button" class="player" aria-pressed="false" aria-label="play: '
        f'{page.text(name)}"></button><p>{dot}<b>{page.text(film.method)}</b> '
        f'<span class="note">{page.text(film.result)}</span></p>'
        f'<div class="scroll"><img alt="{page.text(name)}" src="{source}"></div></div>'
    )


def _said(error: BaseException) -> str:
    if isinstance(error, UserError | ImportError):
        return str(error).rstrip(".")
    return f"{type(error).__name__}: {error}"


def explorer(
    runs: Runs, sources: Sources, n_sample: int, made: Artifacts
) -> tuple[list[str], list[dict[str, Any]]]:
    """HTML, and for every game what the page's script shows."""
    from gsf.reporting.explorer import explore

    data: list[dict[str, Any]] = []
    agreement: list[dict[str, Any]] = []
    limit = TILE_BYTES // max(len(runs), 1)
    done = 0
    with progress("neighbours", sum(map(len, runs.values())), "agents") as advance:

        def count() -> None:
            nonlocal done
            done += 1
            advance(done)

        for game, by_method in runs.items():
            options = {"n_sample": n_sample, "n_queries": N_QUERIES, "k": K, "limit": limit}
            try:
                found = explore(game, list(by_method.values()), sources, **options, advance=count)
            except _BROKEN as error:
                made.problems.append(f"No neighbours for {game}: {_said(error)}.")
                continue
            data.append(found.data)
            agreement += found.agreement
            made.problems += found.problems
    if not data:
        return [], []
    intro = (
        "Choose an observation: these are its nearest neighbours from other levels under every "
        "method's embedding z, and under the raw pixels. The frame marks neighbours in the same "
        "value quantile of their own level (1: the lowest values). R is the return of the episode."
    )
    table = made.table(
        "agreement",
        "How often neighbours agree in value quantile",
        lambda: _agreement(agreement),
        f"Share of the {K} nearest neighbours from other levels that lie in the same value "
        f"quantile, over {agreement[0]['n']:,} training observations per game, of the run with the "
        "lowest seed; brackets: 95 % intervals over levels. chance: any observation of another "
        "level; pixels: no learning, the images themselves.",
        index="method",
        columns="game",
    )
    return [page.paragraph(intro), '<div id="explorer-app"></div>', table], data


def _agreement(found: list[dict[str, Any]]) -> pd.DataFrame:
    """With the chance of agreeing as one more method, and the mean over games as one more game."""
    frame = pd.DataFrame(found)
    chance = frame.drop_duplicates("game").assign(method="chance", low=np.nan, high=np.nan)
    frame = pd.concat([frame, chance.assign(value=chance["chance"])]).drop(columns="chance")
    if frame["game"].nunique() > 1:
        mean = frame.groupby("method", as_index=False)["value"].mean()
        frame = pd.concat([frame, mean.assign(game="mean")])
    return frame


def method(sources: Sources, made: Artifacts, baseline: str) -> Iterator[str]:
    """Labels, Theorems 1 and 2, entropy of behaviour policies, cost of a step, similar pairs."""
    labels: dict[str, Mapping[str, Any]] = {}
    for stage in sources.of("labels"):
        if stage.manifest.get("histogram"):
            name = f"{sources.game_of(stage)} {stage.manifest.get('cumulant')}"
            labels.setdefault(name, stage.manifest)
    if labels:
        yield made.figure(
            "labels",
            "Labels: the quantile bins that GSF learns to tell apart",
            "Share of training transitions in each bin.",
            lambda: plots_data.label_histogram(
                {name: x["histogram"] for name, x in labels.items()},
                {name: x["share_ignored"] for name, x in labels.items()},
            ),
        )
    yield from _theorems(sources, made)
    trained = _policies(sources)
    if trained:
        yield made.figure(
            "behaviour",
            "How the behaviour policy learnt",
            "PPO's return on training levels against minutes of training.",
            lambda: plots_data.learning({game: {"": rows} for game, rows in trained.items()}),
        )
        yield made.figure(
            "entropy",
            "Entropy of the behaviour policy",
            "Over PPO's training; where it stays high, many actions are as good.",
            lambda: plots_data.entropy(trained),
        )
    seconds = _costs(sources)
    if baseline in seconds:
        yield made.figure(
            "cost",
            "Cost of a gradient step",
            "Time per step of training, from the runs' own logs; whiskers: least and most.",
            lambda: plots_data.cost(seconds, baseline),
            inches=5,
        )
    for stage in sources.of("similar"):
        game = str(stage.manifest.get("game"))
        yield made.copy(
            stage.path / "similar",
            f"similar_{digest(str(stage.manifest.get('digest')))}",  # it becomes a file's name
            f"Alike in state and value, unlike in action: {game}",
            "Two segments of different levels found by gsf similar: the paper's motivating figure.",
        )


def _policies(sources: Sources) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for stage in sources.of("policy"):
        metrics = read_metrics(stage.path / "metrics.jsonl")
        if any("ppo/entropy" in row for row in metrics):
            found.setdefault(str(stage.manifest.get("game")), metrics)
    return dict(sorted(found.items()))


def _costs(sources: Sources) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for run in sources.of("run"):
        cost = seconds_per_step(run)
        if cost is not None and "method" in run.manifest:
            found.setdefault(str(run.manifest["method"]), []).append(cost)
    return found


def _theorems(sources: Sources, made: Artifacts) -> Iterator[str]:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        made.problems.append(f"No figures of Theorems 1 and 2: {error}.")
        return
    labels = [s for s in sources.of("labels") if s.manifest.get("cumulant") == "reward"]
    labels = sorted(labels, key=lambda s: (sources.game_of(s), s.path))
    if labels and (dataset := sources.dataset_of(labels[0])) is not None:
        yield made.figure(
            "theorem1",
            f"Choice of K: Theorem 1 on {sources.game_of(labels[0])}",
            "Left, the printed bound: one term does not depend on K, the other falls with it. "
            "Right, the criterion used to suggest K: bin width plus the chance that a label flips.",
            lambda: _theorem1(labels[0], dataset),
        )
    if labels:
        yield made.figure(
            "visits",
            "Theorem 2: visits per label",
            "Random walks on a chain of 10 states, its states binned by the L1 norm of "
            "their successor features; and both forms of the bound at the mean visits.",
            _theorem2,
        )


def _theorem1(labels: Stage, dataset: Stage) -> Figure:
    from gsf.gvf.bins import CANDIDATE_BINS, choose_bins

    try:
        values = np.load(labels.path / "values.npy", mmap_mode="r", allow_pickle=False)
        level = np.load(dataset.path / "level.npy", mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UserError(f"{labels.path} or its dataset is damaged ({error}).") from None
    rng = np.random.default_rng(0)
    terms = choose_bins(values, level, CANDIDATE_BINS, EPSILON, rng, max_groups=10)
    printed = {k: {"estimation": x["estimation"], "p(n, K, eps)": x["p"]} for k, x in terms.items()}
    criterion = {k: {"width": x["width"], "flip": x["flip"]} for k, x in terms.items()}
    suggested = min(criterion, key=lambda k: sum(criterion[k].values()))
    return plots_data.theorem1(printed, criterion, suggested, EPSILON)


def _theorem2() -> Figure:
    from gsf.equations import theorem2_bound
    from gsf.studies.theorems import visits_per_label

    gamma = 0.9
    walks = [
        visits_per_label(10, 20_000, gamma, 5, np.random.default_rng(seed))["mean_visits"]
        for seed in range(10)
    ]
    visits = np.nan_to_num(walks).mean(0)
    forms: tuple[Literal["printed", "proof"], ...] = ("printed", "proof")
    bounds: dict[str, Any] = {form: theorem2_bound(visits, gamma, form)[0] for form in forms}
    figure = plots_data.visits(np.nan_to_num(walks), bounds, "random walks on a chain")
    figure.axes[0].set_yscale("log")
    return figure


def ablations(directory: Path, made: Artifacts) -> str:
    """Options of one method against each other, on validation levels only."""

    def draw() -> Figure:
        found = {}
        for option in sorted(x for x in directory.iterdir() if x.is_dir()):
            settings = sorted((x for x in option.iterdir() if x.is_dir()), key=_setting)
            variants = {}
            for setting in settings:
                rows, problems = gather([setting])
                made.problems.extend(problems)
                if "validation" in set(rows["split"]):
                    variants[setting.name] = rows
                else:
                    made.problems.append(f"{setting} has no validation rows: not in the figure.")
            if variants:
                found[option.name] = stats.ablation(variants)
        if not found:
            raise UserError(f"{directory} has no <option>/<setting>/ with validation rows.")
        return plots.ablation(found, DEFAULT_SETTINGS)

    caption = "One option changed at a time; the default is filled. Validation levels."
    return made.figure("ablations", "Ablations", caption, draw)


def _setting(path: Path) -> tuple[float, str]:
    """Numbers in their order, names after them."""
    try:
        return float(path.name), path.name
    except ValueError:
        return math.inf, path.name
