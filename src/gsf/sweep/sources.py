"""What runs learn from: recordings, whose datasets are made here, and datasets as they are.

Names are resolved, and environments looked at, before anything is computed.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gsf.core.errors import UserError
from gsf.data.format import read_facts
from gsf.data.recording import Recording
from gsf.data.tiers import recorded_policies
from gsf.evaluation.held_out_rows import check_held_out
from gsf.evaluation.players import UserEnv, can_play, check_fits
from gsf.suites import all_suites, name_game
from gsf.suites.gymnasium import code_of
from gsf.sweep.options import RunConfig


@dataclass(frozen=True)
class Source:
    """A recording, whose dataset is made in the source's directory, or a dataset."""

    name: str  # the recording's game, or the dataset's own name
    recording: str | None = None
    dataset: Path | None = None
    validation: Path | None = None  # data of other contexts, to choose settings by
    env: str | None = None  # the user's environment to play in, if no suite has the game
    played: bool = True  # whether agents can be played at all
    held_out: Path | None = None  # data of other contexts to judge agents by

    @property
    def folder(self) -> str:
        """Name of its directory in --out; its own name comes from data and may hold anything."""
        return re.sub(r"[^\w.-]+", "-", self.name).strip("-.") or "data"

    def __str__(self) -> str:
        return self.recording or str(self.dataset)


def find_sources(config: RunConfig) -> dict[str, Source]:
    """All sources by name, in the order given, checked."""
    sources = [*_recordings(config), *(_dataset(path, config) for path in config.datasets)]
    found: dict[str, Source] = {}
    folders: dict[str, Source] = {}
    for source in sources:
        if other := folders.get(source.folder):
            both = other.recording and source.recording
            advice = "`gsf data join` makes them one" if both else "sweep them one by one"
            raise UserError(f"{other} and {source} are both of {source.name}; {advice}.")
        found[source.name] = folders[source.folder] = source
    for path in config.held_out:
        facts = read_facts(path)
        if facts["name"] not in found:
            names = ", ".join(found)
            raise UserError(f"--held-out {path} is of {facts['name']}; there are runs of {names}.")
        source = found[facts["name"]]
        if source.held_out:
            raise UserError(f"{source.held_out} and {path} are both held out of {source.name}.")
        if source.dataset:
            check_held_out(str(source), read_facts(source.dataset), path, facts)
        found[source.name] = replace(source, held_out=path)
    return found


def _dataset(path: Path, config: RunConfig) -> Source:
    facts, env = read_facts(path), config.env
    source = Source(facts["name"], dataset=path, validation=_validation(path, facts, config))
    if can_play(facts) or env is None:
        return replace(source, played=can_play(facts))
    check_fits(str(path), facts, env, UserEnv(env, 0).host(facts["name"]))
    return replace(source, env=env)


def _validation(path: Path, trained: Mapping[str, Any], config: RunConfig) -> Path | None:
    """The --validation dataset of the same name, which must share no context with training."""
    found = [(p, f) for p in config.validation if (f := read_facts(p))["name"] == trained["name"]]
    for validation, facts in found:
        if shared := [level for level in facts["levels"] if level in trained["levels"]]:
            raise UserError(f"{validation} shares context {shared[0]!r} with {path}; use another.")
    if len(found) > 1:
        raise UserError(f"{found[0][0]} and {found[1][0]} are both of {trained['name']}; give one.")
    return found[0][0] if found else None


def _recordings(config: RunConfig) -> Iterable[Source]:
    """Those that were named; the shipped ones if no dataset was named either. Only of --games."""
    if config.datasets and not config.recordings:
        return ()
    given = config.recordings or tuple(recorded_policies())
    found = [_recording(name, config.env) for name in given]
    if config.datasets:
        return found
    games = tuple(source.name for source in found)
    if config.games == ("all",):
        games = _all_games()
    elif config.games:
        games = tuple(name_game(game)[1] for game in config.games)
    if not games:
        raise UserError("no recordings are shipped with this build; name some with --recordings.")
    for game in games:
        if game not in {source.name for source in found}:
            raise UserError(
                f"no recording of {game} is shipped; make one with `gsf collect --game {game}` "
                "and name it with --recordings."
            )
    return [source for game in games for source in found if source.name == game]


def _recording(name: str, env: str | None) -> Source:
    recording = Recording.load(name)
    if recording.env is None:
        return Source(recording.game, recording=name)
    if env is None:
        raise UserError(f"{name} is play in {recording.env['spec']}; name it with --env.")
    check_fits(name, recording.env, env, UserEnv(env, recording.levels[0]).host(recording.game))
    if code_of(recording.game) != recording.env["code"]:
        raise UserError(f"{env} is not as it was when {name} was recorded; record it again.")
    return Source(recording.game, recording=name, env=env)


def _all_games() -> tuple[str, ...]:
    """The games of all installed suites that can be recorded, but for those that must be named."""
    suites = [x for x in all_suites() if x.replays_with and not x.named and not x.on_request]
    return tuple(game for suite in suites for game in suite.games)
