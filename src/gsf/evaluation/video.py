"""Agents on one level, side by side -> video of what they see (.mp4 with the extra `video`, .gif).

Each plays as `gsf evaluate` has it play: the same level, the same actions, the same return.
"""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
import tyro
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from gsf.core.errors import UserError
from gsf.core.files import aside_of, locked
from gsf.core.images import in_colour
from gsf.core.options import Count, Device, Group, Options, Seed, between
from gsf.evaluation.players import Player, find_players, is_run, under_looks
from gsf.evaluation.rollout import rollout
from gsf.nets.acting import Mode
from gsf.suites import facts_of, find_game
from gsf.suites.looks import LookKind

CAPTION_HEIGHT = 24  # above and below: together a multiple of 16, as video codecs like it
COLOURS = 96  # colours of a GIF: half the bytes of 256, and hardly a difference to see
GAP = 8  # pixels between agents
INK, PAPER = "white", (24, 24, 28)
Frame = NDArray[np.uint8]


@dataclass(frozen=True)
class PlayConfig(Options):
    """Watch agents play one level side by side: a video of what they see."""

    agents: tyro.conf.Positional[tuple[str, ...]]  # in Python one alone may be a str
    """One or more: run directories, policies (a file, the directory of a `gsf collect`, or the name
    of a shipped one, such as coinrun), `random`. All of one game."""
    level: Seed | None = None
    """Number of the level to play. Default: the first unseen one (in Procgen 1000000)."""
    out: Path = Path("play.gif")
    """Video to write: .gif, or .mp4 (pip install 'gsf-rl[video]')."""
    game: str | None = None
    """What `random` is to play; a run or a policy knows its game, but not a suite in a file of
    yours: file.py:Suite/game."""
    env: str | None = None
    """A Gymnasium environment of yours to play in, as file.py:make: make(level) gives that of a
    level, which is reset with seed=level. The file is run."""
    looks: LookKind | None = None
    """Draw the game otherwise than the agents have seen it: filters, or Procgen's skins."""
    dataset: Path | None = None
    """Of random play and policies: a dataset whose game and difficulty they play, and whose actions
    random play draws among."""
    mode: Mode = "sampled"
    """Actions drawn at the run's own temperature (sampled), at 1 (sampled-1), or the best one."""
    step: Annotated[int, between(0, 10**12)] | None = None
    """A checkpoint that was kept. Default: the latest."""
    seed: Seed = 0
    """Of the actions `random` or a policy draws; a run has its own."""
    max_steps: Annotated[Count | None, Group.PICTURE] = None
    """Stop the video after so many steps. Default: when every episode is over."""
    still: Annotated[int, between(0, 10**6)] = 100
    """Also end an episode when what the agent sees is the same for so many steps; 0: never."""
    every: Annotated[int, between(1, 1000)] = 1
    """Show every n-th step only, for a smaller file."""
    fps: Annotated[int, between(1, 1000)] = 15
    """Pictures per second."""
    scale: Annotated[int, between(1, 64)] = 6
    """Size: each pixel of an observation becomes a square of so many."""
    caption: bool = True
    """Who plays above, and step, return and action below."""
    device: Annotated[Device, Group.MACHINE] = "auto"
    """Where networks run; auto: CUDA if there is one. mps: a GPU of Apple's, if asked for."""

    def __post_init__(self) -> None:
        given: Any = self.agents
        if isinstance(given, str):
            object.__setattr__(self, "agents", (given,))
        super().__post_init__()
        if not self.agents:
            raise UserError("whom to watch? Name a run, a policy (such as coinrun) or random.")
        if self.out.suffix not in (".gif", ".mp4") or self.out.is_dir():
            raise UserError(f"--out {self.out} must be a file that ends in .gif or .mp4.")


def play(config: PlayConfig) -> Path:
    """Films agents on one level, as `gsf evaluate` plays it; returns the video's path.

    play(PlayConfig(("random", "run"), game="coinrun", out=Path("play.gif")))
    """
    players = _players(config)
    level = config.level
    if level is None:
        level = find_game(players[0].game)[0].first_level("unseen")
    video = Video(players, level, config)
    write = _write_mp4 if config.out.suffix == ".mp4" else _write_gif
    with _aside(config.out) as file:
        write(file, video.frames(), config.fps)
    print(f"{config.out}: {players[0].game} level {level}")
    for episode in video.episodes:
        print(f"  {episode.name}: {episode.result}")
    return config.out


def _players(config: PlayConfig) -> list[Player]:
    """In the order named. Random play has no game of its own: it plays that of the others."""
    options: dict[str, Any] = {"seed": config.seed, "dataset": config.dataset, "env": config.env}
    options |= {"device": config.device, "level": config.level or 0}
    names, game = dict.fromkeys(config.agents), config.game
    found: dict[str, Player] = {}
    for name in sorted(names, key="random".__eq__):
        steps = [config.step if is_run(name) or len(names) == 1 else None]
        player = find_players(name, game=game, steps=steps, **options)[0]
        found[name] = under_looks(player, config.looks) if config.looks else player
        game = game or player.game
    return [found[name] for name in names]


class Episode:
    """One agent's play on the level; `pictures` plays it, the rest says how it went."""

    def __init__(self, player: Player, level: int, config: PlayConfig, name: str) -> None:
        self.player, self.level, self.config = player, level, config
        self.name, self.total, self.length, self.over = name, 0.0, 0, ""

    @property
    def result(self) -> str:
        return f"return {self.total:g}, {self.over or 'cut off'} after {self.length} steps"

    def pictures(self) -> Iterator[tuple[Frame, str]]:
        """What it sees at every step, and a line about it."""
        player, config = self.player, self.config
        names = facts_of(player.game).actions
        options: dict[str, Any] = {"difficulty": player.difficulty, "threads": 0}
        at, levels = player.at(config.mode), [self.level]
        steps = rollout(player.actor, player.game, levels, at, seed=player.seed, **options)
        before, same = None, 0
        with contextlib.closing(steps):
            for step in itertools.islice(steps, config.max_steps):
                seen = step.obs[0]  # there is no observation after the last
                same = same + 1 if before is not None and np.array_equal(seen, before) else 0
                if config.still and same >= config.still:
                    self.over = "stood still"
                    break
                before = seen
                line = f"step {self.length}, return {self.total:g}, {names[step.action[0]]}"
                yield seen, line
                self.total += float(step.reward[0])
                self.length += 1
                if step.ended[0]:
                    self.over = "completed" if step.completed[0] else "ended"


class Video:
    """Episodes side by side; one that has ended keeps its last picture."""

    def __init__(self, players: Sequence[Player], level: int, config: PlayConfig) -> None:
        self.config = config
        names = [_name(player, players, config.mode) for player in players]
        both = zip(players, names, strict=True)
        self.episodes = [Episode(player, level, config, name) for player, name in both]

    def frames(self) -> Iterator[Frame]:
        shown: list[tuple[Frame, str]] = [(np.zeros((1, 1, 3), np.uint8), "")] * len(self.episodes)
        streams = [episode.pictures() for episode in self.episodes]
        for number, pictures in enumerate(itertools.zip_longest(*streams)):
            for i, (picture, episode) in enumerate(zip(pictures, self.episodes, strict=True)):
                shown[i] = picture or (shown[i][0], episode.result)
            if number % self.config.every == 0:
                yield self._frame(shown)
        last = [(shown[i][0], episode.result) for i, episode in enumerate(self.episodes)]
        for _ in range(self.config.fps):  # a second to see how it ended
            yield self._frame(last)

    def _frame(self, shown: Sequence[tuple[Frame, str]]) -> Frame:
        parts = []
        for (obs, line), episode in zip(shown, self.episodes, strict=True):
            image = in_colour(obs).repeat(self.config.scale, 0).repeat(self.config.scale, 1)
            if self.config.caption:
                width = image.shape[1]
                image = np.concatenate(
                    [_caption(episode.name, width), image, _caption(line, width)]
                )
            parts += [np.full((image.shape[0], GAP, 3), PAPER, np.uint8), image]
        return np.concatenate(parts[1:], axis=1)


def _name(player: Player, among: Sequence[Player], mode: Mode) -> str:
    if player.method == "random":
        return "random play"
    who = "behaviour policy" if player.method == "behaviour" else player.method
    alike = [other for other in among if other.method == player.method]
    who += f" seed {player.seed}" if len(alike) > 1 else ""
    at = player.at(mode)
    return f"{who}, sampled at {at:g}" if at else f"{who}, greedy"


def _caption(line: str, width: int) -> Frame:
    image = Image.new("RGB", (width, CAPTION_HEIGHT), PAPER)
    draw = ImageDraw.Draw(image)
    size = 14.0
    while size > 7 and draw.textlength(line, font=ImageFont.load_default(size)) > width - 8:
        size -= 0.5
    draw.text(
        (4, CAPTION_HEIGHT / 2), line, fill=INK, font=ImageFont.load_default(size), anchor="lm"
    )
    return np.asarray(image)


@contextlib.contextmanager
def _aside(out: Path) -> Iterator[IO[bytes]]:
    """A file to write beside `out`, which it becomes only if the whole video is written."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(out.parent, f".{out.name}.lock"))
            file = stack.enter_context(aside_of(out))
        except OSError as error:
            raise UserError(f"cannot write {out}: {error.strerror}; use another --out.") from None
        yield file


def _write_gif(file: IO[bytes], frames: Iterator[Frame], fps: int) -> None:
    octree: Any = {"method": Image.Quantize.FASTOCTREE, "dither": Image.Dither.NONE}
    images = (Image.fromarray(frame).quantize(COLOURS, **octree) for frame in frames)
    first = next(images)
    options: Any = {"append_images": images, "duration": 1000 / fps, "loop": 0}
    first.save(file, "GIF", save_all=True, **options)


def _write_mp4(file: IO[bytes], frames: Iterator[Frame], fps: int) -> None:
    # Not through imageio: Procgen pins the version of its ffmpeg plugin that no longer imports.
    try:
        import av
    except ImportError:
        raise UserError(".mp4 needs PyAV: pip install 'gsf-rl[video]', or choose .gif.") from None
    with av.open(file, "w", "mp4") as container:
        video = container.add_stream("libx264", rate=fps)
        video.pix_fmt = "yuv420p"
        for number, frame in enumerate(frames):
            if number == 0:
                video.height, video.width = frame.shape[:2]
            container.mux(video.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(video.encode())
