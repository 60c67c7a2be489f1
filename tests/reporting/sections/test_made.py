import shlex
from pathlib import Path

import reports
from gsf.core.command_line import parse
from gsf.core.results import Results
from gsf.learn.train import TrainConfig
from gsf.reporting.sections.made import command


def test_commands_on_the_page_make_the_same_thing_again(tmp_path: Path):
    for run in Results([reports.make_sweep(tmp_path / "runs", n_seeds=1)]).of_kind("run"):
        words = shlex.split(command(run))
        assert words[:2] == ["gsf", "train"]
        config = parse("train", TrainConfig, words[2:])
        assert (config.method, config.seed, config.out) == (
            run.manifest["method"],
            run.manifest["seed"],
            run.path,
        )
        assert config.resolved().grad_steps == 4
