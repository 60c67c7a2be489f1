"""The commands and the code of docs/own-data.md do what it says, where there is no Procgen."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[1]
ALL = """
import runpy, sys, warnings
from gsf import cli

commands, code = sys.argv[1:]
for program, *words in map(str.split, commands.splitlines()):
    if program == "gsf":
        assert cli.main(words) == 0, words
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
warnings.simplefilter("error")
exec(compile(code, "own-data.md", "exec"), {})
"""
PAGE = (ROOT / "docs" / "own-data.md").read_text()


def test_the_commands_and_the_code_run_without_procgen(tmp_path):
    blocked = tmp_path / "blocked" / "procgen"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text("raise ImportError('there is no Procgen here')\n")
    paths = [str(blocked.parent), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    (tmp_path / "examples").symlink_to(ROOT / "examples")

    commands = re.search(r"```sh\n(.*?)```", PAGE, re.S)[1]
    assert len(commands.splitlines()) == 4
    code = re.search(r"```python\n(.*?)```", PAGE, re.S)[1]
    done = subprocess.run(
        [sys.executable, "-c", ALL, commands.replace("grad_steps=150", "grad_steps=20"), code],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert "data: 1,373 transitions, 270 episodes, 9 levels" in said
    assert "data-validation: 416 transitions, 90 episodes, 3 levels" in said
    rows = pd.concat(map(pd.read_csv, tmp_path.glob("results/sites/*/seed0/held_out.csv")))
    assert set(rows["method"]) == {"bc", "cql", "gsf-reward", "iql"}
    assert {"agreement", "nll", "ece", "fqe", "wis"} <= set(rows["quantity"])
    report = (tmp_path / "results/report/report.html").read_text()
    assert "Held-out contexts" in report
    assert "No results yet" not in report
    assert said.splitlines()[-1] in {"0", "1", "2", "3"}
