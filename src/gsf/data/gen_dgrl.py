"""The public offline Procgen data of gen_dgrl, as a source for `gsf data import`.

An episode is TIME_EPISODE_LENGTH_LEVEL_RETURN.npz: observations uint8 [T+1,3,64,64], actions,
rewards and dones, [T] or [T,1]. Its level is in its name alone. Its last observation is the first
of the next episode and is left out; a time-out cannot be told from an end, so it counts as an end.
"""

from pathlib import Path

from gsf.core.errors import UserError
from gsf.core.images import image_shape, to_hwc
from gsf.data.episodes import Episode, Outline, Source, check_steps, one_value
from gsf.data.format import Array
from gsf.data.npz import Arrays, opened
from gsf.data.options import ImportConfig

N_ACTIONS = 15  # Procgen's
NAME = "TIME_EPISODE_LENGTH_LEVEL_RETURN.npz"


def is_gen_dgrl(file: Path) -> bool:
    with opened(file) as arrays:
        return "observations" in arrays and "dones" in arrays


def read_gen_dgrl(config: ImportConfig) -> Source:
    folder = Path(config.source)
    files = sorted(folder.rglob("*.npz"))
    if not files and next(folder.rglob("*.npy"), None):
        raise UserError(
            f"{folder} holds .npy files, which gen_dgrl's archives pickle; gsf unpickles nothing. "
            "If you trust them, write each again with "
            f"np.savez({NAME!r}, **np.load(file, allow_pickle=True).item())."
        )
    if not files:
        raise UserError(f"{folder} holds no episodes of gen_dgrl, {NAME}.")
    outlines, shapes = [], set()
    for file in files:
        with opened(file) as arrays:
            obs_shape, action = arrays.obs_shape("observations"), _steps(arrays, "actions")
            check_steps(str(file), action, _steps(arrays, "rewards"), config.n_actions or N_ACTIONS)
            done = _steps(arrays, "dones").astype(bool)
        if done.shape != action.shape or done[:-1].any() or not done[-1]:
            raise UserError(f"{file} is not one whole episode: its dones are not at its end alone.")
        if obs_shape[0] != len(action) + 1:
            raise UserError(
                f"{file} has {obs_shape[0]} observations for {len(action)} actions; gen_dgrl's "
                "episodes have one more."
            )
        outlines.append(Outline(str(file), _level(file, len(action)), len(action), len(action)))
        shapes.add(image_shape(obs_shape[1:]))
    if len(shapes) > 1:
        raise UserError(f"{folder} has images of several shapes: {sorted(map(str, shapes))}.")
    return Source(
        name=folder.resolve().name,
        root=folder,
        files=files,
        obs_shape=shapes.pop() or (),
        n_actions=config.n_actions or N_ACTIONS,
        outlines=outlines,
        episodes=lambda: map(_episode, files),
    )


def _level(file: Path, n_steps: int) -> int:
    words = file.stem.split("_")
    if len(words) != 5 or words[2] != str(n_steps) or not words[3].isdecimal():
        raise UserError(
            f"{file} does not tell its level, which gen_dgrl keeps in the name alone: {NAME}; name "
            "it so, or write its level into it (docs/own-data.md)."
        )
    return int(one_value(int(words[3]), str(file), "level"))


def _steps(arrays: Arrays, name: str) -> Array:
    """[T] or [T,1] -> [T]."""
    values = arrays.read(name)
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _episode(file: Path) -> Episode:
    with opened(file) as arrays:
        obs = to_hwc(arrays.read("observations")[:-1])
        action, reward = _steps(arrays, "actions"), _steps(arrays, "rewards")
    return Episode(obs, action, reward, terminated=True, truncated=False)
