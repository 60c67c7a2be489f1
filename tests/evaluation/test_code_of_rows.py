"""Beside rows lies with which code they were made; tests/core/test_code.py edits that code."""

import pytest

from gsf.core.errors import UserError
from gsf.evaluation.code_of_rows import check_code, code_of_play, note_code

ONE = {"mine": {"gsf/a.py": "0" * 16, "gsf/b.py": "1" * 16}}
OTHER = {"mine": {"gsf/a.py": "0" * 16, "gsf/b.py": "2" * 16}}


def test_rows_of_other_code_are_refused_until_it_is_accepted(tmp_path):
    rows = tmp_path / "rows.csv"
    check_code(rows, ONE, any_code=False)  # of an older gsf: nothing is known of them
    note_code(rows, ONE)
    check_code(rows, ONE, any_code=False)
    check_code(rows, {"another": OTHER["mine"]}, any_code=False)
    with pytest.raises(UserError, match=r"rows.csv has rows made before gsf/b.py was edited"):
        check_code(rows, OTHER, any_code=False)
    check_code(rows, OTHER, any_code=True)
    note_code(rows, {"another": ONE["mine"]})
    note_code(rows, OTHER)  # whoever accepts it goes on with it
    check_code(rows, OTHER | {"another": ONE["mine"]}, any_code=False)


def test_the_code_of_play_is_the_games_and_the_agents():
    found = {*code_of_play("grid5_looks", ["gsf.learn.bases.bc"])}
    assert {"gsf/evaluation/rollout.py", "gsf/suites/grids.py", "gsf/learn/bases/bc.py"} <= found
    assert not {"gsf/suites/looks.py", "gsf/suites/procgen.py", "gsf/learn/learner.py"} & found
    dressed = {*code_of_play("grid5_looks@filters-16", [])}
    assert {"gsf/suites/looks.py", "gsf/suites/grids.py"} <= dressed
