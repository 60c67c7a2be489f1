"""Bad inputs, made from the options themselves: every verb, every option, everything that is wrong.

Each goes through gsf.cli.main, in a folder with good data. It must end with exit code 2 and one
sentence that names what was wrong, soon, with nothing written.
"""

import contextlib
import dataclasses
import io
import os
import random
import shutil
import signal
import sys
import traceback
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal

import numpy as np

import tiny
from gsf import cli
from gsf.core.options import Some, hints_of, range_of
from gsf.gvf.fit import FitConfig, fit
from gsf.learn import bases, losses
from gsf.learn.train import TrainConfig, train
from torture.figures import Row

SECONDS = 60  # of one case; however busy the machine, nothing has to be computed

# What comes after a verb, where it is more than what is required, so that the input is not there
# and nothing could be done: an option's value is then the first thing to be wrong.
IDLE = {
    "run": "--recordings nowhere",
    "collect": "--game coinrun --policy nowhere --out new",
    "evaluate": "nowhere --out new.csv",
    "play": "nowhere --level 1 --out new.gif",
    "bench data": "--game nowhere",
    "bench train": "--encoder nowhere",
    "bench shared": "--encoder nowhere",
    "bench cost": "--methods nowhere",
}
# Commands that would work, small enough to be tried; each of their paths is then replaced.
GOOD = {
    "collect": "--game coinrun --policy {policy} --out {out} --transitions 9 --n-envs 1",
    "materialise": "{recording} --out {out} --transitions 9",
    "fit": "{dataset} --out {out} --no-diagnose --bootstrap {td}",
    "label": "{gvf} --out {out} --n-bins 2 --dataset {dataset} --against {gvf}",
    "train": "{dataset} --out {out} --labels {labels} --method gsf-reward --encoder impala_small "
    "--grad-steps 1 --batch 4",
    "evaluate": "{run} --out {table}",
    "report": "{runs} --out {out}",
    "play": "{run} --level 1 --out {film}",
    "probe": "{run} --held-out {dataset} --out {out}",
    "similar": "{recording} --policy {policy} --out {out} --transitions 99 --gvf {gvf}",
    "data info": "{recording}",
    "data cut": "{recording} --transitions 9 --out {file}",
    "data join": "{recording} --out {file}",
    "data import": "{episodes} --out {out}",
    "data export": "{dataset} --out {out}",
    "run": "--recordings {recording} --out {root} --preset smoke",
}
MADE = {
    "dataset": "dataset",
    "gvf": "gvf",
    "td": "td",
    "labels": "labels",
    "run": "run",
    "runs": "run",
    "episodes": "episodes",
    "policy": "coinrun",  # shipped, as is the recording
    "recording": "coinrun",
    "out": "new",
    "root": "new",
    "table": "new.csv",
    "film": "new.gif",
    "file": "new.gsfrec",
}
ENDINGS = {"table": ".csv", "film": ".gif", "file": ".gsfrec"}
NUMBERS = ["", "many", "nan", "inf", "-inf", "1e400", "1,5", "0x10", "½", "--", str(10**30)]
WORDS = ["", "nowhere", "Ünter/漢字", "a\nb", "\x1b[31mred", "x" * 5000, "\udcff", "nul\0byte"]
CODE = {
    "empty.py": "",
    "syntax.py": "def (",
    "exits.py": "raise SystemExit(0)",
    "raises.py": "1 / 0",
    "deep.py": "def f(): return f()\nf()",
    "binary.py": "\0",
}
SETTINGS = [
    "x",
    "=",
    "train.lr",
    "lr=1",
    "trian.lr=1",
    "train.lrr=1",
    "train.lr=nan",
    "cql.alpha=-1",
]
SETTINGS += ["train.seed=0", "train.method=bc", "train.out=x", "iql.beta=1", "train.lr=[1]"]
SETTINGS += ["fit.gamma=7", "label.n_bins=1", "evaluate.n_envs=0", "evaluate.splits=[]", "ü.ü=ü"]


@dataclass(frozen=True)
class Case:
    verb: str
    argv: tuple[str, ...]
    named: str  # a word of the sentence

    def __str__(self) -> str:
        return repr(" ".join(["gsf", self.verb, *self.argv])[:300])


def campaign(home: Path, share: float = 1.0, seed: int = 0) -> list[Row]:
    work = home / "inputs"
    work.mkdir()
    rng, rows = random.Random(seed), dict[str, Row]()
    with contextlib.chdir(work):
        _prepare()
        for case in cases():
            if rng.random() < share:
                row = rows.setdefault(case.verb, Row("inputs", f"gsf {case.verb}"))
                row.tried += 1
                if wrong := attempt(case):
                    row.fail(wrong[0], f"{case}: {wrong[1]}")
    return list(rows.values())


def _prepare() -> None:
    """Good data of every kind, and what may lie in its place."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        dataset = tiny.write_dataset(Path("dataset"))
        tiny.write_labels(Path("labels"), dataset)
        quick: dict[str, Any] = {
            "encoder": "impala_small",
            "grad_steps": 1,
            "batch": 4,
            "device": "cpu",
        }
        fit(FitConfig(dataset.path, Path("gvf"), diagnose=False))
        fit(FitConfig(dataset.path, Path("td"), estimator="td", diagnose=False, **quick))
        train(TrainConfig(dataset=dataset.path, out=Path("run"), **quick))
    Path("episodes").mkdir()
    arrays = {"obs": np.zeros((3, 8, 8, 3), np.uint8), "reward": np.zeros(3)}
    np.savez("episodes/0.npz", action=np.arange(3), level=0, **arrays)
    for name, code in CODE.items():
        Path(name).write_text(code)
    for folder in ("hollow", "other", "folder.csv", "folder.gif", "folder.gsfrec", "folder.py"):
        Path(folder).mkdir()
    Path("other/thing").write_text("of another kind")
    Path("text").write_text("no data\n" * 9)
    os.mkfifo("pipe")


def cases() -> Iterator[Case]:
    for verb in cli.VERBS:
        for case in (*_misspelt(verb), *_missing(verb), *_values(verb), *_paths(verb)):
            yield dataclasses.replace(case, verb=verb)
    for method in ("cql", "iql", *losses.names()):
        yield from _own_options(method)
    for word in SETTINGS:
        option = word.partition("=")[0].rpartition(".")[2]
        yield Case("run", (f"--{word}",), option.replace("_", "-"))
    for wrong in (
        "",
        "nosuchverb",
        "trian",
        "data",
        "data nosuch",
        "--verion",
        "\udcff",
        "-",
        "--",
    ):
        yield Case(wrong, ("--out", "new"), "")


def _idle(verb: str) -> list[str]:
    if verb in IDLE:
        return IDLE[verb].split()
    words: list[str] = []
    for field in dataclasses.fields(config := cli.config_of(cli.VERBS[verb])):
        if field.default is field.default_factory is dataclasses.MISSING:
            hint, option = hints_of(config)[field.name], f"--{field.name}".replace("_", "-")
            value = "new" if field.name == "out" else "9" if int in _leaves(hint) else "nowhere"
            words = [value, *words] if "Positional" in str(hint) else [*words, option, value]
    return words


def _misspelt(verb: str) -> Iterator[Case]:
    idle = tuple(_idle(verb))
    for name in [*hints_of(cli.config_of(cli.VERBS[verb])), "nosuch", "ü", "out.x", "-"]:
        wrong = f"--{name}x".replace("_", "-")
        yield Case(verb, (*idle, wrong, "3"), wrong)
        yield Case(verb, (*idle, f"{wrong}=3"), wrong)
    yield Case(verb, (*idle, "one", "--", "more"), "")
    for option in ("--preset", "--code"):
        for word in WORDS:
            yield Case(verb, (*idle, option, word), "")
        yield Case(verb, (*idle, option), option)


def _missing(verb: str) -> Iterator[Case]:
    """Without one of what is required."""
    words = _idle(verb)
    config = cli.config_of(cli.VERBS[verb])
    for field in dataclasses.fields(config):
        option = f"--{field.name}".replace("_", "-")
        if field.default is field.default_factory is dataclasses.MISSING and option in words:
            at = words.index(option)
            yield Case(verb, (*words[:at], *words[at + 2 :]), option)
            yield Case(verb, (*words[: at + 1], *words[at + 2 :]), "")
    if words and not words[0].startswith("--"):
        yield Case(verb, tuple(words[1:]), "")


def _values(verb: str) -> Iterator[Case]:
    """Every option with values of a wrong type or out of range."""
    idle = tuple(_idle(verb))
    for name, hint in hints_of(cli.config_of(cli.VERBS[verb])).items():
        option = f"--{name}".replace("_", "-")
        if option in idle or "Positional" in str(hint):
            continue
        for words in _wrong_values(hint):
            joined = (f"{option}={words[0]}",) if len(words) == 1 else (option, *words)
            yield Case(verb, (*idle, *joined), option.strip("-"))


def _own_options(method: str) -> Iterator[Case]:
    """Those of a base or an auxiliary loss."""
    found = (bases if method in bases.names() else losses).find(method).value.Config
    of = "base" if method in bases.names() else "loss"
    chosen = f"{method}-reward" if method == "gsf" else method
    idle = ("nowhere", "--out", "new", "--method", chosen)
    for name, hint in hints_of(found).items():
        option = f"--{of}.{name}".replace("_", "-")
        yield Case("train", (*idle, f"{option}x=3"), f"{option}x")
        for words in _wrong_values(hint):
            yield Case("train", (*idle, f"{option}={words[0]}"), option)


def _wrong_values(hint: Any) -> list[tuple[str, ...]]:
    """As words of a command line."""
    kinds, text = _leaves(hint), str(hint)
    if {int, float} & {*kinds}:
        limits = range_of(hint)
        assert limits is not None
        low, high = limits.low, limits.high
        beyond = [high * 2 + 1, -high * 2 - 1, low - 1, *([low] if limits.low_open else [])]
        beyond += [high] if limits.high_open else []
        if int in kinds:
            return [(word,) for word in (*NUMBERS, *map(str, map(int, beyond)), "1.5")]
        return [(word,) for word in (*NUMBERS, *map(repr, map(float, beyond)))]
    wrong: list[tuple[str, ...]] = []
    if any(isinstance(mark, Some) for mark in typing.get_args(hint)):
        wrong.append(())
    if any(isinstance(kind, str) for kind in kinds):  # of a Literal
        wrong += [(word,) for word in ("", "nosuch", "Ü", "True", "a\nb", "0")]
    elif bool in kinds and "tuple" not in text:
        wrong += [(word,) for word in ("maybe", "", "2")]
    return wrong


def _leaves(hint: Any) -> list[Any]:
    """The types in a type, and the values of a Literal."""
    parts = typing.get_args(hint)
    if typing.get_origin(hint) is Annotated:
        parts = parts[:1]
    if typing.get_origin(hint) is Literal:
        return list(parts)
    return [leaf for part in parts for leaf in _leaves(part)] or [hint]


def _paths(verb: str) -> Iterator[Case]:
    """Every path and name of a command that would work, replaced by what cannot be."""
    if verb not in GOOD:
        return
    words = GOOD[verb].split()
    for at, word in enumerate(words):
        if not word.startswith("{"):
            continue
        kind = word.strip("{}")
        for wrong in _wrong_paths(kind):
            filled = [x.format(**MADE) for x in words]
            filled[at] = wrong
            yield Case(verb, tuple(filled), "")
    named = {"encoder": CODE, "method": CODE, "cumulant": CODE, "game": CODE, "env": CODE}
    options = hints_of(cli.config_of(cli.VERBS[verb]))
    idle = tuple(_idle(verb))
    for name in [name for name in named if name in options and f"--{name}" not in idle]:
        files = [f"{file}:thing" for file in (*CODE, "nowhere.py", "folder.py", "pipe.py")]
        for word in [*WORDS, *files, "syntax.py:", ":", "a:b:c", "gsf-", "-", "../x.py:y"]:
            yield Case(verb, (*idle, f"--{name}={word}"), "")


def _wrong_paths(kind: str) -> list[str]:
    ending = ENDINGS.get(kind, "")
    if kind == "root":  # of results, among which others may be
        return ["text", "text/new", "/proc/new", "nul\0byte", "x" * 300, "pipe"]
    if kind in ("out", *ENDINGS):  # to be made
        return [
            *(f"text/new{ending}", "other" if kind == "out" else f"folder{ending}"),
            *(f"nul\0byte{ending}", "x" * 300 + ending, f"pipe/new{ending}"),
            *(() if kind == "file" else (f"new{ending}x", "new") if ending else ("text", "pipe")),
        ]
    wrong = [*WORDS, "text", "text/x", "pipe", "/dev/null", "~", "*"]
    within = [] if kind in ("runs", "episodes") else ["/", ".."]  # below which some may be found
    return [*wrong, "hollow", "other", *within]


def attempt(case: Case) -> tuple[str, str] | None:
    """What is wrong with how gsf takes a bad input, and the evidence."""
    before, out, err = _tree(), io.StringIO(), io.StringIO()
    at_start = sys.stderr
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main([*case.verb.split(), *case.argv])
    except Hangs:
        return "hangs", ""
    except BaseException:
        return "tracebacks", traceback.format_exc().strip().splitlines()[-1]
    finally:
        signal.alarm(0)
        sys.stderr = at_start
    said, after = err.getvalue(), _tree()
    if after != before:
        changed = sorted(after.items() ^ before.items())
        for made in Path().glob("new*"):
            shutil.rmtree(made) if made.is_dir() else made.unlink()
        return "writings", f"{changed[0][0]}, exit code {code}"
    if code != 2:
        return "accepted", f"exit code {code}: {said[-200:]!r}"
    if "Traceback" in said:
        return "tracebacks", said.splitlines()[-1]
    if said.count("\n") != 1 or not said.startswith("error: ") or said[-2] not in ".?":
        return "not one sentence", repr(said[-300:])
    if case.named not in said:
        return "not named", repr(said[-300:])
    return None


class Hangs(BaseException):
    pass


def _give_up(number: int, frame: FrameType | None) -> None:
    raise Hangs


def _tree() -> dict[str, tuple[int, int]]:
    """Every file here, with its size and time."""
    found = {}
    for directory, _, files in os.walk("."):
        found[directory] = 0, 0
        for name in (os.path.join(directory, file) for file in files):
            facts = os.lstat(name)
            found[name] = facts.st_size, facts.st_mtime_ns
    return found
