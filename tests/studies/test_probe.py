"""`gsf probe` on real Procgen, at the smallest size."""

import pandas as pd
import pytest

from given import given
from gsf.cli import main
from gsf.core.errors import UserError
from gsf.data.materialise import MaterialiseConfig, materialise
from gsf.studies.probe import ProbeConfig, probe
from gsf.sweep.run import RunConfig, run
from recordings import save_short_episodes


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("probe")
    for name, levels in (("seen", range(4)), ("held", range(500_000, 500_004))):
        save_short_episodes(home, name, levels)
    materialise(MaterialiseConfig(str(home / "held.gsfrec"), home / "held"))
    run(
        RunConfig(
            out=home / "out",
            preset="smoke",
            methods=("bc", "gsf-reward"),
            recordings=(str(home / "seen.gsfrec"),),
            options=given(
                "train.grad_steps=2", 'evaluate.splits=["seen"]', "materialise.transitions=3200"
            ),
            report=False,
        )
    )
    return home


def test_every_run_is_measured_on_seen_and_held_out_levels(home):
    out = probe(ProbeConfig((home / "out",), (home / "held",), home / "probe", sample=400))
    frame = pd.read_csv(out / "probe.csv")
    assert (out / "probe.png").stat().st_size > 10_000
    found = frame.groupby(["method", "levels"])["measure"].apply(list).to_dict()
    assert found == {
        ("pixels", "held out"): ["agreement"],
        ("pixels", "seen"): ["agreement"],
        ("bc", "held out"): ["agreement", "probe"],
        ("bc", "seen"): ["agreement", "probe"],
        ("gsf-reward", "held out"): ["agreement", "probe", "head"],
        ("gsf-reward", "seen"): ["agreement", "probe", "head"],
    }
    assert frame["value"].between(0, 1).all()
    assert (frame["low"] <= frame["value"]).all()
    assert (frame["value"] <= frame["high"]).all()
    again = probe(ProbeConfig((home / "out",), (home / "held",), home / "again", sample=400))
    assert (again / "probe.csv").read_bytes() == (out / "probe.csv").read_bytes()


def test_levels_of_the_training_data_are_not_held_out(home, capsys):
    dataset = home / "out/starpilot/dataset"
    words = ["probe", str(home / "out"), "--held-out", str(dataset), "--out", str(home / "x")]
    assert main(words) == 2
    assert "they are not held out" in capsys.readouterr().err


def test_a_run_that_is_not_done_is_named_and_one_without_its_data_is_refused(home, capsys):
    config = ProbeConfig((home / "out",), (home / "held",), home / "part", sample=400)
    checkpoint = home / "out/starpilot/bc/seed0/checkpoint.pt"
    checkpoint.rename(aside := checkpoint.with_name("aside"))
    frame = pd.read_csv(probe(config) / "probe.csv")
    assert set(frame["method"]) == {"pixels", "gsf-reward"}
    shown = capsys.readouterr()
    assert "left out:" in shown.err
    assert "gsf-reward" in shown.out
    aside.rename(checkpoint)
    dataset = home / "out/starpilot/dataset"
    dataset.rename(moved := home / "moved")
    with pytest.raises(UserError, match="which is not there"):
        probe(config)
    moved.rename(dataset)


def test_a_path_that_is_no_dataset_is_named(home):
    with pytest.raises(UserError, match="is no dataset"):
        probe(ProbeConfig((home / "out",), (home,), home / "x"))
    with pytest.raises(UserError, match="none of the runs"):
        probe(ProbeConfig((home / "nothing",), (home / "held",), home / "x"))
