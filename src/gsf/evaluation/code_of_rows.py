"""With which of gsf's code rows were made, beside their file: ROWS.code.json.

Of each player whose rows are in the file, the digests of the code that decided them: of the agent,
of play, and of the suite. Rows without such a note, of an older gsf or copied alone, are trusted.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gsf.core.code import decided_by
from gsf.core.errors import UserError
from gsf.core.files import digest
from gsf.core.logs import console
from gsf.core.registry import SOURCE
from gsf.core.schema import DIGEST
from gsf.core.sealed import read_json, write_json
from gsf.suites import find_game
from gsf.suites.looks import inside

_FORM = {str: {str: DIGEST}}
Code = Mapping[str, str]


def code_of_play(game: str, players: Sequence[str]) -> Code:
    """File -> digest, for all that decides how these modules' agents do in a game."""
    suites = {find_game(name)[0].make_env.__module__ for name in (game, inside(game))}
    own = {name: getattr(sys.modules[name], SOURCE, None) for name in suites}  # users' files
    named = {name.rpartition("_")[0]: digest(source) for name, source in own.items() if source}
    return {**named, **decided_by("gsf.evaluation.episodes", *suites, *players)}


def code_of_encoder(facts: Mapping[str, Any], digest: str | None) -> str:
    """The module of the encoder that a run's or a policy's manifest names."""
    from gsf.nets.encoders import find_again  # late: help needs no torch

    return find_again(facts["encoder"], digest).value.build.__module__


def check_code(rows: Path, code: Mapping[str, Code], any_code: bool) -> None:
    """Refuses to go on with rows that edited code has made. `code`: of each player with rows."""
    noted = _read(rows)
    for player, now in code.items():
        made_of = noted.get(player, {})
        edited = [file for file in sorted(made_of) if now.get(file) != made_of[file]]
        if edited and not any_code:
            raise UserError(
                f"{rows} has rows made before {edited[0]} was edited; remove it, choose another "
                "--out, or add --accept-code-change to keep them and go on."
            )


def note_code(rows: Path, code: Mapping[str, Code]) -> None:
    """Notes what the rows of these players are made with from now on."""
    known = _read(rows)
    if (noted := {**known, **code}) != known:
        try:
            write_json(_note(rows), {player: dict(noted[player]) for player in sorted(noted)})
        except OSError as error:  # the folder is somebody else's
            console.print(
                f"[yellow]cannot write {_note(rows)}: {error.strerror}.[/]", soft_wrap=True
            )


def _note(rows: Path) -> Path:
    return rows.with_name(f"{rows.name}.code.json")


def _read(rows: Path) -> dict[str, dict[str, str]]:
    return read_json(_note(rows), _FORM) if _note(rows).is_file() else {}
