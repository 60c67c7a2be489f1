"""An agent on one level -> video of what it sees (.mp4 with the extra `video`, .gif always).

It plays as `gsf evaluate` has it play: the same level, the same actions, the same return.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from gsf.core.errors import UserError
from gsf.core.images import in_colour
from gsf.core.options import Count, Options, Seed, between
from gsf.evaluation.players import Device, Player, find_players
from gsf.evaluation.rollout import rollout
from gsf.nets.acting import Mode
from gsf.suites import facts_of

CAPTION_HEIGHT = 32  # a multiple of 16, as video codecs like it; so is 64 times any scale
Frame = NDArray[np.uint8]


@dataclass(frozen=True)
class PlayConfig(Options):
    """Watch an agent play one level: a video of what it sees."""

    agent: tyro.conf.Positional[str]
    """A run directory, a policy (its file, the directory of a `gsf collect`, or the name of a
    shipped one), or `random`."""
    level: Seed
    """Its number; unseen ones begin at 1000000 (Procgen)."""
    out: Path
    """Video to write: .gif, or .mp4 (pip install 'gsf-rl[video]')."""
    game: str | None = None
    """What `random` is to play; a run or a policy knows its game, but not a suite in a file of
    yours: file.py:Suite/game."""
    env: str | None = None
    """A Gymnasium environment of yours to play in, as file.py:make: make(level) gives that of a
    level, which is reset with seed=level. The file is run."""
    mode: Mode = "sampled"
    """Actions drawn at the run's own temperature (sampled), at 1 (sampled-1), or the best one."""
    step: Annotated[int, between(0, 10**12)] | None = None
    """A checkpoint that was kept. Default: the latest."""
    seed: Seed = 0
    """Of the actions `random` or a policy draws; a run has its own."""
    max_steps: Count | None = None
    """Stop the video after so many steps. Default: at the end of the episode."""
    fps: Annotated[int, between(1, 1000)] = 15
    """Steps per second."""
    scale: Annotated[int, between(1, 64)] = 6
    """Pixels per pixel of the observation."""
    caption: bool = True
    """A line below with step, action and return."""
    dataset: Path | None = None
    """Of random play and policies: a dataset whose game and difficulty they play."""
    device: Device = "auto"
    """Where networks run; auto: a GPU if there is one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out.suffix not in (".gif", ".mp4") or self.out.is_dir():
            raise UserError(f"--out {self.out} must be a file that ends in .gif or .mp4.")


def play(config: PlayConfig) -> Path:
    """Films an agent on one level, as `gsf evaluate` plays it; returns the video's path.

    play(PlayConfig("run", level=1_000_000, out=Path("play.gif")))
    """
    player = find_players(
        config.agent,
        game=config.game,
        steps=[config.step],
        seed=config.seed,
        dataset=config.dataset,
        device=config.device,
        env=config.env,
        level=config.level,
    )[0]
    video = Video(player, config)
    write = _write_mp4 if config.out.suffix == ".mp4" else _write_gif
    with _aside(config.out) as aside:
        write(aside, video.frames(), config.fps)
    print(f"{config.out}: {player.method} on {player.game} level {config.level}, {video.result}")
    return config.out


class Video:
    """One episode; `frames` plays it, the rest says how it went."""

    def __init__(self, player: Player, config: PlayConfig) -> None:
        self.player, self.config = player, config
        self.total, self.length, self.ended, self.completed = 0.0, 0, False, False

    @property
    def result(self) -> str:
        how = "completed" if self.completed else "ended" if self.ended else "cut off"
        return f"return {self.total:g}, {how} after {self.length} steps"

    def frames(self) -> Iterator[Frame]:
        player, config = self.player, self.config
        names = facts_of(player.game).actions
        options: dict[str, Any] = {"difficulty": player.difficulty, "threads": 0}
        levels = [config.level]
        at = player.at(config.mode)
        steps = rollout(player.actor, player.game, levels, at, seed=player.seed, **options)
        with contextlib.closing(steps):
            for step in itertools.islice(steps, config.max_steps):
                line = f"step {self.length}   return {self.total:g}   {names[step.action[0]]}"
                shown = step.obs[0]  # there is no observation after the last
                yield self._frame(shown, line)
                self.total += float(step.reward[0])
                self.length += 1
                self.ended, self.completed = bool(step.ended[0]), bool(step.completed[0])
        for _ in range(config.fps):  # a second to see how it ended
            yield self._frame(shown, self.result)

    def _frame(self, obs: Frame, line: str) -> Frame:
        image = in_colour(obs).repeat(self.config.scale, 0).repeat(self.config.scale, 1)
        return (
            np.concatenate([image, _caption(line, image.shape[1])])
            if self.config.caption
            else image
        )


def _caption(line: str, width: int) -> Frame:
    image = Image.new("RGB", (width, CAPTION_HEIGHT))
    ImageDraw.Draw(image).text((8, 10), line, fill="white", font=ImageFont.load_default())
    return np.asarray(image)


@contextlib.contextmanager
def _aside(out: Path) -> Iterator[Path]:
    """A file to write beside `out`, which it becomes only if the whole video is written."""
    aside = out.with_name(f".{out.stem}.{os.getpid()}.partial{out.suffix}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside.touch()
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}; choose another --out.") from None
    try:
        yield aside
        os.replace(aside, out)
    finally:
        aside.unlink(missing_ok=True)


def _write_gif(path: Path, frames: Iterator[Frame], fps: int) -> None:
    images = (Image.fromarray(frame).quantize(method=Image.Quantize.FASTOCTREE) for frame in frames)
    first = next(images)
    first.save(path, save_all=True, append_images=images, duration=1000 / fps, loop=0)


def _write_mp4(path: Path, frames: Iterator[Frame], fps: int) -> None:
    # Not through imageio: Procgen pins the version of its ffmpeg plugin that no longer imports.
    try:
        import av
    except ImportError:
        raise UserError(".mp4 needs PyAV: pip install 'gsf-rl[video]', or choose .gif.") from None
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=fps)
        video.pix_fmt = "yuv420p"
        for number, frame in enumerate(frames):
            if number == 0:
                video.height, video.width = frame.shape[:2]
            container.mux(video.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(video.encode())
