import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gsf.sweep.workers import run_all
from toys import toys


@pytest.mark.parametrize("workers", [1, 2])
def test_a_job_that_fails_or_crashes_is_named_and_the_others_go_on(tmp_path, workers):
    jobs = toys(tmp_path, "crash", "well", "refused", "full disk", "well")
    reasons = run_all(jobs, workers)
    assert list(reasons) == [jobs[0], jobs[2], jobs[3]]
    assert reasons[jobs[0]] == "ValueError: a bug"
    assert reasons[jobs[2]] == "bad input"
    assert "No space left" in reasons[jobs[3]]
    if workers > 1:
        assert "shown by 1-well" in (tmp_path / "1-well.log").read_text()
        assert "ValueError" in (tmp_path / "0-crash.log").read_text()


def test_a_killed_process_costs_its_own_job_only(tmp_path):
    jobs = toys(tmp_path, "killed", "well", "well")
    reasons = run_all(jobs, workers=2)
    assert list(reasons) == [jobs[0]]
    assert reasons[jobs[0]].startswith("its process ended with code -9; see ")


def test_an_interrupt_ends_all_processes_at_once_and_starts_no_other(tmp_path):
    code = (
        "import signal, sys; from pathlib import Path; sys.path.insert(0, sys.argv[2])\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a job of a shell ignores it\n"
        "from toys import toys; from gsf.sweep.workers import run_all\n"
        "if __name__ == '__main__': run_all(toys(Path(sys.argv[1]), *['sleep'] * 5), workers=2)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    home = tmp_path / "home"
    here = str(Path(__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, script, home, here], stderr=subprocess.DEVNULL, start_new_session=True
    )
    started = time.monotonic()
    while len(list(home.glob("*.pid"))) < 2:
        assert time.monotonic() - started < 60
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
    assert process.wait(timeout=30) != 0
    assert len(list(home.glob("*.pid"))) == 2
    for file in home.glob("*.pid"):
        assert not _is_alive(int(file.read_text()))


def _is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().split()[2] != "Z"
