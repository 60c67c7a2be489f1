"""Minari datasets, both ways: a source for `gsf data import`, and `gsf data export`.

Minari 0.5 stores images as JPEG. Its reader opens whatever Pillow can, so exported frames are PNG
in the same place: any Minari reads them, pixel for pixel. Minari episodes have T + 1 observations;
where the last was never shown, export repeats the one before and says so, and import drops it.
Minari, h5py and Pillow are extras: they are imported where they are used.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from gsf.core.errors import UserError
from gsf.core.files import atomic_directory, clear_locks
from gsf.core.images import image_shape, to_hwc
from gsf.core.logs import progress
from gsf.core.schema import ACTIONS, LEVELS, SHAPE, TEXT, Maybe, parse_json
from gsf.core.sealed import checked
from gsf.data.dataset import Dataset
from gsf.data.episodes import Episode, Outline, Source, end_flag, one_value, readable
from gsf.data.format import Array
from gsf.data.options import ExportConfig, ImportConfig

# What gsf adds to Minari's metadata: of the dataset, and of an episode.
_FACTS, _REPEATED, _FIRST_T = "gsf", "repeated_final_frame", "first_t"
NOT_READ = "is not a dataset that this Minari reads"
_PLAYED = ("difficulty", "actions")  # as the suite calls them
_FORM = {
    "name": Maybe(TEXT),
    "obs_shape": Maybe(SHAPE),
    "levels": Maybe(LEVELS),
    "difficulty": Maybe((None, str)),
    "actions": Maybe((None, ACTIONS)),
}


def _minari() -> Any:
    try:
        import h5py  # noqa: F401 (an extra of Minari, which its storage needs)
        import minari
    except ImportError:
        raise UserError("Minari is not installed; pip install 'gsf-rl[minari]'.") from None
    return minari


def read_minari(config: ImportConfig) -> Source:
    minari, path = _minari(), _find(config.source)
    for file in path.rglob("*"):
        if not (file.is_file() or file.is_dir()):  # reading a pipe might never end
            raise UserError(f"{file} is no file, whatever its name says; remove it.")
    with readable(path, NOT_READ):
        data = minari.MinariDataset(path)
        facts = checked(path / "metadata.json", data.storage.metadata.get(_FACTS, {}), _FORM)
    key, shape = _images(config.source, data.observation_space, config.image)
    if not isinstance(data.action_space, spaces.Discrete):
        found = _brief(data.action_space)
        raise UserError(f"{config.source} has actions {found}; gsf needs a Discrete space.")
    with readable(path, NOT_READ):
        outlines = list(_outlines(config, data))
    if not outlines:
        raise UserError(f"{config.source} has no episodes.")
    obs_shape = tuple(facts.get("obs_shape", shape))
    return Source(
        name=facts.get("name", data.id),
        root=path,
        files=sorted(file for file in path.rglob("*") if file.is_file()),
        obs_shape=obs_shape,
        n_actions=config.n_actions or int(data.action_space.n),
        outlines=outlines,
        episodes=lambda: _episodes(data, path, outlines, key, obs_shape),
        levels=facts.get("levels", ()) if config.context == "level" else (),
        played={name: facts[name] for name in _PLAYED if facts.get(name) is not None},
    )


def _find(source: str) -> Path:
    """Where Minari keeps local datasets: its own function would make the folder, too."""
    root = Path(os.environ.get("MINARI_DATASETS_PATH", Path.home() / ".minari" / "datasets"))
    for path in (Path(source), Path(source) / "data", root / source / "data"):
        if (path / "metadata.json").is_file():
            return path
    raise UserError(
        f"no Minari dataset at {source} and none of that id in {root}; "
        "download it first with `minari download`."
    )


def _outlines(config: ImportConfig, data: Any) -> Iterator[Outline]:
    indices = range(data.total_episodes)
    for index, metadata in zip(indices, data.storage.get_episode_metadata(indices), strict=True):
        where = f"episode {index} of {config.source}"
        n_steps = int(metadata["total_steps"])
        value = _lookup(metadata, config.context)
        if value is None:  # slow: Minari reads an episode's frames with its infos
            infos = next(iter(data.storage.get_episodes([index])))["infos"] or {}
            value = _lookup(infos, config.context)
            if value is None:
                known = ", ".join(sorted({*metadata, *infos}))
                raise UserError(
                    f"{where} has no {config.context!r} to tell its context; "
                    f"choose one of {known} with --context."
                )
            value = value[:n_steps]  # the info after the last step may be the next episode's
        context = one_value(value, where, config.context)
        n_frames = n_steps + (not metadata.get(_REPEATED, False))
        first_t = int(metadata.get(_FIRST_T, 0))
        if min(n_steps, first_t + 1) < 1 or n_steps + first_t >= 2**31:
            raise UserError(f"{where} has {n_steps} steps from step {first_t} on; remove it.")
        yield Outline(where, context, n_steps, n_frames, first_t)


def _lookup(tree: Any, key: str) -> Any:
    """tree["a"]["b"] of the key "a/b", or None."""
    for part in key.split("/"):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree


def _images(
    source: str, space: spaces.Space[Any], chosen: str | None
) -> tuple[str | None, tuple[int, ...]]:
    """Where the images are in an observation, and their [H,W,C]."""
    entries = space.spaces.items() if isinstance(space, spaces.Dict) else [("", space)]
    images = {key: shape for key, entry in entries if (shape := _image_shape(entry))}
    if chosen is not None:
        images = {key: shape for key, shape in images.items() if key == chosen}
    if not images:
        named = f" {chosen!r}" if chosen else ""
        raise UserError(
            f"{source} has no images{named}: its observations are {_brief(space)}; "
            "gsf needs uint8 [H,W,C]."
        )
    if len(images) > 1:
        raise UserError(f"{source} has images {', '.join(images)}; choose one with --image.")
    ((key, shape),) = images.items()
    return key or None, shape


def _image_shape(space: spaces.Space[Any]) -> tuple[int, ...] | None:
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return None
    single = len(space.shape) == 4 and space.shape[0] == 1
    return image_shape(space.shape[1:] if single else space.shape)


def _brief(space: spaces.Space[Any]) -> str:
    """A space in words, without its bounds: these can be thousands of numbers."""
    if isinstance(space, spaces.Dict):
        return ", ".join(f"{key}: {_brief(entry)}" for key, entry in space.spaces.items())
    return f"{type(space).__name__} {space.dtype} {space.shape}"


def _episodes(
    data: Any, path: Path, outlines: Sequence[Outline], key: str | None, obs_shape: tuple[int, ...]
) -> Iterator[Episode]:
    with readable(path, NOT_READ):
        stored = data.storage.get_episodes(range(len(outlines)))
        for outline, episode in zip(outlines, stored, strict=True):
            obs = episode["observations"] if key is None else episode["observations"][key]
            obs = obs[:, 0] if obs.ndim == 5 else obs
            obs = obs[: outline.n_frames]
            where, n = outline.where, outline.n_steps
            yield Episode(
                obs if obs.shape[1:] == obs_shape else to_hwc(obs),
                episode["actions"] - data.action_space.start,
                episode["rewards"],
                end_flag(episode["terminations"], n, where, "terminated"),
                end_flag(episode["truncations"], n, where, "truncated"),
            )


def write_minari(config: ExportConfig) -> Path:
    """Streams episode by episode into Minari's HDF5 layout."""
    minari, dataset = _minari(), Dataset.open(config.dataset)
    dataset_id = config.dataset_id or _default_id(config.out.name, dataset.name)
    if not re.fullmatch(r"([-\w]+/)*[-\w]+-v\d+", dataset_id):
        raise UserError(f"{dataset_id!r} is no Minari id; write [namespace/]name-v0.")
    if _is_exported(config.out, dataset):
        clear_locks(config.out)
        print(f"{config.out}: already done")
        return config.out
    space = _observation_space(dataset.obs_shape)
    with atomic_directory(config.out) as aside:
        from minari.dataset.minari_storage import MinariStorage

        folder = aside.resolve() / "data"  # Minari cannot tell the size of a relative path
        folder.mkdir()
        storage = MinariStorage.new(
            folder,
            observation_space=space,
            action_space=spaces.Discrete(dataset.n_actions),
            data_format="hdf5",
        )
        n_repeated = _write_episodes(folder / "main_data.hdf5", dataset, space)
        storage.update_metadata(
            {
                "dataset_id": dataset_id,
                "minari_version": minari.__version__,
                "total_episodes": len(dataset.episodes()),
                "total_steps": len(dataset),
                "dataset_size": storage.get_size(),
                "description": (
                    f"Exported by gsf. The last observation of {n_repeated} episodes was never "
                    f"shown: it repeats the one before, and {_REPEATED!r} marks these episodes."
                ),
                _FACTS: {
                    "dataset": dataset.digest,
                    "name": dataset.name,
                    "obs_shape": dataset.obs_shape,
                    "levels": dataset.levels,
                    **{name: dataset.manifest.get(name) for name in _PLAYED},
                },
            }
        )
    print(f"{config.out}: {len(dataset):,} transitions as Minari dataset {dataset_id}")
    return config.out


def _default_id(directory: str, name: str) -> str:
    if re.fullmatch(r"[-\w]+-v\d+", directory):
        return directory
    return re.sub(r"[^-\w]+", "-", re.sub(r"-v\d+$", "", name)) + "-v0"


def _is_exported(out: Path, dataset: Dataset) -> bool:
    try:
        metadata = parse_json((out / "data" / "metadata.json").read_text())
        return bool(metadata[_FACTS]["dataset"] == dataset.digest)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _observation_space(obs_shape: tuple[int, ...]) -> spaces.Box:
    """[H,W,C]; [H,W] for one channel, as Pillow has it; [1,H,W,C] for more than Pillow can hold."""
    from minari.dataset.minari_storage import is_image_space

    shape = obs_shape[:2] if obs_shape[2] == 1 else obs_shape
    space = spaces.Box(0, 255, shape, np.uint8)
    if is_image_space(space) and obs_shape[2] > 4:
        space = spaces.Box(0, 255, (1, *shape), np.uint8)
    return space


def _write_episodes(path: Path, dataset: Dataset, space: spaces.Box) -> int:
    """Minari's layout, by hand: its own writer makes JPEGs. Returns how many frames repeat."""
    import h5py
    from minari.dataset.minari_storage import is_image_space

    n_repeated, as_png = 0, is_image_space(space)
    with (
        h5py.File(path, "w", track_order=True) as file,
        ThreadPoolExecutor() as pool,
        progress(f"export {dataset.name}", len(dataset)) as advance,
    ):
        for i, (start, stop) in enumerate(dataset.episodes()):
            n, first, repeated = stop - start, dataset.frame[start], not dataset.has_next[stop - 1]
            n_repeated += repeated
            obs = dataset.obs[first : first + n + (not repeated)]
            obs = np.concatenate([obs, obs[-1:]]) if repeated else obs
            obs = obs.reshape(-1, *space.shape)
            group = file.create_group(f"episode_{i}")
            level = dataset.levels[dataset.level[start]]
            group.attrs.update({"id": i, "total_steps": n, "level": level})
            group.attrs.update({_REPEATED: repeated, _FIRST_T: dataset.t[start]})
            group["actions"] = dataset.action[start:stop].astype(np.int64)
            group["rewards"] = dataset.reward[start:stop]
            group["terminations"] = dataset.terminated[start:stop]
            group["truncations"] = dataset.truncated[start:stop]
            group["infos/level"] = [level] * (n + 1)
            if as_png:
                images = np.empty(n + 1, object)
                for k, image in enumerate(pool.map(_png, obs)):
                    images[k] = image
                group.create_dataset("observations", data=images, dtype=h5py.vlen_dtype(np.uint8))
            else:
                group.create_dataset("observations", data=obs, compression="gzip", chunks=True)
            advance(stop)
    return n_repeated


def _png(frame: Array) -> Array:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, "PNG", compress_level=1)
    return np.frombuffer(buffer.getvalue(), np.uint8)
