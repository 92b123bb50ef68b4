import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from turngym.envs.core import EnvFailure
from turngym.envs.math import helper
from turngym.tools import process

SCRIPT = """
import os, runpy, sys, time
def handle(request):
    time.sleep(request.get("sleep", 0))
    if request.get("die"):
        os._exit(3)
    return {"pid": os.getpid(), **request}
runpy.run_path(sys.argv[1])["serve"](handle)
"""


@pytest.fixture
def echo(tmp_path):
    (tmp_path / "echo.py").write_text(SCRIPT)
    echo = helper.Helper(tmp_path / "echo.py", "echo")
    yield echo
    if echo.child is not None:
        echo.child.close()


def test_one_child_serves_all_threads(echo):
    assert echo.child is None
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda n: echo.ask({"n": n}, 30), range(20)))
    assert [reply["n"] for reply in replies] == list(range(20))
    assert len({reply["pid"] for reply in replies}) == 1


@pytest.mark.parametrize("trouble", [{"die": True}, {"sleep": 30}])
def test_a_child_that_died_or_hangs_is_replaced(echo, trouble):
    first = echo.ask({}, 30)["pid"]
    with pytest.raises((process.Died, process.Deadline)):
        echo.ask(trouble, 0.3)
    second = echo.ask({}, 30)["pid"]
    os.kill(second, signal.SIGKILL)
    with pytest.raises(process.Died):
        echo.ask({}, 30)
    assert len({first, second, echo.ask({}, 30)["pid"]}) == 3


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_a_child_of_its_own(echo):
    mine = echo.ask({}, 30)["pid"]
    with echo._lock:  # as if another thread were asking: nobody will give it back in the other process
        pid = os.fork()
        if pid == 0:
            os._exit(0 if echo.ask({}, 30)["pid"] != mine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert echo.ask({}, 30)["pid"] == mine


def test_a_child_that_cannot_start_is_a_failure_of_the_grader(echo):
    echo.script.write_text("raise ImportError('no such thing')")
    with pytest.raises(
        helper.GraderFailure, match=r"(?s)cannot start: .*no such thing.*; check that echo imports"
    ) as caught:
        echo.ask({}, 30)
    assert isinstance(caught.value, EnvFailure)
