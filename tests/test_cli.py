"""The command line: what it says and exits with; bad input never shows a traceback."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, get_args, get_origin

import numpy as np
import pytest

import manifests
from chains import write_chain
from gsf import cli
from gsf.core.errors import UserError
from gsf.core.options import Options, from_json, hints_of, range_of, to_json
from gsf.core.presets import PRESETS, preset_values
from gsf.core.version import __version__
from gsf.data.materialise import MaterialiseConfig
from gsf.data.recording import Recording
from gsf.learn import bases, losses
from recordings import record

PARTS = [(bases.find, bases.names), (losses.find, losses.names)]


@pytest.fixture(scope="module")
def play(tmp_path_factory):
    path = tmp_path_factory.mktemp("play") / "coinrun.gsfrec"
    record("coinrun", n_steps=300, n_envs=4).save(path)
    return path


@pytest.fixture
def gsf(capsys, tmp_path, monkeypatch):
    """Runs a command line; returns (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*argv):
        try:
            code = cli.main([str(word) for word in argv])
        except SystemExit as stop:  # argparse's way
            code = stop.code
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


def test_help_lists_every_verb_and_teaches_the_line_of_work(gsf):
    code, out, _ = gsf("--help")
    assert code == 0
    assert all(f"  {verb} " in out for verb in cli.VERBS)
    assert "collect -> materialise -> fit -> label -> train -> evaluate -> report" in out
    assert gsf("data", "--help")[1].count("  data ") == 7


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_explains_its_options(gsf, verb):
    code, out, _ = gsf(*verb.split(), "--help")
    assert code == 0
    assert f"usage: gsf {verb}" in out
    assert any(x in out for x in ("(required", "(default:", "(optional")) or verb.endswith(" list")


def test_a_preset_sets_the_defaults_that_help_shows(gsf):
    assert "20000" in gsf("materialise", "--preset", "smoke", "--help")[1].replace(",", "")
    for argv, message in [
        (("run", "--preset", "big"), "unknown preset 'big'; choose one of smoke, laptop"),
        (("run", "--preset", "labtop"), "did you mean laptop?"),
        (("run", "--preset"), "--preset needs a value"),
        (("bench", "cost", "--preset", "study"), "gsf bench cost takes no --preset"),
        (("run", "--preset", "paper"), "bigfish has 500,032 transitions, not the 5,000,000"),
        (("collect", "--game", "coinrun", "--seed", "-1"), "--seed must be between 0 and"),
    ]:
        code, _, err = gsf(*argv)
        assert code == 2
        assert message in " ".join(err.split())


def test_every_preset_fits_the_options_it_sets():
    for preset, verbs in PRESETS.items():
        for name in verbs:
            verb = cli.VERBS[name]
            config = cli.config_of(verb)
            assert set(preset_values(name, preset)) <= set(config.__dataclass_fields__)


def test_options_go_to_json_and_back_and_wrong_ones_are_named():
    config = MaterialiseConfig("a", out=Path("b"))
    data = to_json(config)
    assert from_json(MaterialiseConfig, data | {"out": "b"}).recording == "a"
    with pytest.raises(UserError, match="unknown option 'wrong'"):
        from_json(MaterialiseConfig, data | {"wrong": 1})
    with pytest.raises(UserError, match="'transitions' must be"):
        from_json(MaterialiseConfig, data | {"out": "b", "transitions": "many"})


def test_info_verify_cut_join_and_list(gsf, play):
    out = gsf("data", "info", play)[1]
    for fact in ("coinrun (easy)", "1,200 = 300 steps x 4 envs", "of 20 (0..19)", "bytes"):
        assert fact in out
    assert "all as they were written" in gsf("verify", play, "--replay")[1]
    assert gsf("data", "cut", play, "--transitions", 500, "--out", "cut.gsfrec")[0] == 0
    assert len(Recording.load("cut.gsfrec")) == 600
    assert gsf("data", "join", play, "cut.gsfrec", "--out", "both.gsfrec")[0] == 0
    assert len(Recording.load("both.gsfrec")) == 1800
    assert gsf("data", "list")[0] == 0
    assert gsf("materialise", play, "--out", "ds")[0] == 0
    assert "1200" in gsf("data", "info", "ds")[1]
    assert "all as they were written" in gsf("verify", "ds")[1]


def damage(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def test_bad_recordings_get_one_sentence(gsf, play, tmp_path):
    data, bad = play.read_bytes(), tmp_path / "bad.gsfrec"
    at = len(data) - 2 * Recording.load(play).takes[0].logic.nbytes - 1  # the last of the actions
    for content, message in [
        (data[:-100], "truncated"),
        (data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], "the actions of steps 0..299"),
        (data[:-1] + bytes([data[-1] ^ 1]), "checksums of the pixels are damaged"),
        (b"something else", "is not a gsf recording"),
    ]:
        bad.write_bytes(content)
        code, _, err = gsf("materialise", bad, "--out", "ds")
        assert code == 2
        assert err.startswith("error: ")
        assert message in err
        assert not (tmp_path / "ds").exists()


def test_bad_datasets_get_one_sentence(gsf, play, tmp_path):
    ds = tmp_path / "ds"
    assert gsf("materialise", play, "--out", ds)[0] == 0
    level = np.load(ds / "level.npy")

    def sentence():
        code, _, err = gsf("train", ds, "--out", "run", "--grad-steps", 1)
        assert code == 2
        assert err.startswith("error: ")
        return err

    np.save(ds / "level.npy", np.where(level == level[0], 77, level))
    assert "level.npy is damaged" in sentence()
    manifests.change(ds)
    assert "a level id outside 0..19" in sentence()
    damage(ds / "reward.npy", 200)
    code, said, _ = gsf("verify", ds)
    assert code == 1
    assert "reward.npy is damaged" in said
    (ds / "level.npy").unlink()
    assert "lacks level.npy" in sentence()
    (ds / "manifest.json").write_text("{")
    assert "is damaged" in sentence()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("collect", "--game", "pong"), "unknown game 'pong'"),
        (
            ("collect", "--game", "coinrun", "--n-envs", "-1"),
            "must be between 1 and 4,096, got -1",
        ),
        (("materialise", "none.gsfrec", "--out", "x"), "no recording at none.gsfrec"),
        (("train", "nowhere", "--out", "x"), "there is no nowhere; `gsf materialise` and"),
        (("train", ".", "--out", "x"), "is not a dataset: it has no manifest.json; `gsf mat"),
        (("label", "nowhere", "--out", "x"), "there is no nowhere; `gsf fit` makes one"),
        (("train", "a", "--out", "b", "--method", "qcl"), "unknown method 'qcl'; did you mean cql"),
        (("train", "a", "--out", "b", "--method", "CQL"), "did you mean cql?"),
        (("train", "a", "--out", "b", "--method", "crul"), "did you mean curl?"),
        (("train", "nowhere", "--out", "x", "--method", "magic"), "unknown method 'magic'"),
        (
            ("train", "nowhere", "--out", "x", "--batch", "-4"),
            "--batch must be between 1",
        ),
        (("evaluate", "nowhere"), "nowhere"),
        (("paint",), "unknown verb 'paint'"),
        (("data", "paint"), "unknown verb 'data paint'"),
        (("tarin",), "unknown verb 'tarin'; did you mean train?"),
        (("data", "lits"), "did you mean data list?"),
        (("play", "coinrum"), "there is no coinrum; did you mean coinrun"),
        (("similar", "coinrum"), "no recording at coinrum; did you mean coinrun"),
        (("evaluate", "random", "--modes", "samplet"), "sampled"),
        (("run", "--methods", "magic"), "unknown method 'magic'"),
        (("run", "--train.size", "3"), "unknown option --train.size; "),
        (("run", "--train.grad-step", "3"), "did you mean --train.grad-steps?"),
        (("run", "--train.seed", "3"), "gsf run itself decides seed"),
        (("run", "--iql.beta", "3"), "none of the methods of this run uses iql"),
        (("run", "--train.encoder", "natur"), "unknown encoder 'natur'; did you mean nature?"),
        (("run", "--fit.encoder", "natur"), "unknown encoder 'natur'; did you mean nature?"),
        (("run", "--games", "pong"), "unknown game 'pong'"),
    ],
)
def test_bad_requests_get_one_sentence(gsf, argv, message):
    code, _, err = gsf(*argv)
    assert code == 2
    assert err.startswith("error: ")
    assert message in " ".join(err.split())


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("materialise", "a", "--out", "b", "--xyz", "3"), "unknown option --xyz; `gsf mat"),
        (("train", "a", "--out", "b", "--grad-step", "3"), "did you mean --grad-steps?"),
        (("train", "a", "--out", "b", "--method", "curl", "--curl.ta=3"), "mean --curl.tau?"),
        (("train", "a", "--out", "b", "--cql.alpah=3"), "--method cql --help` lists those of cql"),
        (("run", "--no-reports"), "unknown option --no-reports; did you mean --no-report?"),
        (("train", "--ot", "b", "a"), "unknown option --ot; did you mean --out?"),
        (("train",), "gsf train needs DATASET and --out; `gsf train --help` explains all options"),
        (("train", "a", "b", "--out", "c"), "'b' is one word too many"),
        (("train", "a", "--out"), "--out needs a value"),
        (("train", "a", "--out", "b", "--batch", "many"), "must be a whole number, got 'many'"),
        (("fit", "a", "--out", "b", "--gamma", "0,9"), "--gamma must be a number, got '0,9'"),
        (("fit", "a", "--out", "b", "--estimator", "tdd"), "did you mean td? choose one of mc, td"),
        (("fit", "a", "--out", "b", "--cumulant", "rewrd"), "unknown cumulant 'rewrd'; did you"),
        (("train", "a", "--out", "b", "--method", "gsf-rewrd"), "unknown cumulant 'rewrd'; did"),
        (("run", "--methods"), "--methods needs at least one value"),
        (("fit", "a", "--out", "b", "--lr", "nan"), "--lr must be above 0 and at most 10, got nan"),
    ],
)
def test_what_cannot_be_read_gets_one_sentence(gsf, argv, message):
    code, out, err = gsf(*argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    assert message in err


@pytest.mark.parametrize("words", [["data", "list"], ["--help"], ["train", "--help"]])
def test_who_reads_no_further_ends_it_quietly(words):
    """As `gsf data list | head -1`, whatever prints: rich, print or tyro."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "gsf", *words]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_where_nothing_can_be_written_what_is_done_is_said_and_more_is_refused(
    gsf, play, tmp_path, monkeypatch
):
    command = ["materialise", play, "--out", tmp_path / "data"]
    assert gsf(*command)[0] == 0
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert gsf(*command)[0] == 0
    command[-1] = tmp_path / "other"
    code, _, said = gsf(*command)
    assert (code, "other cannot be written" in said) == (2, True)
    assert not (tmp_path / "other").exists()


def test_out_may_be_a_link_to_an_empty_folder_but_not_to_nothing(gsf, play, tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    command = ["materialise", play, "--out", tmp_path / "out"]
    code, _, said = gsf(*command)
    assert (code, "out is a link to nothing" in said) == (2, True)
    (tmp_path / "disk").mkdir()
    assert [gsf(*command)[0], gsf(*command)[0]] == [0, 0]
    assert (tmp_path / "disk" / "manifest.json").is_file()
    assert (tmp_path / "out").is_symlink()


def test_the_version_is_one_line(gsf):
    assert gsf("--version") == (0, f"gsf {__version__}\n", "")


def test_help_says_which_values_there_are(gsf):
    shown = " ".join(gsf("train", "--method", "curl", "--help")[1].replace("│", " ").split())
    assert "Discount. (default: 0.99; above 0 and at most 1)" in shown
    assert "W learns the scale. (default: 1.0; between 0.001 and 1,000)" in shown
    assert "are added to. Default: cql. (optional)" in shown
    assert "default: None" not in shown


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_number_has_a_range_and_every_config_checks_it(verb):
    config = cli.config_of(cli.VERBS[verb])
    assert issubclass(config, Options)
    own = [find(name).value.Config for find, known in PARTS for name in known()]
    for options in (config, *(own if verb == "train" else ())):
        for name, hint in hints_of(options).items():
            numeric = {int, float} & set(leaves(hint))
            assert not numeric or range_of(hint) is not None, f"{options}.{name}"


def leaves(hint):
    """The types in a type."""
    parts = get_args(hint)
    if get_origin(hint) is Annotated:
        parts = parts[:1]
    return [leaf for part in parts for leaf in leaves(part)] or [hint]


@pytest.fixture
def small_disk(tmp_path):
    """4 MB, as a directory."""
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mount)], check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a tmpfs needs root")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def test_a_full_disk_loses_nothing(gsf, play, small_disk):
    code, _, err = gsf("materialise", play, "--out", small_disk / "d")
    assert code == 2
    assert "needs 0.01 GB but its disk has 0.00 GB free" in err
    assert list(small_disk.iterdir()) == []


def test_a_full_disk_is_named_by_the_file_that_did_not_fit(gsf, tmp_path, small_disk):
    write_chain(tmp_path / "data", (1.0,) * 2, length=2_000)
    assert gsf("fit", "data", "--out", "gvf", "--no-diagnose")[0] == 0
    (small_disk / "filler").write_bytes(bytes((4 << 20) - 8_192))
    code, _, err = gsf("label", "gvf", "--out", small_disk / "labels")
    assert code == 2
    assert f"the disk is full while writing {small_disk / 'labels'}" in " ".join(err.split())
    assert [path.name for path in small_disk.iterdir()] == ["filler"]
    (small_disk / "filler").unlink()
    assert gsf("label", "gvf", "--out", small_disk / "labels")[0] == 0


def test_too_little_memory_is_one_sentence(gsf, monkeypatch):
    def greedy(_):
        import torch

        torch.empty(1 << 50, dtype=torch.uint8)

    monkeypatch.setattr(cli, "_dispatch", greedy)
    code, _, err = gsf("train")
    assert code == 2
    assert "not enough memory" in err
    assert "choose smaller sizes" in err


def test_imported_data_needs_no_procgen():
    code = "import sys, gsf.learn.train, gsf.data.importers; assert 'procgen' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_never_loads_torch():
    code = """
import sys
from gsf.cli import VERBS, main
for verb in ["", *VERBS]:
    try:
        main([*verb.split(), "--help"])
    except SystemExit:
        pass
    assert "torch" not in sys.modules, verb
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_list_of_recordings_sets_their_returns_against_random_and_published_ones(gsf):
    lines = gsf("data", "list")[1].splitlines()
    name, tier, rows, levels, mean, way = next(
        line.split()[:6] for line in lines if line.startswith("coinrun ")
    )
    assert (name, tier, rows, levels) == ("coinrun", "policy", "500,032", "200")
    assert 3.93 < float(mean) < 9.5
    assert 0 < float(way.rstrip("%")) < 100
