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
    jobs = toys(tmp_path, "crash", "well", "refused", "full disk", "well", "exit")
    reasons = run_all(jobs, workers)
    assert list(reasons) == [jobs[0], jobs[2], jobs[3], jobs[5]]
    assert reasons[jobs[0]] == "ValueError: a bug"
    assert reasons[jobs[2]] == "bad input"
    assert "No space left" in reasons[jobs[3]]
    assert reasons[jobs[5]] == "SystemExit: 0"
    if workers > 1:
        assert "shown by 1-well" in (tmp_path / "1-well.log").read_text()
        assert "ValueError" in (tmp_path / "0-crash.log").read_text()


def test_a_process_does_one_job_after_another(tmp_path):
    jobs = toys(tmp_path, *["well", "crash", "exit", "well", "well", "well"])
    run_all(jobs, workers=2)
    shown = [job.out.with_name(f"{job.out.name}.log").read_text().split()[:5] for job in jobs]
    assert [words[2] for words in shown] == [job.out.name for job in jobs]
    assert len({words[4] for words in shown}) == 2


def test_a_killed_process_costs_its_own_job_only(tmp_path):
    jobs = toys(tmp_path, "killed", "well", "well")
    reasons = run_all(jobs, workers=2)
    assert list(reasons) == [jobs[0]]
    assert reasons[jobs[0]].startswith("its process ended with code -9; see ")


@pytest.fixture
def sweep(tmp_path):
    """Five jobs, two at a time, in a process of their own, once both are at work."""
    code = (
        "import signal, sys; from pathlib import Path; sys.path.insert(0, sys.argv[2])\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a job of a shell ignores it\n"
        "from toys import toys; from gsf.sweep.workers import run_all\n"
        "if __name__ == '__main__':\n"
        "    run_all(toys(Path(sys.argv[1]), *[sys.argv[3]] * 5), workers=2)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    here = str(Path(__file__).parents[1])

    def start(act):
        process = subprocess.Popen(
            [sys.executable, script, tmp_path / "home", here, act],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        wait_for(lambda: len(pids(tmp_path)) == 2)
        return process

    return start


def pids(home):
    return [int(file.read_text()) for file in home.glob("home/*.pid")]


def wait_for(what):
    started = time.monotonic()
    while not what():
        assert time.monotonic() - started < 60
        time.sleep(0.05)


def test_an_interrupt_lets_all_processes_save_and_starts_no_other(tmp_path, sweep):
    process = sweep("sleep")
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: it reaches the workers, too
    said = process.communicate(timeout=30)[1].splitlines()[-1]
    assert "0 of 5 runs are done; " in said
    assert said.count("half of it is saved") == 2
    assert len(pids(tmp_path)) == 2
    assert not any(map(_is_alive, pids(tmp_path)))


def test_a_second_interrupt_kills_those_that_have_not_saved(tmp_path, sweep):
    process = sweep("deaf")
    process.send_signal(signal.SIGINT)
    while "stopping as soon as all is saved" not in (line := process.stderr.readline()):
        assert line.endswith(" starts\n")
    assert all(map(_is_alive, pids(tmp_path)))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    wait_for(lambda: not any(map(_is_alive, pids(tmp_path))))


def test_workers_die_with_their_parent_however_it_dies(tmp_path, sweep):
    process = sweep("deaf")
    process.kill()
    process.communicate()
    wait_for(lambda: not any(map(_is_alive, pids(tmp_path))))


def _is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().split()[2] != "Z"
