"""Parquet, both ways: a folder for a dataset hub by `gsf data export`, and a source for import.

README.md (a card), meta/info.json, data/train-*.parquet: a row per transition, its image as PNG in
the struct that hubs show as one. Where the image after an episode's last step is known, that row
has it as `final_image`. Import gives back the same frames and columns, bit for bit.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from gsf.core.errors import UserError
from gsf.core.files import atomic_directory, clear_locks
from gsf.core.logs import progress
from gsf.core.schema import ACTIONS, LEVELS, N_ACTIONS, POSITIVE, SHAPE, TEXT, Maybe, parse_json
from gsf.core.sealed import checked
from gsf.data.cards import LICENCE, earned, epsilon, licence, markdown, one_of, played_by
from gsf.data.dataset import Dataset
from gsf.data.episodes import Episode, Outline, Source, end_flag, readable
from gsf.data.format import Array, episode_starts
from gsf.data.options import ExportConfig, ImportConfig

INFO = Path("meta/info.json")
FORMAT = 1
ROWS_A_FILE, ROWS_AT_ONCE = 20_000, 1_000
_FORM = {
    "format": int,
    "name": TEXT,
    "obs_shape": SHAPE,
    "n_actions": N_ACTIONS,
    "levels": LEVELS,
    "rows": POSITIVE,
    "difficulty": Maybe((None, str)),
    "actions": Maybe((None, ACTIONS)),
}
NOT_READ = "cannot be read as Parquet"
_PLAYED = ("difficulty", "actions")  # as the suite calls them
_COLUMNS = {
    "action": "int32",
    "reward": "float32",
    "terminated": "bool",
    "truncated": "bool",
    "has_next": "bool",
}
_PROB = "behaviour_prob"
_SMALL = ("level", "episode", "t", "has_next")


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UserError("pyarrow is not installed; pip install 'gsf-rl[parquet]'.") from None
    return pyarrow


def is_parquet(path: Path) -> bool:
    return (path / INFO).is_file() and any((path / "data").glob("*.parquet"))


def write_parquet(config: ExportConfig) -> Path:
    """Streams rows into files of equal length, so that none is hard to download."""
    _pyarrow()
    dataset = Dataset.open(config.dataset)
    if dataset.obs_shape[2] > 4:
        raise UserError(f"PNG holds up to 4 channels, not {dataset.obs_shape[2]}.")
    if config.dataset_id:
        raise UserError("--dataset-id is Minari's; leave it out with --format parquet.")
    if _is_exported(config.out, dataset):
        clear_locks(config.out)
        print(f"{config.out}: already done")
        return config.out
    schema = _schema(_types(dataset))
    last = np.append(np.diff(dataset.episode) != 0, True)
    n_files = -(-len(dataset) // ROWS_A_FILE)
    with (
        atomic_directory(config.out) as aside,
        ThreadPoolExecutor() as pool,
        progress(f"export {dataset.name}", len(dataset)) as advance,
    ):
        for folder in ("data", "meta"):
            (aside / folder).mkdir()
        for i in range(n_files):
            path = aside / "data" / f"train-{i:05}-of-{n_files:05}.parquet"
            stop = min(len(dataset), (i + 1) * ROWS_A_FILE)
            _write_rows(path, dataset, range(i * ROWS_A_FILE, stop), schema, last, pool)
            advance(stop)
        (aside / INFO).write_text(json.dumps(_info(dataset), indent=1) + "\n")
        (aside / "README.md").write_text(_readme(dataset))
    print(f"{config.out}: {len(dataset):,} transitions in {n_files} Parquet files")
    return config.out


def _is_exported(out: Path, dataset: Dataset) -> bool:
    try:
        return bool(parse_json((out / INFO).read_text())["dataset"] == dataset.digest)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _info(dataset: Dataset) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "dataset": dataset.digest,
        "name": dataset.name,
        "obs_shape": dataset.obs_shape,
        "n_actions": dataset.n_actions,
        "levels": dataset.levels,
        "rows": len(dataset),
        "episodes": len(dataset.episodes()),
        **{name: dataset.manifest.get(name) for name in _PLAYED},
        "card": _card(dataset),
    }


def _types(dataset: Dataset) -> dict[str, Any]:
    """Of the columns, in their order."""
    pa = _pyarrow()
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    level = pa.int64() if _whole(dataset.levels) else pa.string()
    types = {"image": image, "level": level, "episode": pa.int32(), "t": pa.int32()}
    types |= {name: pa.from_numpy_dtype(dtype) for name, dtype in _COLUMNS.items()}
    if dataset.behaviour_prob is not None:
        types[_PROB] = pa.float32()
    return types | {"final_image": image}


def _schema(types: dict[str, Any]) -> Any:
    """With what hubs read to show images as images."""
    features = {
        name: {"_type": "Image"}
        if name.endswith("image")
        else {"_type": "Value", "dtype": "float32" if str(kind) == "float" else str(kind)}
        for name, kind in types.items()
    }
    facts = json.dumps({"info": {"features": features}})
    return _pyarrow().schema(list(types.items()), metadata={"huggingface": facts})


def _whole(levels: Sequence[Any]) -> bool:
    return all(type(level) is int and abs(level) < 2**63 for level in levels)


def _write_rows(
    path: Path, dataset: Dataset, rows: range, schema: Any, last: Array, pool: ThreadPoolExecutor
) -> None:
    pa = _pyarrow()
    names = dataset.levels if _whole(dataset.levels) else [str(x) for x in dataset.levels]
    with pa.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(rows.start, rows.stop, ROWS_AT_ONCE):
            part = slice(start, min(start + ROWS_AT_ONCE, rows.stop))
            frame, n = dataset.frame[part], len(dataset.frame[part])
            columns: dict[str, Any] = {"level": [names[i] for i in dataset.level[part]]}
            columns["image"] = list(pool.map(_png, dataset.obs[frame]))
            columns["final_image"] = [None] * n
            for i in np.flatnonzero(last[part] & dataset.has_next[part]):
                columns["final_image"][i] = _png(dataset.obs[frame[i] + 1])
            others = (x for x in schema.names if x not in columns)
            columns |= {name: getattr(dataset, name)[part] for name in others}
            arrays = [pa.array(columns[field.name], field.type) for field in schema]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _png(frame: Array) -> dict[str, Any]:
    buffer = io.BytesIO()
    Image.fromarray(frame[..., 0] if frame.shape[-1] == 1 else frame).save(buffer, "PNG")
    return {"bytes": buffer.getvalue(), "path": None}


def _card(dataset: Dataset) -> dict[str, str]:
    facts, played = dataset.manifest, dataset.manifest.get("provenance") or [{}]
    return {
        "game": f"{dataset.name} ({facts.get('difficulty') or 'no levels of difficulty'})",
        **played_by(played),
        "epsilon": one_of(epsilon(take.get("epsilon") or {}) for take in played),
        **earned(dataset.name, facts["mean_return"], dataset.levels),
        "levels": f"{dataset.n_levels} ({dataset.levels[0]}..{dataset.levels[-1]})",
        "transitions": f"{len(dataset):,} in {len(dataset.episodes()):,} episodes",
        "digest": dataset.digest,
        "licence": licence(dataset.name),
    }


def _readme(dataset: Dataset) -> str:
    known = "mit" if licence(dataset.name) == LICENCE else "other"
    return _README.format(
        licence=known,
        card=markdown(dataset.name, _card(dataset)),
        prob=_PROB_LINE if dataset.behaviour_prob is not None else "",
    )


def read_parquet(config: ImportConfig) -> Source:
    pa, root = _pyarrow(), Path(config.source)
    facts = checked(root / INFO, _facts(root / INFO), _FORM)
    if facts["format"] != FORMAT:
        raise UserError(f"{root / INFO} has format {facts['format']}; this gsf reads {FORMAT}.")
    files = sorted((root / "data").glob("*.parquet"))
    with readable(root, NOT_READ):
        for file in files:
            missing = {"image", *_SMALL, *_COLUMNS} - {*pa.parquet.read_schema(file).names}
            if missing:
                raise UserError(f"{file} has no column {min(missing)!r}.")
        rows = pa.concat_tables(pa.parquet.read_table(x, columns=[*_SMALL]) for x in files)
    if len(rows) != facts["rows"]:
        raise UserError(f"{root} has {len(rows):,} rows, not {facts['rows']:,}; get it again.")
    outlines = list(_outlines(root, rows, {str(x): x for x in facts["levels"]}))
    return Source(
        name=facts["name"],
        root=root,
        files=[root / INFO, *files],
        obs_shape=tuple(facts["obs_shape"]),
        n_actions=config.n_actions or facts["n_actions"],
        outlines=outlines,
        episodes=lambda: _episodes(root, files, outlines, tuple(facts["obs_shape"])),
        levels=facts["levels"],
        played={name: facts[name] for name in _PLAYED if facts.get(name) is not None},
    )


def _facts(path: Path) -> dict[str, Any]:
    try:
        found = parse_json(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is no JSON: {error}.") from None
    return found if isinstance(found, dict) else {}


def _outlines(root: Path, rows: Any, levels: dict[str, Any]) -> Iterator[Outline]:
    columns = {name: rows.column(name).to_numpy(zero_copy_only=False) for name in _SMALL}
    starts = episode_starts(columns["episode"])
    for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
        where = f"episode {columns['episode'][start]} of {root}"
        names, t = columns["level"][start:stop], columns["t"][start:stop]
        if (names != names[0]).any() or str(names[0]) not in levels:
            raise UserError(f"{where} has no single level that {INFO} lists.")
        if t[0] < 0 or (np.diff(t) != 1).any():
            raise UserError(f"{where} has a t that does not count up.")
        n, known = int(stop - start), bool(columns["has_next"][stop - 1])
        yield Outline(where, levels[str(names[0])], n, n + known, int(t[0]))


def _episodes(
    root: Path, files: Sequence[Path], outlines: Sequence[Outline], obs_shape: tuple[int, ...]
) -> Iterator[Episode]:
    pa = _pyarrow()
    batches = (
        pa.Table.from_batches([batch])
        for file in files
        for batch in pa.parquet.ParquetFile(file).iter_batches(ROWS_AT_ONCE)
    )
    with readable(root, NOT_READ), ThreadPoolExecutor() as pool:
        waiting = next(batches)
        for outline in outlines:
            while len(waiting) < outline.n_steps:
                waiting = pa.concat_tables([waiting, next(batches)])
            part, waiting = waiting.slice(0, outline.n_steps), waiting.slice(outline.n_steps)
            images = part.column("image").to_pylist()
            if outline.n_frames > outline.n_steps:
                images.append(part.column("final_image")[-1].as_py())
            obs = list(pool.map(lambda image: _frame(image, obs_shape), images))
            column = {
                name: part.column(name).to_numpy(zero_copy_only=False)
                for name in part.column_names
                if not name.endswith("image")
            }
            where, n = outline.where, outline.n_steps
            yield Episode(
                np.stack(obs),
                column["action"],
                column["reward"],
                end_flag(column["terminated"], n, where, "terminated"),
                end_flag(column["truncated"], n, where, "truncated"),
                column.get(_PROB),
            )


def _frame(image: Any, obs_shape: tuple[int, ...]) -> Array:
    with Image.open(io.BytesIO(image["bytes"]), formats=["PNG"]) as found:
        if (*found.size[::-1], len(found.getbands())) != obs_shape or found.mode == "P":
            raise UserError(f"an image is {found.mode} {found.size}, not {obs_shape}.")
        return np.asarray(found).reshape(obs_shape)


_README = """---
license: {licence}
task_categories:
- reinforcement-learning
tags:
- offline-rl
- procgen
configs:
- config_name: default
  data_files:
  - split: train
    path: data/*.parquet
---

{card}
Exported by gsf. A row is a transition, in the order of time inside an episode:

- `image`: what the agent saw, a lossless PNG. `final_image`: what it saw after the last step of an
  episode, where that is known.
- `level`: which level (context) the episode was played on, so that generalization can be measured.
- `episode`, `t`: which episode, which step of it.
- `action`, `reward`, `terminated`, `truncated`: what was done and what came of it. `has_next`:
  whether the next image is known.
{prob}
`meta/info.json` has the levels and what the actions are called by the game. `gsf data import FOLDER
--out DATASET` makes the same dataset of it, bit for bit.
"""
_PROB_LINE = "- `behaviour_prob`: the probability with which the action was taken.\n"
