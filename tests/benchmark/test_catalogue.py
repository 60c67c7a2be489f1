"""Protocols: frozen ones are as they were, and what they fix is what `gsf run` is told."""

import json
from pathlib import Path

import pytest

from benchmark.freeze import FROZEN, freeze
from gsf.benchmark import catalogue
from gsf.benchmark.leaderboard import leaderboard
from gsf.benchmark.options import BoardConfig, EnterConfig
from gsf.benchmark.run import sweeps
from gsf.core.errors import UserError

ROOT = Path(__file__).parents[2]
PROTOCOLS = [catalogue.find(name) for name in catalogue.names()]


def test_a_frozen_protocol_is_as_it_was():
    """If this fails, a frozen protocol was edited: put it back, and make a new version."""
    found = {x.name: x.digest for x in PROTOCOLS if not x.is_draft}
    assert found == json.loads(FROZEN.read_text())


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda x: x.name)
def test_a_protocol_is_what_gsf_run_is_told(protocol):
    if not protocol.is_draft:
        protocol.check_recordings(protocol.games)
    assert set(protocol.said["compare"]) <= set(protocol.methods)
    assert {name.partition(".")[2] for name in protocol.said["fixed"]} <= set(
        protocol.said["train"]
    )
    config = EnterConfig(protocol.name, baselines=True)
    [sweep] = sweeps(protocol, config, protocol.games)
    assert (sweep.seeds, sweep.methods) == (protocol.seeds, protocol.methods)
    assert sweep.temperature == "pooled"
    trained = sweep.stage("train", sweep.find_methods()[0], dataset="", out="")
    assert trained.batch == protocol.said["train"]["batch"]


def test_a_draft_is_frozen_by_one_command(tmp_path):
    text = (catalogue.PROTOCOLS / "grid-1.toml").read_text()
    path, frozen = tmp_path / "grid-1.toml", tmp_path / "frozen.json"
    frozen.write_text("{}")
    path.write_text("draft = true  # soon\n" + text.replace("be6b275ce043a7ff", "0" * 16))
    assert catalogue.read(path).digest != catalogue.find("grid-1").digest
    assert freeze(path, frozen) == catalogue.find("grid-1").digest
    assert path.read_text() == text
    with pytest.raises(AssertionError, match="frozen already"):
        freeze(path, frozen)
    lite = (catalogue.PROTOCOLS / "lite-1.toml").read_text()
    games = lite.partition("[recordings]\n")[2].partition("\n\n")[0]
    path.write_text(lite.replace(games, games.splitlines()[1]))  # one of them
    freeze(path, frozen)
    lite = catalogue.read(path)
    lite.check_recordings(lite.games)
    assert json.loads(frozen.read_text())["lite-1"] == lite.digest


def test_an_unknown_protocol_and_a_changed_recording_are_said_in_one_sentence():
    with pytest.raises(UserError, match="no protocol is called grid1; did you mean grid-1\\?"):
        catalogue.find("grid1")
    said = catalogue.find("grid-1").said
    other = said | {"recordings": {"grid5_looks": {"name": "grid5_looks-best", "digest": "0" * 16}}}
    with pytest.raises(UserError, match="the one here has be6b275ce043a7ff"):
        catalogue.Protocol(other).check_recordings(("grid5_looks",))


def test_the_page_of_the_site_is_that_of_its_entries(tmp_path):
    """If this fails: `gsf benchmark leaderboard`, from the root of the repository."""
    made = leaderboard(BoardConfig(ROOT / "docs/benchmark/entries", tmp_path / "page.md"))
    assert made.read_text() == (ROOT / "docs/leaderboard.md").read_text()
