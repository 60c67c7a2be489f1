"""Cores are counted as the process may use them; fake cgroup trees stand for real machines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gsf.core import cores
from gsf.core.cores import usable_cores


def process(tmp_path: Path, cgroup: str, kind: str, root: str = "/", options: str = "rw") -> Path:
    """A directory like /proc/self of a process in `cgroup`, whose tree is tmp_path/tree."""
    found = tmp_path / "self"
    found.mkdir()
    (found / "cgroup").write_text(cgroup)
    (found / "mountinfo").write_text(
        "22 27 0:21 / /proc rw,nosuid shared:12 - proc proc rw\n"
        f"30 23 0:26 {root} {tmp_path / 'tree'} rw,nosuid shared:4 - {kind} cgroup {options}\n"
    )
    return found


def write(path: Path, **files: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / f"cpu.{name}").write_text(text + "\n")


def test_version_2_counts_the_own_cgroup_and_all_above(tmp_path):
    me = process(tmp_path, "0::/user/app\n", "cgroup2")
    write(tmp_path / "tree/user/app", max="max 100000")
    write(tmp_path / "tree/user", max="150000 100000")
    write(tmp_path / "tree/other", max="10000 100000")
    assert list(cores._quotas(me)) == [1.5]
    write(tmp_path / "tree/user/app", max="50000 100000")
    assert list(cores._quotas(me)) == [0.5, 1.5]


def test_version_1_reads_the_cpu_controller_alone(tmp_path):
    groups = "4:memory:/jobs\n3:cpuset:/jobs\n2:cpu,cpuacct:/jobs/7\n0::/\n"
    me = process(tmp_path, groups, "cgroup", options="rw,cpu,cpuacct")
    write(tmp_path / "tree", cfs_quota_us="-1", cfs_period_us="100000")
    write(tmp_path / "tree/jobs", cfs_quota_us="300000", cfs_period_us="100000")
    write(tmp_path / "tree/jobs/7", cfs_quota_us="-1", cfs_period_us="100000")
    assert list(cores._quotas(me)) == [3.0]


def test_a_tree_of_another_controller_says_nothing(tmp_path):
    me = process(tmp_path, "4:memory:/jobs\n2:cpu:/jobs\n", "cgroup", options="rw,memory")
    write(tmp_path / "tree/jobs", cfs_quota_us="100000", cfs_period_us="100000")
    assert list(cores._quotas(me)) == []


@pytest.mark.parametrize("path", ["/docker/abc", "/"])
def test_a_container_sees_its_own_cgroup_as_the_root(tmp_path, path):
    me = process(tmp_path, f"0::{path}\n", "cgroup2", root="/docker/abc")
    write(tmp_path / "tree", max="200000 100000")
    assert list(cores._quotas(me)) == [2.0]


@pytest.mark.parametrize("text", ["", "max", "lots 100000", "100000 0", "max 100000"])
def test_what_cannot_be_read_is_no_limit(tmp_path, text):
    me = process(tmp_path, "0::/a\n", "cgroup2")
    write(tmp_path / "tree/a", max=text)
    assert list(cores._quotas(me)) == []
    assert list(cores._quotas(tmp_path / "nowhere")) == []


@pytest.mark.parametrize(
    ("affinity", "quotas", "expected"),
    [(8, [], 8), (8, [1.5, 4.0], 2), (8, [0.1], 1), (2, [16.0], 2), (1, [], 1)],
)
def test_the_least_limit_counts_rounded_up(monkeypatch, affinity, quotas, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)), raising=False)
    monkeypatch.setattr(cores, "_quotas", lambda _: iter(quotas))
    assert usable_cores() == expected


def test_a_system_without_affinity_counts_all_cores(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    monkeypatch.setattr(cores, "_quotas", lambda _: iter([]))
    assert usable_cores() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1


def test_threads_sleep_when_they_wait_and_what_the_user_set_stays(monkeypatch):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cores, "usable_cores", lambda: 3)
    cores.be_a_good_neighbour()
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    assert os.environ["GOMP_SPINCOUNT"] == str(cores.SPIN_COUNT)
    assert cores.threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    cores.be_a_good_neighbour()
    assert cores.threads() == 2
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    cores.be_a_good_neighbour()
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert cores.threads() == 3


CODE = """
import os, sys
before = dict(os.environ)
import gsf
assert dict(os.environ) == before and "torch" not in sys.modules
{start}
assert "torch" not in sys.modules
print(os.environ["OMP_WAIT_POLICY"], {n_threads})
"""
BY_TORCH, TOLD = "__import__('torch').get_num_threads()", "os.environ['OMP_NUM_THREADS']"


@pytest.mark.parametrize(
    ("start", "n_threads"),
    [("gsf.report", BY_TORCH), ("from gsf import cli; cli.main(['data', 'list'])", TOLD)],
    ids=["name", "verb"],
)
def test_a_verb_or_a_name_decides_before_torch_is_loaded_and_an_import_changes_nothing(
    start, n_threads
):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    command = [sys.executable, "-c", CODE.format(start=start, n_threads=n_threads)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split()[-2:] == ["passive", str(usable_cores())], done.stderr
