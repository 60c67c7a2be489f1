"""A loss in a file becomes an entry; what does not fit is refused in one sentence."""

import gzip
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from benchmark.conftest import fill_card
from gsf.benchmark import catalogue, judge
from gsf.benchmark.anyone import play
from gsf.benchmark.compare import compare
from gsf.benchmark.entry import CARD, ROWS, read_entry
from gsf.benchmark.judge import PROTOCOL, TRACK, difference, read_benchmark
from gsf.benchmark.options import AgainConfig, BesideConfig, EnterConfig
from gsf.benchmark.report import gather, report
from gsf.benchmark.run import bring_datasets, enter, sweeps
from gsf.benchmark.verify import verify
from gsf.core.errors import FoundWrongError, UserError
from gsf.core.sealed import write_json, write_table
from gsf.evaluation.rows import read_table


@pytest.fixture
def entry(entered, tmp_path):
    shutil.copy(entered / ROWS, tmp_path)
    fill_card(entered, tmp_path, title="Pull")
    return tmp_path


def changed(entry, change) -> None:
    """The rows with a change, sealed anew."""
    rows = read_table(entry / ROWS)
    write_table(entry / ROWS, change(rows))


def test_every_row_has_the_protocol_and_plays_at_the_baselines_temperature(tiny, entered):
    protocol = catalogue.find("tiny-1")
    base, mine = (read_table(x) for x in (protocol.rows, entered / ROWS))
    for rows in (base, mine):
        assert set(rows[PROTOCOL]) == {protocol.digest}
        assert set(rows[TRACK]) == {"closed"}
        assert rows.groupby("split")["level"].nunique().to_dict() == {"seen": 4, "unseen": 12}
    assert set(base["method"]) == {"bc", "cql", "random"}
    trained = base[base["method"] != "random"]
    assert set(trained["temperature"]) == set(mine["temperature"])
    assert not list((entered).glob("grid5_looks/pull/seed0/temperature.json"))  # none was chosen


def test_the_report_sets_an_entrant_beside_the_baselines(entered):
    said = (entered / "report.md").read_text()  # gsf benchmark run ends with it
    assert catalogue.find("tiny-1").digest in said
    assert "first look: 1 of 1 games, 1 of 2 seeds" in said
    assert "| method | mean | rank | minus cql | minus bc | seeds |" in said
    assert "**pull**" in said
    assert "With 1 game, 1 seed and 12 levels, a difference to cql of " in said


def test_statistics_are_those_of_the_rows(tiny):
    """Constant returns: the mean, the rank and the differences are known."""
    protocol = catalogue.find("tiny-1")
    rows = read_benchmark(protocol.rows, protocol)
    worth = {"bc": 0.25, "cql": 0.5, "random": 0.0}
    rows = rows.assign(**{"return": rows["method"].map(worth)})
    found = compare(rows, protocol, n=50)
    assert [row["method"] for row in found.table] == ["cql", "bc", "random"]
    by = {row["method"]: row for row in found.table}
    assert by["cql"]["mean"] == pytest.approx([0.5] * 3)
    assert (by["cql"]["rank"], by["bc"]["rank"], by["random"]["rank"]) == (
        [1.0] * 3,
        [2.0] * 3,
        None,
    )
    assert by["bc"]["minus cql"] == pytest.approx([-0.25] * 3)
    assert (found.best, found.against, found.effect) == ("cql", ("cql", "bc"), pytest.approx(0))


def test_an_entry_is_verified_by_playing_it_again(entered, entry, capsys):
    assert read_entry(entry).card["trials"] == 3
    verify(AgainConfig(entry, runs=entered, share=0.5))
    assert "8 episodes were played again: every return" in capsys.readouterr().out
    changed(entry, lambda rows: rows.assign(**{"return": 1 - rows["return"]}))
    with pytest.raises(FoundWrongError):
        verify(AgainConfig(entry, runs=entered, share=0.2))
    assert "1 in the rows, 0 when played again" in capsys.readouterr().out
    changed(entry, lambda rows: rows.assign(agent="0" * 16))
    with pytest.raises(FoundWrongError):
        verify(AgainConfig(entry, runs=entered))
    assert "was played by another agent" in capsys.readouterr().out
    with pytest.raises(UserError, match="nothing could be played"):
        verify(AgainConfig(entry, runs=entry))


def test_rows_that_were_tampered_with_are_refused(entry):
    text = gzip.decompress((entry / ROWS).read_bytes())
    (entry / ROWS).write_bytes(gzip.compress(text.replace(b",0.0,", b",1.0,", 1)))
    with pytest.raises(UserError, match="do not fit their checksum"):
        read_entry(entry)
    unsealed = pd.read_csv(pd.io.common.BytesIO(text)).drop(columns="checksum")
    (entry / ROWS).write_bytes(gzip.compress(unsealed.to_csv(index=False).encode()))
    with pytest.raises(UserError, match="has no checksums"):
        read_entry(entry)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda x: x.assign(protocol="f" * 16), "was run under a protocol with digest ffff"),
        (lambda x: x[x["level"] != x["level"].max()], "has 11 of the 12 unseen levels"),
        (lambda x: x.assign(level=x["level"] + 50), "has 0 of the 12 unseen levels of tiny-1"),
        (lambda x: x.assign(seed=7), "has seed 7; those of tiny-1 are 0 to 1"),
        (lambda x: x.assign(game="coinrun"), "rows of coinrun, which is no game of tiny-1"),
        (lambda x: x.assign(method="cql"), "has no rows of pull, which the card names"),
        (lambda x: x.assign(track="mine"), "track 'mine' is neither closed nor open"),
        (lambda x: x.assign(mode="greedy"), "has no sampled rows"),
        (lambda x: pd.concat([x, x.assign(seed=1)]), "are one and the same agent"),
        (lambda x: x.assign(agent=x["agent"] + x["split"]), "several agents played as"),
    ],
)
def test_rows_that_do_not_fit_are_refused(entry, change, sentence):
    changed(entry, change)
    with pytest.raises(UserError, match=sentence):
        read_entry(entry)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('title = "Pull"', 'title = "?"', "fill in title: what the page calls it"),
        ("trials = 3", "trials = -3", "'trials' is -3, not at least 1"),
        ("trials = 3", "", "it lacks 'trials'"),
        ("trials = 3", "trials", "is not TOML"),
        ('method = "pull"', 'method = "cql"', "cql is a baseline; call the method else"),
        ('digest = "', 'digest = "00000000" # ', "is no card of an entry: 'digest'"),
    ],
)
def test_a_card_that_says_too_little_is_refused(entry, old, new, sentence):
    text = (entry / CARD).read_text()
    assert old in text
    (entry / CARD).write_text(text.replace(old, new))
    with pytest.raises(UserError, match=sentence):
        read_entry(entry)


def test_a_protocol_that_was_changed_is_another(tiny, entry):
    """Rows made under it are told so, whoever reads them."""
    path = tiny / "protocols" / "tiny-1.toml"
    text = path.read_text()
    path.write_text(text.replace("batch = 16", "batch = 32"))
    try:
        with pytest.raises(UserError, match="the protocol was changed, or is of another version"):
            read_entry(entry)
        with pytest.raises(UserError, match="which this gsf does not have"):
            report(BesideConfig((entry,)))
    finally:
        path.write_text(text)


def test_what_did_not_keep_to_the_protocol_is_open(tiny, entered, entry, capsys, monkeypatch):
    """Another network, another recording: the rows say so, and are listed apart."""
    protocol = catalogue.find("tiny-1")
    said, run = protocol.said, entered / "grid5_looks" / "pull" / "seed0"
    assert difference(run, protocol) is None
    for key, value, why in (
        ("train", said["train"] | {"batch": 32}, "train.batch is 16, not 32"),
        ("recordings", {"grid5_looks": {"name": "x", "digest": "0" * 16}}, "another recording"),
        ("materialise", said["materialise"] | {"views": 2}, "materialise.views is 1, not 2"),
    ):
        assert why in str(difference(run, catalogue.Protocol(said | {key: value})))
    monkeypatch.setattr(judge, "difference", lambda *_: "it has another network")
    rows = judge.gather_rows(entered, protocol, references=False)
    assert set(rows[TRACK]) == {"open"}
    assert "seed0 is open: it has another network." in " ".join(capsys.readouterr().err.split())
    changed(entry, lambda x: x.assign(temperature=0.123))  # not the baselines'
    assert set(gather([entry / ROWS], protocol).query("method == 'pull'")[TRACK]) == {"open"}


def test_runs_of_a_cluster_are_judged_by_datasets_made_here(tiny, entered, tmp_path):
    shutil.copytree(entered / "grid5_looks" / "pull", tmp_path / "tiny-1" / "grid5_looks" / "pull")
    protocol, run = catalogue.find("tiny-1"), tmp_path / "tiny-1/grid5_looks/pull/seed0"
    text = (run / "manifest.json").read_text().replace(str(tiny / "out"), str(tmp_path))
    manifest = json.loads(text)
    del manifest["checksum"]
    write_json(run / "manifest.json", manifest)
    assert difference(run, protocol) == "its dataset is not at hand"
    config = EnterConfig("tiny-1", methods=("bc",), out=tmp_path)
    bring_datasets(next(sweeps(protocol, config, protocol.games)))
    assert difference(run, protocol) is None


def test_settings_are_chosen_on_validation_levels_alone(tiny, tmp_path, capsys):
    methods = (f"{tiny / 'mine.py'}:Pull",)
    given = {"seeds": 1, "validation": True, "workers": 1, "out": tmp_path}
    enter(EnterConfig("tiny-1", methods=methods, **given))
    assert re.search(
        r"\d\.\d{3} mean return on validation levels  pull\nNo test", capsys.readouterr().out
    )
    assert set(pd.read_csv(next(tmp_path.rglob("pull/seed0/returns.csv")))["split"]) == {
        "validation"
    }
    with pytest.raises(UserError, match="has no rows of tiny-1 yet"):
        judge.gather_rows(tmp_path, catalogue.find("tiny-1"), references=False)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"games": ("coinrun",)}, "tiny-1 has no game coinrun; its games are grid5_looks"),
        ({"seeds": 3}, "tiny-1 has seeds 0 to 1"),
        ({"first_seed": 2}, "tiny-1 has seeds 0 to 1"),
    ],
)
def test_what_a_protocol_does_not_have_cannot_be_run(tiny, given, sentence):
    with pytest.raises(UserError, match=sentence):
        enter(EnterConfig("tiny-1", methods=("bc",), **given))
    with pytest.raises(UserError, match="name methods of yours"):
        EnterConfig("tiny-1")


def test_anyones_own_agent_enters_by_evaluation_alone(tiny, tmp_path, capsys):
    out = tmp_path / "up.csv"
    play(lambda obs: np.zeros(len(obs), int), "tiny-1", method="up", seed=0, out=out)
    report(BesideConfig((out,), protocol="tiny-1"))
    said = capsys.readouterr().out
    assert "**up**" in said.partition("## Open")[2]
    with pytest.raises(UserError, match="says no protocol; name it"):
        report(BesideConfig((out,)))


def test_the_baselines_alone(tiny, capsys):
    report(BesideConfig(protocol="tiny-1"))
    said = capsys.readouterr().out
    assert said.startswith("# tiny-1: the baselines")
    assert "first look" not in said
