"""Units of a sweep: what was done under a unit's key is not done again, so the key has all that
decides it."""

import dataclasses

import pytest

from gsf.core.code import decided_by
from gsf.sweep import units
from gsf.sweep.options import RunConfig
from gsf.sweep.plan import resolve
from gsf.sweep.units import Unit, Units


@pytest.fixture
def config(tmp_path) -> RunConfig:
    options = {"out": tmp_path, "games": ("starpilot",), "seeds": 1, "preset": "smoke"}
    return RunConfig(**options, methods=("bc", "gsf-reward"))


def made(config: RunConfig) -> dict[str, Unit]:
    plan = resolve(config)
    return {unit.name: unit for unit in Units(config, plan.sources).runs(plan.jobs({}))}


def test_whoever_edits_gsf_in_place_is_not_told_that_all_is_done(config, monkeypatch):
    files: set[str] = set()

    def edited(*things: object) -> dict[str, str]:
        found = decided_by(*things)
        files.update(found)
        return {**found, "gsf/learn/bases/bc.py": "another"}

    before = made(config)
    monkeypatch.setattr(units, "decided_by", edited)
    after = made(config)
    for name, unit in before.items():
        assert unit.key != after[name].key
        assert unit.data.key == after[name].data.key  # a replay is verified
    assert {"gsf/learn/bases/cql.py", "gsf/learn/losses/gsf.py", "gsf/gvf/td.py"} <= files
    assert {"gsf/gvf/cumulants/reward.py", "gsf/gvf/label.py", "gsf/suites/procgen.py"} <= files
    assert {"gsf/learn/learner.py", "gsf/evaluation/rollout.py", "gsf/learn/bases/bc.py"} <= files


def test_to_accept_other_code_makes_no_dataset_again(config):
    accepting = dataclasses.replace(config, accept_code_change=True)
    keys = [{unit.data.key for unit in made(x).values()} for x in (config, accepting)]
    assert keys[0] == keys[1]
