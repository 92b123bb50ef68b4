"""Tasks in processes of their own: begun again when one dies, given up after some deaths, ended with the parent."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from turngym.tests.support import workers as tasks
from turngym.training.comparison.workers import DEATHS, WorkerDied, in_processes

pytestmark = pytest.mark.slow


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_results_come_as_tasks_end_and_no_more_run_than_may(tmp_path):
    last = tmp_path / "last"
    found = in_processes(
        [partial(tasks.wait_for, last), partial(tasks.double, 1), partial(tasks.double, 2)], 2
    )
    first = [next(found), next(found)]
    last.touch()
    assert (first, list(found)) == ([2, 4], ["last"])
    assert list(in_processes([], 2)) == []


def test_a_task_whose_process_dies_is_begun_again(tmp_path):
    said = []
    doing = [partial(tasks.die, tmp_path / "marks", DEATHS - 1), partial(tasks.double, 3)]
    found = list(in_processes(doing, 2, say=lambda index, line: said.append((index, line))))
    assert sorted(map(str, found)) == ["6", f"begun {DEATHS} times"]
    again = "its process was killed by SIGKILL; begun again ({} of at most 4 times)"
    assert said == [(0, again.format(time)) for time in range(1, DEATHS)]


def test_a_task_that_dies_every_time_is_given_up_and_the_others_go_on(tmp_path):
    doing = [partial(tasks.die, tmp_path / "marks", 100), partial(tasks.double, 3)]
    found = list(in_processes(doing, 1, given_up=lambda index, why: f"{index}: {why}"))
    why = f"its process was killed by SIGKILL, the last of {DEATHS} times; is there memory for 1 at a time?"
    assert found == [f"0: {why}", 6]
    with pytest.raises(WorkerDied, match="its process ended with status 7, the last of 5 times"):
        list(in_processes([partial(tasks.end, 7)], 1))


def test_what_a_task_raises_comes_out_with_its_traceback():
    with pytest.raises(ValueError, match="no, not that") as caught:
        list(in_processes([partial(tasks.refuse, "no, not that")], 1))
    assert (
        str(caught.value) == "no, not that"
        and "raise ValueError(text)" in caught.value.__notes__[0]
    )
    with pytest.raises(RuntimeError, match="of a class") as caught:
        list(in_processes([tasks.raise_local], 1))
    assert str(caught.value) == "LocalError: of a class that nobody else can import"


def test_processes_end_when_the_one_that_began_them_is_killed(tmp_path):
    marks = tmp_path / "marks"
    code = (
        "from functools import partial; from pathlib import Path\n"
        "from turngym.tests.support import workers as tasks\n"
        "from turngym.training.comparison.workers import in_processes\n"
        f"if __name__ == '__main__': list(in_processes([partial(tasks.stay, Path({str(marks)!r}))], 1))\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    with subprocess.Popen([sys.executable, str(script)]) as parent:
        while not (marks.is_file() and marks.read_text()):
            assert parent.poll() is None
            time.sleep(0.05)
        parent.send_signal(signal.SIGKILL)
    child, end = int(marks.read_text()), time.monotonic() + 30
    while alive(child) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(child)


def test_processes_end_when_nobody_waits_for_more(tmp_path):
    marks = tmp_path / "marks"
    found = in_processes([partial(tasks.double, 1), partial(tasks.stay, marks)], 2)
    assert next(found) == 2
    while not (marks.is_file() and marks.read_text()):
        time.sleep(0.05)
    found.close()
    assert not alive(int(marks.read_text()))
