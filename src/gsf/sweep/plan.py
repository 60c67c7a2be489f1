"""What to run: games x methods x seeds. Names are resolved here, before anything is computed."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gsf.core.errors import UserError
from gsf.data.recording import Recording, list_shipped
from gsf.learn.methods import Method
from gsf.nets import encoders
from gsf.nets.runtime import pick_device
from gsf.suites import all_suites, known_facts, name_game
from gsf.sweep.jobs import Job
from gsf.sweep.options import RunConfig

Chosen = Mapping[tuple[str, str], tuple[str, ...]]  # (game, method) -> --set words


@dataclass(frozen=True)
class Plan:
    config: RunConfig
    recordings: dict[str, str]  # of each game
    methods: tuple[Method, ...]

    def home(self, game: str) -> Path:
        return self.config.out / game

    def job(
        self,
        game: str,
        method: Method,
        seed: int,
        out: Path,
        chosen: Sequence[str] = (),
        fixed: Sequence[str] = (),
    ) -> Job:
        """--set words in the order in which they overrule each other: chosen, given, fixed."""
        config = replace(self.config, set=(*chosen, *self.config.set, *fixed))
        return Job(game, method.spec, seed, self.home(game), out, config)

    def jobs(self, chosen: Chosen) -> list[Job]:
        """All runs, the first seed of everything first, with what tuning has chosen."""
        axes = itertools.product(range(self.config.seeds), self.recordings, self.methods)
        return [
            self.job(
                game,
                method,
                seed,
                self.home(game) / method.name / f"seed{seed}",
                chosen.get((game, method.name), ()),
            )
            for seed, game, method in axes
        ]


def resolve(config: RunConfig) -> Plan:
    """Games, recordings, methods and the options of every stage; one sentence if one is wrong."""
    methods = tuple(config.find_methods())
    for method in methods:
        config.stage("train", method, dataset=Path(), out=Path()).resolved()
    encoders.find(config.stage("fit", dataset=Path(), out=Path()).encoder)
    config.stage("label", gvf=Path(), out=Path())
    config.stage("materialise", recording="", out=Path())
    played = config.stage("evaluate", agent="")
    if not config.ray:  # a cluster has other devices than this machine
        for stage in ("fit", "train"):
            pick_device(config.stage(stage, dataset=Path(), out=Path()).device)
        pick_device(played.device)
    if config.tune and not played.n_validation:
        raise UserError("--tune needs validation levels: add evaluate.n_validation=50 to --set.")
    if config.tune and config.stage("train", dataset=Path(), out=Path()).released:
        raise UserError("--tune would undo train.released=true; leave one of them out.")
    return Plan(config, _find_recordings(config), methods)


def _find_recordings(config: RunConfig) -> dict[str, str]:
    """Game -> recording, of the games asked for."""
    given = config.recordings or tuple(p.stem for p in list_shipped() if known_facts(p.stem))
    found: dict[str, str] = {}
    for name in given:
        game = Recording.load(name).game
        if game in found:
            raise UserError(
                f"{found[game]} and {name} are both of {game}; `gsf data join` makes them one."
            )
        found[game] = name
    asked = tuple(name_game(game)[1] for game in config.games if config.games != ("all",))
    games = _all_games() if config.games == ("all",) else asked or tuple(found)
    if not games:
        raise UserError("no recordings are shipped with this build; name some with --recordings.")
    for game in games:
        if game not in found:
            raise UserError(
                f"no recording of {game} is shipped; make one with `gsf collect --game {game}` "
                "and name it with --recordings."
            )
    return {game: found[game] for game in games}


def _all_games() -> tuple[str, ...]:
    """Those that can be recorded, of all suites."""
    return tuple(game for suite in all_suites() if suite.replays_with for game in suite.games)
