"""The section of held-out contexts, and what a page without any play says."""

import pandas as pd
import pytest

from gsf.core.results import Results
from gsf.core.stage import Identity
from gsf.evaluation.held_out_rows import write_held_out
from gsf.reporting.page import Page
from gsf.reporting.report import ReportConfig, report
from gsf.reporting.sections.held_out import gather_held_out, has_held_out, headline

SIZES = {"n_contexts": 2, "n_episodes": 6, "n_steps": 60, "agent": "a", "data": "d"}


def write_run(path, method, nll, step=10):
    facts = {"game": "sites", "method": method, "seed": 0}
    beside = {"obs_shape": [8, 8, 1], "n_actions": 2, "levels": ["a"], "reward_scale": 1.0}
    config = {"dataset": "data", "gamma": 0.99, "head": "mlp", "on": method, "encoder": "nature"}
    config |= {"parts": {}}
    Identity("run", config=config, options={"on": method}).write(
        path, **facts, **beside, difficulty=None, actions=None, in_place=True
    )
    rows = [
        {"quantity": "nll", "mode": "any", "context": context, "at": float("nan"), "value": value}
        for context, value in (("", nll), ("NA", nll - 0.1), ("site <b>", nll + 0.1))
    ]
    rows += [{**rows[0], "quantity": "reliability", "at": at, "value": at} for at in (0.3, 0.8)]
    frame = pd.DataFrame(rows).assign(**facts, **SIZES, step=step)
    write_held_out(
        path / "held_out.csv", frame.assign(low=frame["value"] - 0.2, high=frame["value"] + 0.2)
    )


@pytest.fixture(scope="module")
def page_text(tmp_path_factory):
    home = tmp_path_factory.mktemp("report")
    write_run(home / "runs/bc", "bc", 0.8)
    write_run(home / "runs/iql", "iql", 0.7)
    return report(ReportConfig((home / "runs",), home / "out", explorer=False)).read_text()


def test_the_page_shows_every_run_and_never_asks_for_what_cannot_be_done(page_text):
    assert "iql predicts the logged actions best: 0.700 nats a step" in page_text
    assert "Held-out contexts" in page_text
    assert "[0.60, 1.00]" in page_text
    assert "evaluate the run" not in page_text
    assert "has not been evaluated" not in page_text
    assert "runs have no results" not in page_text


def test_contexts_keep_their_names_and_the_last_step_counts(tmp_path):
    write_run(tmp_path / "bc", "bc", 0.8)
    page = Page(tmp_path / "out", [tmp_path])
    rows = gather_held_out(Results([tmp_path]), page)
    assert set(rows["context"]) == {"", "NA", "site <b>"}
    assert has_held_out(rows) == {"sites/bc/seed0"}
    assert headline(rows).startswith("On 2 held-out contexts of sites, bc")


def test_a_damaged_file_is_named_and_costs_only_itself(tmp_path):
    write_run(tmp_path / "bc", "bc", 0.8)
    write_run(tmp_path / "iql", "iql", 0.7)
    (tmp_path / "iql" / "held_out.csv").write_text("nonsense\n")
    page = Page(tmp_path / "out", [tmp_path])
    assert set(gather_held_out(Results([tmp_path]), page)["method"]) == {"bc"}
    assert "held_out.csv is left out" in page.problems[0]
