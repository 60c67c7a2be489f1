"""Stage: a user's own episodes (npz, Minari, Parquet) -> datasets that train like Procgen's.

Besides images, discrete actions and rewards GSF needs one thing: which context (site, device,
level) an episode belongs to. Contexts become levels; whole contexts can be held out for
validation. An import looks at everything small first, then streams the frames.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gsf.core.errors import UserError
from gsf.core.files import digest, digest_file
from gsf.core.logs import progress
from gsf.core.schema import MOST_ACTIONS
from gsf.core.stage import Identity
from gsf.data.episodes import Episode, Outline, Source, check_episode
from gsf.data.format import Array, DatasetWriter, dtypes, read_facts
from gsf.data.gen_dgrl import is_gen_dgrl, read_gen_dgrl
from gsf.data.minari import read_minari, write_minari
from gsf.data.npz import read_npz
from gsf.data.options import ExportConfig as ExportConfig
from gsf.data.options import ImportConfig as ImportConfig
from gsf.data.parquet import is_parquet, read_parquet, write_parquet

_REGION_FRAMES = 4096  # frames hashed together, in whole episodes


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
    return (write_minari if config.format == "minari" else write_parquet)(config)


def _look(config: ImportConfig) -> Source:
    readers = {
        "npz": read_npz,
        "minari": read_minari,
        "parquet": read_parquet,
        "gen_dgrl": read_gen_dgrl,
    }
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
    """By a hash of the name: a context tends to stay on its side when others come or go."""
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
    """Refuses contexts that Python or a table would mix up: 1, 1.0, True and "1"."""
    first: dict[Any, tuple[str, Any]] = {}
    for where, context in [
        *((f"the list of levels of {source.name}", level) for level in source.levels),
        *((outline.where, outline.context) for outline in source.outlines),
    ]:
        for key in (context, str(context)):
            there, other = first.setdefault(key, (where, context))
            if type(other) is not type(context):
                raise UserError(
                    f"{where} has the context {context!r}, but {there} {other!r}; write one "
                    "context in one way, and let others differ by more."
                )


def _sorted(contexts: set[Any]) -> list[Any]:
    return sorted(contexts, key=lambda context: (type(context).__name__, context))


def _digest_files(source: Source) -> str:
    """A digest of names and contents, the same wherever the folder lies."""
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
            part.writer.finish(part.rows, identity, **source.played)


class _Part:
    """One of the datasets that an import writes."""

    def __init__(self, source: Source, path: Path, levels: list[Any]) -> None:
        self._level = {level: i for i, level in enumerate(levels)}
        n_frames = np.array([o.n_frames for o in source.outlines if o.context in self._level])
        self._starts = np.cumsum(n_frames) - n_frames
        self._regions = np.unique(self._starts // _REGION_FRAMES, return_inverse=True)[1]
        self.rows: list[dict[str, Array]] = []  # of each episode
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
        self.rows.append({k: columns[k].astype(dtype) for k, dtype in dtypes(columns).items()})
        self._n_episodes += 1
