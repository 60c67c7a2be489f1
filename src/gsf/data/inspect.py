"""`gsf data`: look at recordings and datasets, cut and join recordings."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from gsf.core.errors import UserError
from gsf.core.files import locked
from gsf.core.logs import console, progress
from gsf.core.options import Count, Options, Some
from gsf.data.cards import card_of, markdown, mean_return, one_of, share_of_the_way
from gsf.data.format import read_facts
from gsf.data.recording import Recording, concatenate
from gsf.data.replay import Replay
from gsf.data.tiers import find_recording, list_shipped
from gsf.suites import LEAST_WAY, find_game, known_facts


@dataclass(frozen=True)
class ListConfig(Options):
    """List the recordings that come with gsf."""

    cards: bool = False
    """Print a card of each instead, as Markdown: player, return, levels, digest, licence ..."""


@dataclass(frozen=True)
class InfoConfig(Options):
    """Show what a recording or a dataset holds and where it came from."""

    path: tyro.conf.Positional[str]
    """A recording file, the name of a shipped one, or a dataset directory."""


@dataclass(frozen=True)
class CutConfig(Options):
    """Cut a recording to its first env slots over its whole time, and verify the cut."""

    recording: tyro.conf.Positional[str]
    """A recording file, or the name of a shipped one."""
    transitions: Count
    """At least so many are kept: whole slots."""
    out: Path
    """The recording to write."""


@dataclass(frozen=True)
class JoinConfig(Options):
    """Join recordings of one game into one, take after take."""

    recordings: Annotated[tyro.conf.Positional[tuple[str, ...]], Some()]
    """Recording files or names of shipped ones."""
    out: Path
    """The recording to write."""


def list_data(config: ListConfig) -> None:
    if config.cards:
        for path in list_shipped():
            print(markdown(path.stem, card_of(path.stem, Recording.load(path))))
        return
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in ("name", "tier", "rows", "levels", "return", "way", "player", "nats"):
        left = column in ("name", "tier")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    weak = []
    for path in list_shipped():
        recording = Recording.load(path)
        card = card_of(path.stem, recording)
        first = {name: "-" if x == "unknown" else x.split()[0] for name, x in card.items()}
        players = one_of(_player(take.policy) for take in recording.takes)
        shown = (first[name] for name in ("tier", "transitions", "levels", "return", "way"))
        table.add_row(path.stem, *shown, players, first["entropy"])
        way = share_of_the_way(recording.game, mean_return(recording), recording.levels)
        if way is not None and way < LEAST_WAY:
            weak.append(path.stem)
    if not table.row_count:
        print("no recordings are shipped with this build.")
        return
    console = Console()
    console.print(table)
    console.print(
        "tier: who plays, a policy, an early one (weak), or a player that knows the future "
        "(planned); ...-validation is play on other levels; return: mean of the whole episodes "
        "recorded (in a short recording long ones are cut off, and do not count); way: how far "
        "that is from random play to PPO after 25M frames as published, on seen levels; player: "
        "frames a policy has learnt from; nats: entropy of the policy, where known. More: "
        "gsf data info NAME, gsf data list --cards.",
        soft_wrap=True,
    )
    if weak:
        console.print(
            f"Below {LEAST_WAY:.0%} of the way, so near to random play that they can hardly tell "
            f"methods apart: {', '.join(weak)}.",
            soft_wrap=True,
        )


def info(config: InfoConfig) -> None:
    if Path(config.path).is_dir():
        facts = _describe_dataset(Path(config.path))
    else:
        recording = Recording.load(config.path)
        size = find_recording(config.path).stat().st_size
        stored = f"{size:,} bytes, {size / len(recording):.3f} a transition"
        card = card_of(config.path, recording)
        facts = {"recording": config.path, **card, **_details(recording), "file": stored}
    for name, value in facts.items():
        print(f"{name:12} {value}")


def _details(recording: Recording) -> dict[str, Any]:
    """What is not on its card, or is longer here."""
    takes = recording.takes
    returns = [take.returns for take in takes if take.returns]
    episodes = int(sum(r["episodes"] or 0 for r in returns))
    return {
        "known": _known(recording),
        "transitions": f"{len(recording):,} = "
        + " + ".join(f"{take.n_steps:,} steps x {take.n_envs} envs" for take in takes),
        "episodes": f"{episodes:,}" if returns else "unknown until replayed",
        "policy": "; ".join(_words(take.policy) for take in takes),
        "seed": ", ".join(str(take.seed) for take in takes),
    }


def _player(policy: dict[str, Any]) -> str:
    frames = policy.get("frames")
    return f"{frames / 1e6:.1f}M" if frames else str(policy.get("algorithm", "unknown"))


def _words(facts: dict[str, Any]) -> str:
    shown = {k: v for k, v in facts.items() if not isinstance(v, dict | list)}
    return " ".join(f"{k}={v}" for k, v in shown.items()) or "unknown"


def _describe_dataset(path: Path) -> dict[str, Any]:
    manifest = read_facts(path)
    shown = ("name", "n", "n_frames", "obs_shape", "episodes", "mean_return")
    levels = manifest["levels"]
    return (
        {"dataset": path}
        | {name: manifest.get(name) for name in shown}
        | {
            "actions": _actions(manifest),
            "levels": f"{len(levels)} ({levels[0]}..{levels[-1]})",
            "made of": manifest["inputs"],
            "pixels match": manifest.get("pixels_match", "not from a recording"),
            "digest": manifest["digest"],
        }
    )


def _known(recording: Recording) -> str:
    """What is known of its game without playing it."""
    if env := recording.env:
        return f"{env['n_actions']} actions; play in {env['spec']} (digest {env['code']})"
    suite, game = find_game(recording.game)
    facts = suite.games[game]
    known = f"{len(facts.actions)} actions, {len(facts.distinct_actions)} of them distinct"
    if facts.published is not None:
        seen, unseen = facts.published
        known += f"; published {suite.published_by}: {seen} seen, {unseen} unseen"
    return known


def _actions(manifest: dict[str, Any]) -> str:
    """How many there are, how many of them differ, and which of the suite's they are."""
    ids, facts = manifest.get("actions"), known_facts(manifest["name"])
    if ids is None or facts is None:
        return str(manifest["n_actions"])
    distinct = len(set(facts.action_classes[ids].tolist()))
    named = ", ".join(facts.actions[i] for i in ids)
    return f"{len(ids)}, {distinct} of them distinct, of the suite's {len(facts.actions)}: {named}"


def verify_recording(recording: Recording, threads: int | None = None) -> int:
    """Replays all of it; returns how many pixel checksums differ."""
    return sum(replay.pixel_mismatches for replay in _replayed(recording, threads))


def _replayed(recording: Recording, threads: int | None = None) -> list[Replay]:
    replays, done = [], 0
    with progress(f"replay {recording.game}", len(recording), "frames") as advance:
        for take in recording.takes:
            replay = Replay(recording, take, threads)
            for block in replay:
                done += block.action.size
                advance(done)
            replays.append(replay)
    return replays


def cut(config: CutConfig) -> None:
    part = Recording.load(config.recording).cut(config.transitions)
    if config.out.is_dir():  # now, not when everything has been replayed
        raise UserError(f"--out {config.out} is a directory; name a file.")
    replays = _replayed(part)  # also finds the returns of what is left
    takes = (replace(t, returns=r.returns) for t, r in zip(part.takes, replays, strict=True))
    _save_new(replace(part, takes=tuple(takes)), config.out)


def join(config: JoinConfig) -> None:
    _save_new(concatenate([Recording.load(name) for name in config.recordings]), config.out)


def _save_new(recording: Recording, out: Path) -> None:
    with locked(out.parent, f".{out.name}.lock"):
        if out.is_file() and Recording.load(out).digest == recording.digest:
            console.print(f"{out} is there already.", soft_wrap=True)
            return
        if out.exists():
            raise UserError(f"{out} exists already; remove it or choose another --out.")
        recording.save(out)
    console.print(f"{len(recording):,} transitions of {recording.game} in {out}.")
