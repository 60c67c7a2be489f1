"""A little of `make torture`: every campaign on every stage, artefact and option it knows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.procgen
def test_a_sample_of_every_campaign_finds_nothing():
    """In a process of its own: it forks, and must have no threads."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "torture", "--sample"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr + done.stdout
