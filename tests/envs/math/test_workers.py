import pytest

from turngym.envs.core import EnvFailure
from turngym.envs.math.workers import GraderFailure, Workers
from turngym.tools import process


@pytest.fixture
def workers(tmp_path, monkeypatch):
    made = Workers("worker.py", "math-verify", size=1)
    made.script = tmp_path / "echo.py"
    made.script.write_text("import runpy, sys; runpy.run_path(sys.argv[1])['serve'](lambda request: request)")
    yield made
    made.close()


def test_the_script_is_one_of_this_folder():
    assert Workers("worker.py", "math-verify").script.is_file()


def test_requests_are_answered(workers):
    assert workers.ask({"n": 1}, 30) == {"n": 1}


def test_what_is_the_fault_of_a_request_is_no_failure_of_the_grader(workers):
    workers.script.write_text(
        "import os, runpy, sys; runpy.run_path(sys.argv[1])['serve'](lambda request: os._exit(3) if request else {})"
    )
    with pytest.raises(process.Died, match="exit code 3"):
        workers.ask({"n": 1}, 30)


def test_workers_that_cannot_start_are_a_failure_of_the_grader(workers):
    workers.script.write_text("raise ImportError('no such thing')")
    with pytest.raises(
        GraderFailure, match=r"(?s)cannot start: .*no such thing.*; check that math-verify imports"
    ) as one:
        workers.ask({}, 30)
    assert isinstance(one.value, EnvFailure)
