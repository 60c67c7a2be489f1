"""Protocols: what an entry of the benchmark may not choose, files in protocols/, and their digests.

The digest is of all that a protocol says but `about`, `cost` and `draft`. It stands in every row.
A draft is still to be frozen: its digest may change (tests/benchmark/freeze.py).
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsf.core.errors import UserError, did_you_mean
from gsf.core.files import digest
from gsf.core.schema import DIGEST, NUMBER, POSITIVE, TEXT, Form, Maybe, misfit
from gsf.data.recording import Recording

HOME = Path(__file__).parent
PROTOCOLS, ROWS = HOME / "protocols", HOME / "rows"
STAGES = ("materialise", "fit", "label", "train", "evaluate")
UNDIGESTED = ("about", "cost", "draft")
_OPTIONS = {str: (bool, NUMBER, TEXT)}
_FORM: Form = {
    "name": TEXT,
    "about": TEXT,
    "cost": TEXT,
    "draft": Maybe(bool),
    "preset": TEXT,
    "seeds": POSITIVE,
    "methods": [TEXT],
    "compare": [TEXT],
    "fixed": [TEXT],
    "measure": {"split": TEXT, "mode": TEXT, "statistic": TEXT, "temperature": TEXT},
    "recordings": {str: {"name": TEXT, "digest": DIGEST}},
    **dict.fromkeys(STAGES, _OPTIONS),
}


@dataclass(frozen=True)
class Protocol:
    """What a file of protocols/ says."""

    said: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.said["name"])

    @property
    def is_draft(self) -> bool:
        return bool(self.said.get("draft"))

    @property
    def digest(self) -> str:
        decides = {key: x for key, x in self.said.items() if key not in UNDIGESTED}
        return digest(json.dumps(decides, sort_keys=True))

    @property
    def games(self) -> tuple[str, ...]:
        return tuple(self.said["recordings"])

    @property
    def seeds(self) -> int:
        return int(self.said["seeds"])

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(self.said["methods"])

    @property
    def measure(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.said["measure"]
        return found

    @property
    def options(self) -> dict[str, Any]:
        """Of all stages, as `gsf run` takes them: train.batch ..."""
        stages = ((stage, self.said[stage]) for stage in STAGES)
        return {f"{stage}.{name}": x for stage, its in stages for name, x in its.items()}

    @property
    def rows(self) -> Path:
        """The baselines' rows that come with gsf."""
        return ROWS / f"{self.name}.csv.gz"

    def check_recordings(self, games: tuple[str, ...]) -> None:
        """Refuses recordings that are not those the protocol fixes. A draft has yet to fix them."""
        for game in () if self.is_draft else games:
            fixed = self.said["recordings"][game]
            found = Recording.load(fixed["name"]).digest
            if found != fixed["digest"]:
                raise UserError(
                    f"{self.name} fixes recording {fixed['name']} with digest {fixed['digest']}; "
                    f"the one here has {found}: use the gsf that the protocol came with."
                )


def names() -> list[str]:
    return sorted(path.stem for path in PROTOCOLS.glob("*.toml"))


def find(name: str) -> Protocol:
    path = PROTOCOLS / f"{name}.toml"
    if name not in names():
        meant = did_you_mean(name, names())
        raise UserError(f"no protocol is called {name}; {meant}there are {', '.join(names())}.")
    return read(path)


def read(path: Path) -> Protocol:
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not TOML ({error}).") from None
    if wrong := misfit(said, _FORM):
        raise UserError(f"{path} is no protocol: {wrong}.")
    return Protocol(said)
