"""A user's own episodes (npz.py, minari.py, gen_dgrl.py) into datasets that train like Procgen's.

Besides images, discrete actions and rewards GSF needs one thing: which context (site, device,
level) an episode belongs to. Contexts become levels; whole contexts can be held out for
validation. An import looks at everything small first, then streams the frames.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from tyro.conf import Positional

from gsf.core.errors import UserError
from gsf.core.files import digest, digest_file
from gsf.core.logs import progress
from gsf.core.options import Incidental, Input, Options, Range, Seed, between
from gsf.core.schema import LEVELS, MOST_ACTIONS, misfit
from gsf.core.stage import Identity
from gsf.data.format import Array, DatasetWriter, dtypes, read_facts
from gsf.suites import MOST_REWARD

_REGION_FRAMES = 4096  # frames hashed together, in whole episodes


@dataclass(frozen=True)
class ImportConfig(Options):
    """Import a Minari dataset, a folder of npz episodes, or what `gsf data export` wrote."""

    source: Input[Positional[str]]
    """A folder of .npz episodes, the directory of a Minari dataset or the id of a local one, or a
    folder that `gsf data export --format parquet` wrote."""

    out: Incidental[Path]
    """Directory of the new dataset; held-out contexts go to OUT-validation."""

    format: Literal["auto", "minari", "npz", "parquet", "gen_dgrl"] = "auto"
    """What the source is; auto looks. gen_dgrl: its public offline Procgen data."""

    context: str = "level"
    """Key of an episode's context: in its metadata or infos (Minari; "seed" for the episode's
    seed), an array in its file or else its sub-folder's name (npz)."""

    image: str | None = None
    """Key of the images where Minari observations are a dictionary."""

    n_actions: Annotated[int, between(1, MOST_ACTIONS)] | None = None
    """Number of actions; by default the action space's (Minari) or the largest seen + 1 (npz)."""

    validation: Annotated[float, Range(0, 1, high_open=True)] = 0.0
    """Share of the contexts to hold out for validation."""

    hold_out: tuple[str, ...] = ()
    """Contexts to hold out for validation, by name."""

    seed: Seed = 0
    """Which contexts a share holds out."""


@dataclass(frozen=True)
class ExportConfig(Options):
    """Export a dataset to Minari or Parquet, losslessly."""

    dataset: Positional[Path]
    """Dataset to export."""

    out: Path
    """Directory of the new one."""

    format: Literal["minari", "parquet"] = "minari"
    """parquet: images as PNG, a card and every level's id, laid out as dataset hubs take it."""

    dataset_id: str | None = None
    """Minari's name for it, [namespace/]name-v0; by default the directory's or the dataset's."""


@dataclass(frozen=True)
class Outline:
    """What is known of an episode before its frames are read."""

    where: str  # names it in messages
    context: Any
    n_steps: int
    n_frames: int  # n_steps, or one more: the observation after the last step
    first_t: int = 0


@dataclass(frozen=True)
class Episode:
    obs: Array  # uint8 [n_frames,H,W,C]
    action: Array  # int [n_steps], as reward
    reward: Array
    terminated: bool  # at its last step
    truncated: bool
    behaviour_prob: Array | None = None  # [n_steps], of all episodes or of none


@dataclass(frozen=True)
class Source:
    """Where episodes come from: outlines of all, then one after the other in the same order."""

    name: str
    root: Path
    files: Sequence[Path]  # under root
    obs_shape: tuple[int, ...]
    n_actions: int
    outlines: Sequence[Outline]
    episodes: Callable[[], Iterator[Episode]]
    levels: Sequence[Any] = ()  # contexts declared in this order, if any were
    played: Mapping[str, Any] = field(default_factory=dict)  # difficulty, actions: the suite's


def import_data(config: ImportConfig) -> Path:
    """Episodes of your own -> a dataset directory OUT, and OUT-validation if contexts are held out.

    import_data(ImportConfig("episodes/", out=Path("dataset")))
    """
    source = _look(config)
    if source.n_actions > MOST_ACTIONS:
        raise UserError(
            f"{config.source} has {source.n_actions:,} actions; gsf takes up to {MOST_ACTIONS:,}, "
            "counted from 0 without gaps."
        )
    _refuse_alike(source)
    identity = Identity.of("dataset", config, {"source": _digest_files(source)})
    present = _sorted({outline.context for outline in source.outlines})
    held_out = _held_out(present, config)
    declared = dict.fromkeys([*source.levels, *present])
    parts = {config.out: [context for context in declared if context not in held_out]}
    if held_out:
        parts[config.out.with_name(f"{config.out.name}-validation")] = _sorted(held_out)
    todo = {path: part for path, part in parts.items() if not identity.is_done(path)}
    if todo:
        _write(source, todo, identity)
    for path in parts:
        facts = read_facts(path)
        state = "" if path in todo else " (already done)"
        print(
            f"{path}: {facts['n']:,} transitions, {facts['episodes']:,} episodes, "
            f"{len(facts['levels'])} levels{state}"
        )
    return config.out


def export_data(config: ExportConfig) -> Path:
    from gsf.data.minari import write_minari
    from gsf.data.parquet import write_parquet

    return (write_minari if config.format == "minari" else write_parquet)(config)


def _look(config: ImportConfig) -> Source:
    from gsf.data.gen_dgrl import is_gen_dgrl, read_gen_dgrl
    from gsf.data.minari import read_minari
    from gsf.data.npz import read_npz
    from gsf.data.parquet import is_parquet, read_parquet

    readers = {"npz": read_npz, "minari": read_minari, "gen_dgrl": read_gen_dgrl}
    readers["parquet"] = read_parquet
    if config.format != "auto":
        return readers[config.format](config)
    path = Path(config.source)
    if is_parquet(path):
        return read_parquet(config)
    if first := next(path.rglob("*.npz"), None):
        return read_gen_dgrl(config) if is_gen_dgrl(first) else read_npz(config)
    if path.exists() and not next(path.rglob("metadata.json"), None):
        raise UserError(f"{path} holds neither .npz files nor a Minari or Parquet dataset.")
    return read_minari(config)


def _held_out(contexts: Sequence[Any], config: ImportConfig) -> set[Any]:
    """By hash, not by place: a context tends to stay on its side when others come or go."""
    named = {context for context in contexts if str(context) in config.hold_out}
    unknown = sorted(set(config.hold_out) - {str(context) for context in named})
    if unknown:
        known = ", ".join(map(str, contexts[:20]))
        raise UserError(f"no context {unknown[0]!r} to hold out; there are {known}.")
    count = max(1, round(config.validation * len(contexts))) if config.validation else 0
    ranked = sorted(contexts, key=lambda context: digest(f"{config.seed}/{context}"))
    held_out = named | set(ranked[:count])
    if len(held_out) == len(contexts):
        raise UserError(f"all {len(contexts)} contexts would be held out; keep one to train on.")
    return held_out


def _refuse_alike(source: Source) -> None:
    """Contexts that Python or a table would take for one: 1, 1.0, True and "1"."""
    first: dict[Any, tuple[str, Any]] = {}
    for where, context in [
        *((f"the list of levels of {source.name}", level) for level in source.levels),
        *((outline.where, outline.context) for outline in source.outlines),
    ]:
        for key in (context, str(context)):
            there, other = first.setdefault(key, (where, context))
            if type(other) is not type(context):
                raise UserError(
                    f"{where} has the context {context!r}, but {there} {other!r}; what is one "
                    "context must be written in one way, and others must differ by more."
                )


def _sorted(contexts: set[Any]) -> list[Any]:
    return sorted(contexts, key=lambda context: (type(context).__name__, context))


def _digest_files(source: Source) -> str:
    """Of names and contents, wherever the folder is."""
    parts = []
    with progress(f"hash {source.name}", len(source.files), "files") as advance:
        for file in source.files:
            parts.append(f"{file.relative_to(source.root)} {digest_file(file)}\n")
            advance(len(parts))
    return digest(*parts)


def _write(source: Source, parts: dict[Path, list[Any]], identity: Identity) -> None:
    with contextlib.ExitStack() as stack:
        home: dict[Any, _Part] = {}  # of each context
        written = []
        for path, levels in parts.items():
            part = _Part(source, path, levels)
            stack.enter_context(part.writer)
            home |= dict.fromkeys(levels, part)
            written.append(part)
        total, done = sum(outline.n_frames for outline in source.outlines), 0
        advance = stack.enter_context(progress(f"import {source.name}", total, "frames"))
        for outline, episode in zip(source.outlines, source.episodes(), strict=True):
            if outline.context in home:
                check_episode(outline, episode, source)
                home[outline.context].add(outline, episode)
            done += outline.n_frames
            advance(done)
        for part in written:
            part.finish(identity, source.played)


class _Part:
    """One of the datasets that an import writes."""

    def __init__(self, source: Source, path: Path, levels: list[Any]) -> None:
        self._level = {level: i for i, level in enumerate(levels)}
        n_frames = np.array([o.n_frames for o in source.outlines if o.context in self._level])
        self._starts = np.cumsum(n_frames) - n_frames
        self._regions = np.unique(self._starts // _REGION_FRAMES, return_inverse=True)[1]
        self._rows: list[dict[str, Array]] = []  # of each episode
        self._n_episodes = 0
        self.writer = DatasetWriter(
            path,
            name=source.name.encode(errors="backslashreplace").decode(),  # may be a folder's
            obs_shape=source.obs_shape,
            n_actions=source.n_actions,
            levels=levels,
            region_frames=np.bincount(self._regions, n_frames).astype(int).tolist(),
        )

    def add(self, outline: Outline, episode: Episode) -> None:
        i, n = self._n_episodes, outline.n_steps
        self.writer.append(self._regions[i], episode.obs)
        step = np.arange(n)
        last = step == n - 1
        columns = {
            "action": episode.action,
            "reward": episode.reward,
            "level": np.full(n, self._level[outline.context]),
            "episode": np.full(n, i),
            "t": step + outline.first_t,
            "terminated": last & episode.terminated,
            "truncated": last & episode.truncated,
            "has_next": step + 1 < outline.n_frames,
            "frame": step + self._starts[i],
        }
        if episode.behaviour_prob is not None:
            columns["behaviour_prob"] = episode.behaviour_prob
        self._rows.append({k: columns[k].astype(dtype) for k, dtype in dtypes(columns).items()})
        self._n_episodes += 1

    def finish(self, identity: Identity, facts: Mapping[str, Any]) -> None:
        self.writer.finish(self._rows, identity, **facts)


def check_episode(outline: Outline, episode: Episode, source: Source) -> None:
    where = outline.where
    if episode.obs.dtype != np.uint8 or episode.obs.shape[1:] != source.obs_shape:
        raise UserError(
            f"{where} has {episode.obs.dtype} observations of shape {episode.obs.shape[1:]}; "
            f"the source declares uint8 {source.obs_shape}."
        )
    if len(episode.obs) != outline.n_frames:
        raise UserError(f"{where} has {len(episode.obs)} observations, not {outline.n_frames}.")
    check_steps(where, episode.action, episode.reward, source.n_actions)
    if len(episode.action) != outline.n_steps:
        raise UserError(f"{where} has {len(episode.action)} actions, not {outline.n_steps}.")


def check_steps(where: str, action: Array, reward: Array, n_actions: int | None) -> None:
    if action.ndim != 1 or action.dtype.kind not in "iu":  # a time span is an np.integer, too
        raise UserError(
            f"{where} has {action.dtype} actions of shape {action.shape}; "
            "gsf needs one whole number a step."
        )
    if len(action) == 0:
        raise UserError(f"{where} has no steps; remove it.")
    if reward.shape != action.shape or reward.dtype.kind not in "fiu":
        raise UserError(
            f"{where} has {reward.dtype} rewards of shape {reward.shape} for {len(action)} "
            "actions; gsf needs one number a step."
        )
    kept = np.abs(reward.astype(np.float64)) <= MOST_REWARD
    if not kept.all():
        step = int(kept.argmin())
        raise UserError(
            f"{where} has reward {reward[step]} at step {step}, which is not finite or beyond "
            f"{MOST_REWARD:.2g}."
        )
    if action.min() < 0:
        raise UserError(f"{where} has a negative action, {action.min()}; actions count from 0.")
    if n_actions is not None and action.max() >= n_actions:
        raise UserError(f"{where} has action {action.max()}, but there are {n_actions} actions.")


def one_value(values: Any, where: str, key: str) -> Any:
    """The context that a value, or an array of equal values, holds; as JSON can hold it."""
    values = np.asarray(values)
    if values.dtype.kind not in "biufSUO" or values.size == 0 or (values != values.flat[0]).any():
        raise UserError(f"{where} has no single {key!r}; a context is one value an episode.")
    value = values.flat[0]
    value = value.item() if isinstance(value, np.generic) else value
    value = value.decode() if isinstance(value, bytes) else value
    if misfit([value], LEVELS):
        raise UserError(
            f"{where} has {value!r} for {key!r}; a context is a finite number of 64 bits or text."
        )
    return value


def end_flag(values: Any, n_steps: int, where: str, key: str) -> bool:
    """Whether an episode ended that way: one flag, or one a step of which the last may be set."""
    flags = np.asarray(values)
    shaped = flags.size == 1 or flags.shape == (n_steps,)
    if not shaped or flags.dtype.kind not in "biuf" or not np.isin(flags, (0, 1)).all():
        raise UserError(f"{where} has no clear {key!r}; give one flag, or one a step.")
    flags = flags.reshape(-1)
    if flags[:-1].any():
        raise UserError(f"{where} goes on after it was {key}, at step {int(flags.argmax())}.")
    return bool(flags[-1])
