"""Which rows fit a protocol, and whether the runs they are of kept to it.

Closed: all that the protocol fixes is as it says. Open: the rows are of its levels, but another
recording, network or budget was used, or nobody can tell; they are listed apart. Rows of another
protocol, of other levels, or changed by hand are refused.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gsf.benchmark import catalogue
from gsf.benchmark.catalogue import Protocol
from gsf.core.errors import UserError
from gsf.core.logs import console
from gsf.core.results import find_stages
from gsf.core.sealed import is_sealed
from gsf.core.stage import MANIFEST, read_any_manifest
from gsf.evaluation.rows import IDENTITY, REFERENCES, TYPES, check_rows, read_rows, read_table
from gsf.evaluation.splits import Split, split_levels
from gsf.nets.acting import mode_at

PROTOCOL, TRACK = "protocol", "track"  # columns beside those of all rows
CLOSED, OPEN = "closed", "open"
SPLITS: tuple[Split, ...] = ("seen", "unseen")
UNKNOWN = "unknown"  # who played, where rows do not say it
RUN = ["game", "method", "seed"]
OURS = [*TYPES, PROTOCOL, TRACK]


def temperatures(protocol: Protocol) -> dict[str, float]:
    """Game -> the temperature at which the shipped rows were played; none where none are."""
    rows = shipped(protocol)
    trained = rows[~rows["method"].isin(REFERENCES)]
    played = trained.groupby("game", observed=True)["temperature"].first()
    return {str(game): float(x) for game, x in played.items()}


def at_its_temperature(rows: pd.DataFrame, protocol: Protocol) -> pd.DataFrame:
    """Rows of an entrant that played at another temperature than the baselines are open."""
    if not (known := temperatures(protocol)):
        return rows
    other = rows["temperature"] != rows["game"].map(known)
    return rows.assign(**{TRACK: rows[TRACK].mask(other, OPEN)})


def gather_rows(
    home: Path, protocol: Protocol, references: bool, splits: Sequence[Split] = SPLITS
) -> pd.DataFrame:
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
            why = difference(stage.path, protocol) if is_run else None
            if why:
                console.print(f"[yellow]{stage.path} is open: {why}.[/]", soft_wrap=True)
            track = OPEN if why else CLOSED
            parts.append(rows.assign(**{PROTOCOL: protocol.digest, TRACK: track}))
    if not parts or not len(rows := _measured(pd.concat(parts), protocol, splits)):
        raise UserError(f"{home} has no rows of {protocol.name} yet.")
    return rows.sort_values(["game", "method", "seed", "split", "level"], ignore_index=True)[OURS]


def _measured(rows: pd.DataFrame, protocol: Protocol, splits: Sequence[Split]) -> pd.DataFrame:
    """Those of some splits in the protocol's mode; an entrant was told a temperature,
    so that its mode has another name."""
    known = temperatures(protocol)
    told = [mode_at(known[game]) if game in known else "" for game in rows["game"]]
    mode = protocol.measure["mode"]
    mine = rows[((rows["mode"] == mode) | (rows["mode"] == told)) & rows["split"].isin(splits)]
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
    if not protocol.is_draft and dataset.get("inputs", {}).get("recording") != recording:
        return "it learnt from another recording"
    if dataset.get("digest") != manifest.get("inputs", {}).get("dataset"):
        return "its dataset is another one now"
    made = dataset.get("options", {})
    for name, value in protocol.said["materialise"].items():
        if made.get(name) != value:
            return f"materialise.{name} is {made.get(name)}, not {value}"
    labels = Path(str(config.get("labels")))
    if (labels / MANIFEST).is_file() and manifest.get("method") not in protocol.methods:
        source = read_any_manifest(labels).get("options", {}).get("source")
        if source != protocol.said["label"]["source"]:
            return f"label.source is {source}, not {protocol.said['label']['source']}"
    return None


def read_benchmark(path: Path, protocol: Protocol) -> pd.DataFrame:
    """Rows of the protocol, checked; a UserError says in one sentence what does not fit."""
    raw = read_table(path)
    rows = check_rows(raw, str(path)).assign(**{IDENTITY: raw.get(IDENTITY, UNKNOWN)})
    if PROTOCOL not in raw:  # of `gsf evaluate`: anyone's own agent
        rows = rows.assign(**{PROTOCOL: protocol.digest, TRACK: OPEN})
    else:
        if path.suffix == ".parquet" or not is_sealed(path):
            raise UserError(f"{path} has no checksums: the benchmark takes rows as gsf wrote them.")
        if strange := sorted(set(raw[PROTOCOL].astype(str)) - {protocol.digest}):
            raise UserError(
                f"{path} was run under a protocol with digest {strange[0]}, {protocol.name} here "
                f"has {protocol.digest}: results of two protocols cannot be compared."
            )
        if strange := sorted(set(raw[TRACK].astype(str)) - {CLOSED, OPEN}):
            raise UserError(f"{path}: {TRACK} {strange[0]!r} is neither {CLOSED} nor {OPEN}.")
        rows = rows.assign(**{PROTOCOL: raw[PROTOCOL], TRACK: raw[TRACK]})
    rows = rows[(rows["mode"] == protocol.measure["mode"]) & rows["split"].isin(SPLITS)]
    rows = rows.astype({"game": str, "method": str, "split": str, "mode": str})
    _check_runs(path, rows, protocol)
    return rows.reset_index(drop=True)


def find_protocol(path: Path, name: str | None = None) -> Protocol:
    """The one whose digest stands in the rows, or the one that is named."""
    if name is not None:
        return catalogue.find(name)
    raw = read_table(path)
    if PROTOCOL not in raw:
        raise UserError(f"{path} says no protocol; name it: --protocol {catalogue.names()[0]}.")
    known = {protocol.digest: protocol for protocol in map(catalogue.find, catalogue.names())}
    found = str(raw[PROTOCOL].iloc[0]) if len(raw) else "none"
    if found not in known:
        have = ", ".join(f"{x.name} {digest}" for digest, x in known.items())
        raise UserError(
            f"{path} was run under a protocol with digest {found}, which this gsf does not have "
            f"({have}): it is of another version, or the protocol was changed."
        )
    return known[found]


def shipped(protocol: Protocol) -> pd.DataFrame:
    """The baselines' rows that come with gsf; none if there are none yet."""
    if not protocol.rows.is_file():
        return pd.DataFrame(columns=OURS)
    return read_benchmark(protocol.rows, protocol)


def check_levels(path: Path, rows: pd.DataFrame, protocol: Protocol) -> None:
    """Refuses runs that did not play exactly the protocol's levels."""
    base = shipped(protocol)
    split: Any = protocol.measure["split"]
    for (game, method, seed), run in rows[rows["split"] == split].groupby(RUN):
        of_game = base[(base["game"] == game) & (base["split"] == split)]
        n = int(protocol.said["evaluate"][f"n_{split}"])
        wanted = set(of_game["level"] if len(of_game) else split_levels(str(game), split, n))
        if set(run["level"]) != wanted:
            there = len(set(run["level"]) & wanted)
            raise UserError(
                f"{path}: {game}/{method}/seed{seed} has {there} of the {len(wanted)} {split} "
                f"levels of {protocol.name}, and {len(run) - there} others; all of them are played."
            )


def _check_runs(path: Path, rows: pd.DataFrame, protocol: Protocol) -> None:
    if not len(rows):
        mode = protocol.measure["mode"]
        raise UserError(f"{path} has no {mode} rows of seen or unseen levels.")
    if strange := sorted(set(rows["game"]) - set(protocol.games)):
        raise UserError(f"{path} has rows of {strange[0]}, which is no game of {protocol.name}.")
    trained = rows[~rows["method"].isin(REFERENCES)]
    if len(wrong := trained[trained["seed"] >= protocol.seeds]):
        seed = wrong["seed"].iloc[0]
        raise UserError(
            f"{path} has seed {seed}; those of {protocol.name} are 0 to {protocol.seeds - 1}, so "
            "that nobody chooses the best of many."
        )
    agents = trained[[*RUN, IDENTITY]].drop_duplicates()
    if len(twice := agents[agents.duplicated(RUN)]):
        game, method, seed, _ = twice.iloc[0]
        raise UserError(f"{path}: several agents played as {game}/{method}/seed{seed}.")
    known = agents[agents[IDENTITY] != UNKNOWN]
    if len(twice := known[known.duplicated(["game", IDENTITY], keep=False)]):
        first, second = (f"{m}/seed{s}" for m, s in twice[["method", "seed"]].to_numpy()[:2])
        raise UserError(
            f"{path}: {first} and {second} are one and the same agent; every agent plays the test "
            "levels once."
        )
