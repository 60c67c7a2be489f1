"""A sweep on a real Ray cluster whose nodes share no disk with the driver nor with each other."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import mines
import ray_nodes
from given import given, on_command_line
from gsf.core.errors import UserError
from gsf.sweep import cluster as on_cluster
from gsf.sweep.cluster import Queue, connected
from gsf.sweep.node import Outcome
from gsf.sweep.options import RunConfig
from gsf.sweep.run import run
from gsf.sweep.store import JOURNAL, read_journal
from gsf.sweep.units import Unit
from recordings import save_short_episodes

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 2}
OWN = """
import os
from pathlib import Path

from gsf.learn.bases.bc import BC


class Apart(BC):
    name = "apart"

    def __init__(self, config, spec):
        super().__init__(config, spec)
        on_a_node = "GSF_SCRATCH" in os.environ
        if {check} and on_a_node and Path({out!r}).exists():
            raise RuntimeError("this node sees the driver's disk")


class Broken(BC):
    name = "broken"

    def forward(self, z, context):
        raise RuntimeError("my own fault")
"""


class Cluster:
    def __init__(self, hidden: Path) -> None:
        self.hidden = hidden
        self._process = subprocess.Popen(
            [sys.executable, ray_nodes.__file__, hidden, "2"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **TOKEN},
        )
        answer = self._answer()
        if not answer:
            self.close()  # it has said why
            pytest.fail("no cluster")
        self.address, apart = answer.split()
        self.apart = apart == "True"

    def _answer(self) -> str:
        return self._process.stdout.readline()

    def tell(self, command: str) -> None:
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        assert self._answer() == "done\n"

    def close(self) -> None:
        self._process.communicate(timeout=60)

    def driver(self, *options: str, token: bool = True) -> subprocess.Popen:
        """`gsf run` on this cluster, in the driver's own directory."""
        env = {name: x for name, x in os.environ.items() if name not in TOKEN}
        return subprocess.Popen(
            [sys.executable, "-m", "gsf", "run", "--cluster", self.address, *options],
            cwd=self.hidden,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=env | (TOKEN if token else {}),
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with contextlib.closing(Cluster(tmp_path_factory.mktemp("driver"))) as made:
        yield made


def sweep_options(home: Path) -> RunConfig:
    return RunConfig(
        out=home / "alone",
        preset="smoke",
        methods=(
            "gsf-reward",
            f"{home}/mine.py:Apart",
            "gsf-reward+label.n_bins=3",  # on the same fit
            f"{home}/mine.py:Broken",
        ),
        recordings=(str(home / "play.gsfrec"),),
        options=given(
            "materialise.transitions=3000",
            "train.grad_steps=30",
            "train.batch=8",
            "evaluate.n_seen=2",
            "evaluate.n_validation=0",
            'evaluate.modes=["greedy"]',
            "evaluate.n_unseen=2",
            "gsf.tau=0.25",
        ),
        report=False,
        workers=1,
    )


@pytest.mark.slow
def test_a_sweep_outlives_its_driver_and_a_node_and_ends_as_on_one_machine(cluster):
    home, out = cluster.hidden, cluster.hidden / "out"
    save_short_episodes(home)
    (home / "mine.py").write_text(OWN.format(check=cluster.apart, out=str(out)))
    mines.lay(home)
    config = sweep_options(home)
    command = ["--preset", "smoke", "--out", "out", "--games", "starpilot"]
    command += ["--methods", *config.methods, "--recordings", *config.recordings]
    command += [*on_command_line(config.options), "--no-report"]

    first = cluster.driver(*command)
    _wait_for(out, "*/*/seed0/checkpoint.pt", 1, first)
    first.kill()
    first.communicate()
    second = cluster.driver(*command)
    _wait(lambda: max(_attempts(out).values()) > 1, second)  # it hands out work again
    _wait_for(out, "*/*/seed0/checkpoint.pt", 2, second)
    cluster.tell("kill 0")
    cluster.tell("add")
    said = second.communicate(timeout=300)[1]

    assert second.returncode == 2
    assert said.count("my own fault") == 1, said
    assert "failed: starpilot broken seed0: RuntimeError: my own fault" in said
    assert "1 of 4 runs failed" in said

    with pytest.raises(UserError, match="1 of 4 runs failed"):
        run(config)
    rows = {x.relative_to(config.out): x.read_bytes() for x in config.out.rglob("returns.csv")}
    assert len(rows) == 4  # random, apart, gsf-reward, its variant
    assert {name: (out / name).read_bytes() for name in rows} == rows
    assert (out / "starpilot/labels-reward-mc+label.n_bins=3/label.npy").is_file()
    assert len([name for name in _attempts(out) if name.startswith("starpilot/gvf-")]) == 1
    assert not (out / "starpilot/dataset").exists()  # it never travelled
    assert not mines.gone_off(home)


def _wait_for(out: Path, pattern: str, n: int, driver: subprocess.Popen) -> None:
    _wait(lambda: len(list(out.glob(pattern))) >= n, driver)


def _wait(until: Callable[[], bool], driver: subprocess.Popen) -> None:
    started = time.monotonic()
    while not until():
        assert driver.poll() is None, driver.stderr.read()
        assert time.monotonic() - started < 300
        time.sleep(0.05)


def _attempts(out: Path) -> dict[str, int]:
    return {unit: record.attempt for unit, record in read_journal(out / JOURNAL).items()}


@pytest.mark.slow
def test_without_its_token_or_with_no_room_a_cluster_is_refused_before_any_work(cluster, tmp_path):
    options = ("--preset", "smoke", "--out", str(tmp_path / "out"))
    refused = [cluster.driver(*options, token=False)]
    refused[0].wait()
    refused.append(cluster.driver(*options, "--cpus", "64"))
    said = [driver.communicate(timeout=120)[1] for driver in refused]
    assert [driver.returncode for driver in refused] == [2, 2]
    assert "it has a token, and this machine has none or another; set RAY_AUTH_MODE" in said[0]
    assert "no machine of the cluster has 64 CPUs and 0 GPUs" in said[1]
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".cluster"]


ASK = """
from gsf.sweep.cluster import _check_versions, _connect

ray = _connect({address!r})
alive = [x["NodeID"] for x in ray.nodes() if x["Alive"]]
assert _check_versions(ray, [*alive, "a1" * 28]) == alive
"""


@pytest.mark.slow
def test_a_machine_that_is_lost_while_a_sweep_connects_is_left_out(cluster):
    script = ASK.format(address=cluster.address)
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | TOKEN, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "a machine is gone, and left out (TaskUnschedulableError: " in done.stderr


def test_only_machines_that_are_still_there_count(monkeypatch, tmp_path):
    machines = [
        {"NodeID": x, "NodeManagerHostname": x, "Alive": True, "Resources": {"CPU": 3}}
        for x in ("one", "two")
    ]
    ray, config = SimpleNamespace(nodes=lambda: machines), RunConfig(tmp_path)
    monkeypatch.setattr(on_cluster, "_check_versions", lambda ray, asked: asked[:1])
    assert on_cluster._share(ray, config)[0] == 3
    monkeypatch.setattr(on_cluster, "_check_versions", lambda ray, asked: [])
    with pytest.raises(UserError, match=r"every machine of the cluster with 1 CPUs .* was lost"):
        on_cluster._share(ray, config)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("ray://head:10001", "gsf has to run on a machine of the cluster"),
        ("head", r"is not HOST:PORT \(or auto\)"),
        ("127.0.0.1:9", "nothing answers there .* `ray start --head` says the address"),
    ],
)
def test_an_address_that_cannot_work_is_refused_in_a_sentence(tmp_path, address, sentence):
    config = RunConfig(out=tmp_path, cluster=address)
    with pytest.raises(UserError, match=sentence), connected(config, None):
        pass


def unit(name: str, needs: str | None = None) -> Unit:
    return Unit(name, "key", None, lambda: None, needs)


def test_a_run_that_keeps_being_lost_fails_but_not_one_that_goes_on_between():
    queue = Queue([unit("run")], done=(), retries=2)
    lost = Outcome("NodeDiedError", own=False)
    for saved in (False, False, True, True, False):
        assert queue.settle(queue.take(), lost, saved) == {}
    why = "lost 3 times without getting further, the last time: NodeDiedError"
    assert queue.settle(queue.take(), lost, False) == {"run": why} == queue.reasons
    assert queue.take() is None


def test_a_run_waits_for_its_labels_and_fails_with_them():
    units = [unit("run", "labels"), unit("labels", "fit"), unit("fit"), unit("other")]
    queue = Queue(units, done=(), retries=2)
    assert [queue.take().name, queue.take().name, queue.take()] == ["fit", "other", None]
    assert queue.settle(units[2], Outcome(None), False) == {"fit": None}
    assert [queue.take().name, queue.take()] == ["labels", None]
    ended = queue.settle(units[1], Outcome("too few bins."), False)
    assert ended == {"labels": "too few bins.", "run": "labels failed: too few bins."}
    assert ended == queue.reasons
    assert not queue.waiting
