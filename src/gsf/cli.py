"""The verbs. Each is one function of one module, its options a frozen dataclass.

Bad input ends in one sentence and exit code 2, an interrupt in 130, a reader that has gone away
(`| head -1`) quietly in 141; only bugs show a traceback, headed by a sentence if they are in a
user's file.
"""

import importlib
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape

from gsf.core import registry
from gsf.core.command_line import as_file, parse, take_option
from gsf.core.cores import be_a_good_neighbour
from gsf.core.errors import (
    FoundWrongError,
    UserError,
    did_you_mean,
    is_closed_pipe,
    is_out_of_memory,
)
from gsf.core.files import check_place
from gsf.core.interrupts import interruptible
from gsf.core.logs import console
from gsf.core.stage import MANIFEST
from gsf.core.version import __version__


@dataclass(frozen=True)
class Verb:
    module: str
    function: str
    config: str
    help: str
    options: str = ""  # the module that has the config, if it is not the function's


VERBS = {
    "run": Verb(
        "sweep.run", "run", "RunConfig", "everything for games x methods x seeds, resumable"
    ),
    "collect": Verb(
        "behaviour.collect", "collect", "CollectConfig", "train PPO on a game, record its play"
    ),
    "materialise": Verb(
        "data.materialise",
        "materialise",
        "MaterialiseConfig",
        "recording -> pixels on disk, verified",
    ),
    "fit": Verb(
        "gvf.fit", "fit", "FitConfig", "dataset + cumulant -> per-level GVFs", "gvf.options"
    ),
    "label": Verb(
        "gvf.label", "label", "LabelConfig", "GVFs -> per-level quantile labels", "gvf.options"
    ),
    "train": Verb("learn.train", "train", "TrainConfig", "dataset + labels + method -> agent"),
    "evaluate": Verb(
        "evaluation.evaluate", "evaluate", "EvaluateConfig", "agent -> returns per level"
    ),
    "report": Verb(
        "reporting.report", "report", "ReportConfig", "runs -> tables, figures, report.html"
    ),
    "play": Verb("evaluation.video", "play", "PlayConfig", "an agent on one level -> video"),
    "probe": Verb(
        "studies.probe", "probe", "ProbeConfig", "what embeddings know on held-out levels"
    ),
    "similar": Verb("studies.similar", "similar", "SimilarConfig", "the paper's motivating figure"),
    "check": Verb(
        "learn.check",
        "check",
        "CheckConfig",
        "code of your own -> what is wrong with it",
    ),
    "verify": Verb(
        "reporting.verify", "verify", "VerifyConfig", "anything gsf made -> what is damaged in it"
    ),
    "data list": Verb("data.inspect", "list_data", "ListConfig", "the recordings that are shipped"),
    "data info": Verb("data.inspect", "info", "InfoConfig", "what a recording or dataset holds"),
    "data cut": Verb("data.inspect", "cut", "CutConfig", "a smaller recording over the same time"),
    "data join": Verb(
        "data.inspect", "join", "JoinConfig", "recordings of one game -> one recording"
    ),
    "data import": Verb(
        "data.importers", "import_data", "ImportConfig", "Minari, npz, Parquet -> dataset"
    ),
    "data export": Verb(
        "data.importers", "export_data", "ExportConfig", "dataset -> Minari or Parquet"
    ),
    "data levels": Verb(
        "studies.repeats", "levels", "LevelsConfig", "how often a game's levels repeat each other"
    ),
    "benchmark list": Verb(
        "benchmark.show", "list_protocols", "ProtocolsConfig", "the protocols anyone can enter"
    ),
    "benchmark show": Verb("benchmark.show", "show", "ShowConfig", "all that a protocol fixes"),
    "benchmark run": Verb(
        "benchmark.run", "enter", "EnterConfig", "methods of yours under a protocol -> rows"
    ),
    "benchmark report": Verb(
        "benchmark.report", "report", "BesideConfig", "rows of yours beside the baselines'"
    ),
    "benchmark verify": Verb(
        "benchmark.verify", "verify", "AgainConfig", "an entry -> a tenth of it, played again"
    ),
    "benchmark leaderboard": Verb(
        "benchmark.leaderboard", "leaderboard", "BoardConfig", "entries -> the page of all of them"
    ),
    "bench data": Verb("bench.data", "bench_data", "BenchDataConfig", "speed of the data path"),
    "bench train": Verb(
        "bench.train", "bench_train", "BenchTrainConfig", "speed of one training step"
    ),
    "bench collect": Verb(
        "bench.collect", "bench_collect", "BenchCollectConfig", "speed of PPO, by frames"
    ),
    "bench shared": Verb(
        "bench.shared", "bench_shared", "BenchSharedConfig", "speed beside a busy process"
    ),
    "bench cost": Verb(
        "bench.cost", "bench_cost", "BenchCostConfig", "hours and money of a preset, estimated"
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    try:
        try:
            return _main(argv)
        finally:
            sys.stdout.flush()  # not at the very end, where nobody hears of a closed pipe
    except (BrokenPipeError, SystemExit) as error:
        if not is_closed_pipe(error):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13  # as whatever SIGPIPE ends


def _main(argv: Sequence[str] | None) -> int:
    be_a_good_neighbour()  # before a verb loads torch
    try:
        with interruptible():
            return _dispatch(list(sys.argv[1:] if argv is None else argv))
    except FoundWrongError:
        return 1
    except UserError as error:
        return _fail(str(error), 2)
    except KeyboardInterrupt as stopped:
        kept = str(stopped) or "what was finished or saved before is kept"
        return _fail(f"{kept}; the same command goes on from there.", 130, "interrupted")
    except BrokenPipeError:
        raise
    except Exception as error:
        return _unforeseen(error)


def _unforeseen(error: Exception) -> int:
    if is_out_of_memory(error):
        return _fail("not enough memory; choose smaller sizes, such as a smaller --batch.", 2)
    if isinstance(error, OSError) and not registry.users_line(error):
        where = f" ({error.filename})" if error.filename else ""
        return _fail(f"{error.strerror or error}{where}.", 2)
    if not (sentence := registry.whose(error)):
        raise error
    _fail(sentence, 1)
    traceback.print_exception(error)
    return 1


def _fail(message: str, code: int, what: str = "error") -> int:
    # One line, whatever was given: no line feeds, no colours, nothing that a terminal cannot show.
    said = "".join(x if x.isprintable() else repr(x)[1:-1] for x in message)
    console.print(f"[red]{what}:[/] {escape(said)}", highlight=False, soft_wrap=True)
    return code


def _dispatch(argv: list[str]) -> int:
    if any("\0" in word for word in argv):
        raise UserError("a word of this command has a NUL byte in it.")
    if argv == ["--version"]:
        print(f"gsf {__version__}")
        return 0
    words = 2 if " ".join(argv[:2]) in VERBS else 1
    name, rest = " ".join(argv[:words]), argv[words:]
    if name not in VERBS:
        group = [verb for verb in VERBS if verb.startswith(f"{name} ")] if name else []
        if name in ("", "-h", "--help") or (group and not set(rest) - {"-h", "--help"}):
            _print_help(group or list(VERBS))
            return 0 if argv else 2
        wrong = " ".join(argv[:2]) if group else name
        meant = did_you_mean(wrong, VERBS)
        raise UserError(f"unknown verb {wrong!r}; {meant}`gsf --help` lists them.")
    rest, code = take_option(rest, "--code", "a Python file")
    while code is not None:
        registry.allow([Path(code)])
        rest, code = take_option(rest, "--code", "a Python file")
    verb = VERBS[name]
    shown = "--show-config" in rest
    config = parse(name, config_of(verb), [x for x in rest if x != "--show-config"])
    if shown:
        whole = getattr(importlib.import_module(f"gsf.{verb.module}"), "resolved", None)
        print(json.dumps(as_file(whole(config) if whole else config), indent=2))
        return 0
    out = getattr(config, "out", None)
    if out is not None and not (out / MANIFEST).is_file():  # what is there may be done already
        check_place(out)
    try:
        getattr(importlib.import_module(f"gsf.{verb.module}"), verb.function)(config)
    except SystemExit as stop:  # nothing of gsf's ends this way
        if is_closed_pipe(stop):
            raise
        raise UserError(f"a user's code ended the program (SystemExit: {stop.code}).") from stop
    return 0


def config_of(verb: Verb) -> Any:
    """In its room's options.py where the function's module needs torch, so that help is fast."""
    beside = f"gsf.{verb.module.partition('.')[0]}.options"
    if importlib.util.find_spec(beside):
        found = getattr(importlib.import_module(beside), verb.config, None)
        if found is not None:
            return found
    return getattr(importlib.import_module(f"gsf.{verb.module}"), verb.config)


def _print_help(names: list[str]) -> None:
    print("usage: gsf VERB [options]        gsf VERB --help explains every option\n")
    for name in names:
        print(f"  {name:13} {VERBS[name].help}")
    print(
        "\nThe line of work: collect -> materialise -> fit -> label -> train -> evaluate -> report;"
    )
    print("Agents trained with code of your own act again where you name it: --code FILE.")
    print("`gsf run --preset laptop` does all of it on a shipped recording in minutes.")


if __name__ == "__main__":
    sys.exit(main())
