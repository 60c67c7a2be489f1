"""A stranger's files, environments, episodes and code, through the verbs: one sentence each."""

import json
import os
import re
import zlib
from pathlib import Path

import numpy as np
import pytest

import manifests
import own_code
import tiny
from gsf import cli
from gsf.core.sealed import _DOCUMENT
from gsf.data.recording import _PREFIX, MAGIC, Recording
from gsf.gvf.fit import FitConfig, fit
from recordings import record

pytestmark = pytest.mark.usefixtures("forget")


@pytest.fixture
def refused(capsys, tmp_path, monkeypatch):
    """Runs a command that must end in one sentence, with nothing written; returns the sentence."""
    monkeypatch.chdir(tmp_path)

    def run(command):
        before = sorted(tmp_path.rglob("*"))
        assert cli.main(command.split()) == 2
        err = capsys.readouterr().err
        assert err.startswith("error: "), err
        assert err.count("\n") == 1, err
        assert sorted(tmp_path.rglob("*")) == before
        return err

    return run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A dataset, its fit, labels and the manifest of a run."""
    home = tmp_path_factory.mktemp("made")
    dataset = tiny.write_dataset(home / "dataset")
    fit(FitConfig(dataset.path, home / "gvf", diagnose=False))
    tiny.write_labels(home / "labels", dataset)
    manifests.write("run", home / "run")
    record("coinrun", n_steps=8, n_envs=2).save(home / "play.gsfrec")
    return home


DEEP = "[" * 200_000 + "]" * 200_000
LABEL = "label gvf --out new --n-bins 2 --dataset dataset"
TRAIN = "train dataset --out new --method gsf-reward --labels labels --grad-steps 1 --device cpu"
FILES = [  # of a directory's manifest, a key and what it is; the command, and its sentence
    ("dataset", "options", DEEP, "data info dataset", "its brackets are more than 50 deep"),
    ("run", "config", DEEP, "evaluate run", "its brackets are more than 50 deep"),
    ("run", "seed", 2**70, "evaluate run", "'seed' is 1180591620717411303424, not between 0"),
    ("run", "seed", 10**400, "evaluate run", "'seed' is a whole number, not between 0 and"),
    ("run", "reward_scale", 10**400, "evaluate run", "not a finite number"),
    ("run", "actions", [0] * 15, "evaluate run", "'actions' is a list, not a list of ids that"),
    ("run", "actions", [0, 1], "evaluate run", "not one with an id for each action"),
    ("run", "game", "a\ud800", "evaluate run", "not a text that can be written"),
    ("dataset", "levels", list(range(1_000_001)), "data info dataset", "a list of 1,000,001, not"),
    (
        "dataset",
        "levels",
        [2**64],
        "data info dataset",
        "'levels'[0] is 18446744073709551616, not a text or",
    ),
    ("dataset", "n_actions", 10**9, "fit dataset --out new", "not between 1 and 10,000"),
    ("dataset", "actions", "all", "data info dataset", "'actions' is 'all', not a list"),
    ("gvf", "inputs", {}, LABEL, "'inputs' lacks 'dataset'"),
    ("gvf", "files", {"../dataset/obs.npy": "0" * 16}, LABEL, "which is not in its directory"),
    ("labels", "files", {"/etc/hosts": "0" * 16}, TRAIN, "which is not in its directory"),
    ("labels", "files", {"a\0b": "0" * 16}, TRAIN, r"lacks a\x00b"),
]


@pytest.mark.parametrize(("kind", "key", "value", "command", "sentence"), FILES)
def test_a_strangers_manifest(refused, made, kind, key, value, command, sentence):
    for name in ("dataset", "gvf", "labels", "run"):
        Path(name).mkdir()
        for file in (made / name).iterdir():
            os.link(file, Path(name, file.name))
    (Path(kind) / "manifest.json").unlink()  # a link: the others' stays as it is
    _write_manifest(kind, json.loads((made / kind / "manifest.json").read_text()), key, value)
    assert sentence in refused(command)


def _write_manifest(kind, manifest, key, value):
    if value is DEEP:
        del manifest["checksum"]
        body = json.dumps(manifest | {key: "DEEP"}, indent=1).replace('"DEEP"', DEEP)
        Path(kind, "manifest.json").write_bytes(_DOCUMENT.close(body.removesuffix("\n}").encode()))
        return
    Path(kind, "manifest.json").write_text(json.dumps(manifest))
    manifests.change(Path(kind), **{key: value})


HEADERS = [  # of a recording: a key of its header or its take, and what it is
    (None, "env", DEEP, "its brackets are more than 50 deep"),
    (None, "env", 3, "'env' is 3, not a mapping"),
    (0, "seed", 2**70, "'seed' is 1180591620717411303424, not between"),
    (0, "first_level", 2**40, "'first_level' is 1099511627776, not between"),
    (0, "n_steps", 10**400, "'n_steps' is a whole number, not at least 1"),
    (0, "policy", {"frames": "many"}, "'frames' is 'many', not a whole number"),
    (0, "returns", {"episodes": 3}, "'returns' is a mapping, not empty or all of them"),
]


@pytest.mark.parametrize(("take", "key", "value", "sentence"), HEADERS)
def test_a_strangers_recording(refused, made, take, key, value, sentence):
    data = (made / "play.gsfrec").read_bytes()
    at = len(MAGIC) + _PREFIX.size
    version, size, _ = _PREFIX.unpack(data[len(MAGIC) : at])
    header = json.loads(data[at : at + size])
    (header if take is None else header["takes"][take])[key] = value
    text = json.dumps(header).replace(f'"{DEEP}"', DEEP).encode()
    prefix = _PREFIX.pack(version, len(text), zlib.crc32(text))
    Path("bad.gsfrec").write_bytes(MAGIC + prefix + text + data[at + size :])
    assert sentence in refused("data info bad.gsfrec")
    assert Recording.from_bytes(data).game == "coinrun"


ROWS = [  # of a returns.csv: a column and what is in it
    ("game", "9" * 400, "is not a readable CSV (OverflowError)"),
    ("level", 2**70, "has a level that is no number of 64 bits"),
    ("seed", 1e300, "seed 1e+300 is no count"),
]


@pytest.mark.parametrize(("column", "value", "sentence"), ROWS)
def test_a_strangers_rows(refused, column, value, sentence):
    row = {"game": "env", "method": "random", "seed": 0, "step": 0, "split": "unseen", "level": 7}
    row |= {"mode": "greedy", "temperature": 0, "return": 0, "length": 1, "completed": False}
    row |= {"entropy": 0, column: value}
    Path("rows.csv").write_text(",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n")
    Path("env.py").write_text(ENVIRONMENT.replace("CHANGE", "pass"))
    assert sentence in refused("evaluate random --env env.py:make --levels 7 --out rows.csv")


ENVIRONMENT = """
import numpy as np
from gymnasium import spaces

OBS = np.zeros((12, 12, 3), np.uint8)

class Env:
    action_space = spaces.Discrete(3)
    def reset(self, seed=None): return OBS, {}
    def step(self, action): return OBS, 0.0, True, False, {}
    def close(self): pass

class Other(Env):
    CHANGE

def make(level): return Other()
"""
STEP = "def step(self, action): return "
RESET = "def reset(self, seed=None): return "
ENVIRONMENTS = [
    (STEP + "OBS, 0, True, False, None", "step 0 of {} gives NoneType as info, not a dictionary"),
    (STEP + "OBS, 0, True, False, 3", "step 0 of {} gives int as info"),
    (STEP + "OBS, 0, True, False, {'success': OBS}", r"gives uint8 \[12, 12, 3\] as completed"),
    (STEP + "OBS, 0, np.ones(2, bool), False, {}", r"step 0 of {} gives bool \[2\] as terminated"),
    (STEP + "OBS, 0, True, 'no', {}", "step 0 of {} gives str as truncated"),
    (STEP + "OBS, None, True, False, {}", "step 0 of {} gives NoneType as reward"),
    (STEP + "OBS, 1e300, True, False, {}", r"step 0 of {} has reward 1e\+300; gsf keeps up to"),
    (STEP + "OBS, 0, True, {}", "step 0 of {} gives 4 values; Gymnasium's environments give 5"),
    (STEP + "None", "step 0 of {} gives NoneType; Gymnasium's"),
    (STEP + "OBS[:8], 0, True, False, {}", "step 0 of {} gives images"),
    (STEP + "[][1]", r"step 0 of {} raised IndexError: list .*; line 14 of env.py"),
    (RESET + "(OBS, 3), {}", "reset of {} gives observations tuple; gsf needs one uint8 image"),
    (RESET + "[[1], [2, 3]], {}", "reset of {} gives observations list"),
    (RESET + "OBS[:0], {}", r"reset of {} gives observations uint8 \[0, 12, 3\]"),
    (RESET + "{}, {}", "reset of {} gives observations that are empty"),
    (RESET + "OBS", "reset of {} gives ndarray; Gymnasium's environments give 2: obs, info"),
    ("action_space = None", "{} has actions NoneType; gsf needs a Discrete action space"),
    ("action_space = property(lambda self: {}[0])", "{} raised KeyError: 0; line 14 of env.py"),
]


@pytest.mark.parametrize(("change", "sentence"), ENVIRONMENTS)
def test_a_strangers_environment(refused, change, sentence):
    Path("env.py").write_text(ENVIRONMENT.replace("CHANGE", change))
    said = refused("evaluate random --env env.py:make --levels 7 --out rows.csv")
    assert re.search(sentence.replace("{}", r"env\.py:make\(7\)"), said), said


EPISODE = {"obs": np.zeros((4, 8, 8, 3), np.uint8), "action": np.arange(4), "reward": np.ones(4)}
EPISODE["level"] = np.array(1)
EPISODES = [
    ({"action": np.arange(4).astype("m8[s]")}, "timedelta64[s] actions"),
    ({"behaviour_prob": np.array(list("abcd"))}, "'behaviour_prob' that is not one number"),
    ({"behaviour_prob": np.full(4, 0.5 + 1j)}, "'behaviour_prob' that is not one number"),
    ({"behaviour_prob": np.full(4, 1e-300)}, "'behaviour_prob' that is not one number"),
    ({"reward": np.full(4, 1e300)}, "reward 1e+300 at step 0, which is not finite or beyond"),
    ({"terminated": np.array(1, "m8[s]")}, "no clear 'terminated'"),
    ({"level": np.array("a\ud800")}, r"has 'a\ud800' for 'level'"),
    ({"level": np.array(np.inf)}, "has inf for 'level'"),
    ({"level": np.array(2**64 - 1, np.uint64)}, "has 18446744073709551615 for 'level'"),
    ({"level": np.array(1.0)}, "b.npz has the context 1.0, but episodes/a.npz 1;"),
    ({"level": np.array(True)}, "b.npz has the context True, but episodes/a.npz 1;"),
    ({"level": np.array("1")}, "b.npz has the context '1', but episodes/a.npz 1;"),
    ({"obs": np.zeros((4, 0, 8, 3), np.uint8)}, "observations of shape (4, 0, 8, 3)"),
    (os.mkfifo, "b.npz is no file, whatever its name says"),
    (lambda path: path.symlink_to("/dev/zero"), "b.npz is no file, whatever its name says"),
]


@pytest.mark.parametrize(("change", "sentence"), EPISODES)
def test_a_strangers_episodes(refused, change, sentence):
    Path("episodes").mkdir()
    np.savez("episodes/a.npz", **EPISODE)
    if callable(change):
        change(Path("episodes/b.npz"))
    else:
        np.savez("episodes/b.npz", **EPISODE | change)
        if "behaviour_prob" in change:
            np.savez("episodes/a.npz", **EPISODE, behaviour_prob=np.ones(4))
    assert sentence in refused("data import episodes --out new")


CODE = [  # what the last line of a loss returns, and how the error is headed
    ("1 / 0", "ZeroDivisionError: division by zero; line 24 of mine.py, which is code of yours"),
    ("open('nowhere')", "No such file or directory: 'nowhere'; line 24 of mine.py, which is"),
    ("None", "cannot unpack non-iterable NoneType object; code of yours was at work"),
]


@pytest.mark.parametrize(("returned", "heading"), CODE)
def test_a_users_error_keeps_its_traceback_under_one_sentence(
    capsys, dataset, tmp_path, monkeypatch, returned, heading
):
    monkeypatch.chdir(tmp_path)
    good = "return context.z.abs().pow(self.config.power).mean(), {}"
    assert good in own_code.LOSS
    Path("mine.py").write_text(own_code.LOSS.replace(good, f"return {returned}"))
    command = f"train {dataset.path} --out run --method mine.py:Pull --encoder impala_small"
    assert cli.main([*command.split(), "--grad-steps", "1", "--batch", "4", "--device", "cpu"]) == 1
    first, second, *_, last = capsys.readouterr().err.split("error: ")[1].strip().splitlines()
    assert heading in first
    assert second == "Traceback (most recent call last):"
    assert last.split(":")[0].endswith("Error")
