"""Which rows fit a protocol, and whether the runs they are of kept to it.

Closed: all that the protocol fixes is as it says. Open: the rows are of its levels, but another
recording, network or budget was used, or nobody can tell; they are listed apart. Rows of another
protocol, of other levels, or changed by hand are refused.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from gsf.benchmark.catalogue import Protocol
from gsf.core.errors import UserError
from gsf.core.results import find_stages
from gsf.core.sealed import KEY, write_table
from gsf.core.stage import MANIFEST, read_any_manifest
from gsf.evaluation.rows import IDENTITY, REFERENCES, TYPES, check_rows, read_rows, read_table
from gsf.nets.acting import mode_at

PROTOCOL, TRACK = "protocol", "track"  # columns beside those of all rows
CLOSED, OPEN = "closed", "open"
SPLITS = ("seen", "unseen")
OURS = [*TYPES, PROTOCOL, TRACK]


def temperatures(protocol: Protocol) -> dict[str, float]:
    """Game -> the temperature at which the shipped rows were played; none where none are."""
    if not protocol.rows.is_file():
        return {}
    rows = read_benchmark(protocol.rows, protocol)
    trained = rows[~rows["method"].isin(REFERENCES)]
    played = trained.groupby("game", observed=True)["temperature"].first()
    return {str(game): float(x) for game, x in played.items()}


def gather_rows(home: Path, protocol: Protocol, references: bool) -> pd.DataFrame:
    """Of all runs below a directory: rows at the last step, each with the protocol's digest."""
    parts = []
    for stage in find_stages([home]):
        is_run = stage.kind == "run"
        if (is_run or (references and stage.kind == "rows")) and (
            stage.path / "returns.csv"
        ).is_file():
            rows = read_rows(stage.path / "returns.csv")
            if is_run:
                rows = rows[rows["step"] == protocol.said["train"]["grad_steps"]]
            track = OPEN if is_run and difference(stage.path, protocol) else CLOSED
            parts.append(rows.assign(**{PROTOCOL: protocol.digest, TRACK: track}))
    if not parts or not len(rows := _measured(pd.concat(parts), protocol)):
        raise UserError(f"{home} has no rows of {protocol.name} yet.")
    return rows.sort_values(["game", "method", "seed", "split", "level"], ignore_index=True)[OURS]


def _measured(rows: pd.DataFrame, protocol: Protocol) -> pd.DataFrame:
    """Those of seen and unseen levels in the protocol's mode; an entrant was told a temperature,
    so that its mode has another name."""
    known = temperatures(protocol)
    told = [mode_at(known[game]) if game in known else "" for game in rows["game"]]
    mode = protocol.measure["mode"]
    mine = rows[((rows["mode"] == mode) | (rows["mode"] == told)) & rows["split"].isin(SPLITS)]
    keys = ["game", "method", "seed", "split", "level"]
    return mine.assign(mode=mode).drop_duplicates(keys)


def difference(run: Path, protocol: Protocol) -> str | None:
    """The first thing in which a run did not keep to the protocol; None: it did."""
    manifest = read_any_manifest(run)
    options, config = manifest.get("options", {}), manifest.get("config", {})
    fixed = {name.partition(".")[2] for name in protocol.said["fixed"]}
    for name in sorted(fixed):
        if options.get(name) != protocol.said["train"][name]:
            return f"train.{name} is {options.get(name)}, not {protocol.said['train'][name]}"
    data = Path(str(config.get("dataset")))
    if not (data / MANIFEST).is_file():
        return "its dataset is not at hand"
    dataset = read_any_manifest(data)
    game = manifest.get("game")
    recording = protocol.said["recordings"].get(game, {}).get("digest")
    if dataset.get("inputs", {}).get("recording") != recording:
        return "it learnt from another recording"
    if dataset.get("digest") != manifest.get("inputs", {}).get("dataset"):
        return "its dataset is another one now"
    made = dataset.get("options", {})
    for name, value in protocol.said["materialise"].items():
        if made.get(name) != value:
            return f"materialise.{name} is {made.get(name)}, not {value}"
    return None


def write_rows(path: Path, rows: pd.DataFrame) -> None:
    write_table(path, rows)


def read_benchmark(path: Path, protocol: Protocol) -> pd.DataFrame:
    """Rows of the protocol, checked; a UserError says in one sentence what does not fit."""
    raw = read_table(path)
    rows = check_rows(raw, str(path))
    facts: dict[str, Any] = {IDENTITY: raw.get(IDENTITY, "unknown")}
    if PROTOCOL not in raw:  # of `gsf evaluate`: anyone's own agent
        return rows.assign(**facts, **{PROTOCOL: protocol.digest, TRACK: OPEN})
    if KEY not in raw:
        raise UserError(f"{path} has no checksums: rows of the benchmark are as gsf wrote them.")
    if strange := sorted(set(raw[PROTOCOL]) - {protocol.digest}):
        raise UserError(
            f"{path} is of a protocol with digest {strange[0]}, not of {protocol.name} "
            f"({protocol.digest}): what was run under another protocol cannot be compared."
        )
    return rows.assign(**facts, **{PROTOCOL: raw[PROTOCOL], TRACK: raw[TRACK]})
