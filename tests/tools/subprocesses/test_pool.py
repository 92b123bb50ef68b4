import gc
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turngym.tools.subprocesses import process
from turngym.tools.subprocesses.process import Pool, StartFailure

SCRIPT = """
import os, runpy, sys, time
kept = []
def handle(request):
    time.sleep(request.get("sleep", 0))
    if request.get("die"):
        os._exit(3)
    kept.append(bytearray(request.get("keep_mb", 0) * 2**20))
    if request.get("take_mb"):
        try:
            bytearray(request["take_mb"] * 2**20)
        except MemoryError:
            return {"pid": os.getpid(), "refused": True}
    return {"pid": os.getpid(), **request}
runpy.run_path(sys.argv[1])["serve"](handle, sized=True)
"""


@pytest.fixture
def make(tmp_path):
    (tmp_path / "echo.py").write_text(SCRIPT)
    made: list[Pool] = []

    def make(**options: int) -> Pool:
        made.append(Pool(tmp_path / "echo.py", **options))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def gone(pid: int) -> bool:
    """Whether a process has ended and was reaped, which its replacement may still have to do."""
    until = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > until:
            return False
        threading.Event().wait(0.01)
    return True


def test_workers_start_when_they_are_needed_and_no_more_than_the_size(make):
    pool = make(size=2)
    assert not pool._answer_counts
    pids = {pool.ask({"n": 1}, 30)["pid"] for _ in range(5)}
    assert len(pids) == 1
    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda n: pool.ask({"n": n, "sleep": 0.1}, 30), range(16)))
    assert [reply["n"] for reply in replies] == list(range(16))
    assert (
        pids < {reply["pid"] for reply in replies} == {worker.pid for worker in pool._answer_counts}
    )
    assert len(pool._answer_counts) == 2
    assert set(replies[0]) == {"pid", "n", "sleep"}


def test_an_answer_that_hangs_delays_no_other(make):
    pool = make(size=2)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: pool.ask({"sleep": 0.2}, 30), range(2)))
        hung = threads.submit(pool.ask, {"sleep": 1000}, 600)
        assert [pool.ask({"n": n}, 30)["n"] for n in range(20)] == list(range(20))
        assert not hung.done()
        for pid in [worker.pid for worker in pool._answer_counts]:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(process.Died):
            hung.result()


def test_waiting_for_a_worker_does_not_count_as_the_time_of_an_answer(make):
    pool = make(size=1)
    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda n: pool.ask({"n": n, "sleep": 0.2}, 0.8), range(8)))
    assert [reply["n"] for reply in replies] == list(range(8))


@pytest.mark.parametrize("trouble", [{"die": True}, {"sleep": 1000}])
def test_a_worker_that_died_or_hangs_is_replaced_and_reaped(make, trouble):
    pool = make(size=1)
    first = pool.ask({}, 30)["pid"]
    with pytest.raises((process.Died, process.Deadline)):
        pool.ask(trouble, 0.3)
    assert pool.ask({}, 30)["pid"] != first
    assert gone(first)


def test_a_worker_that_died_while_it_was_free_is_noticed_before_it_is_asked(make):
    pool = make(size=1)
    first = pool.ask({}, 30)["pid"]
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert pool.ask({}, 30)["pid"] != first


def test_a_worker_is_replaced_after_its_answers_and_when_it_has_grown(make):
    pool = make(size=1, answers=3)
    pids = [pool.ask({}, 30)["pid"] for _ in range(7)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 1]
    pool = make(size=1, grown_mb=64)
    assert pool.ask({}, 30)["pid"] == (small := pool.ask({}, 30)["pid"])
    assert pool.ask({"keep_mb": 100}, 30)["pid"] == small
    assert pool.ask({}, 30)["pid"] != small


def test_a_worker_gets_no_more_memory_than_its_limit(make):
    pool = make(size=1, memory_mb=300)
    assert "refused" not in pool.ask({"take_mb": 100}, 30)
    assert pool.ask({"take_mb": 400}, 30)["refused"]


def test_a_request_that_cannot_be_sent_costs_no_worker(make):
    pool = make(size=1)
    first = pool.ask({}, 30)["pid"]
    with pytest.raises(TypeError):
        pool.ask({"n": object()}, 30)
    assert pool.ask({}, 30)["pid"] == first


def test_closing_ends_the_workers_and_the_next_request_starts_a_new_one(make):
    pool = make(size=1)
    first = pool.ask({}, 30)["pid"]
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    pool.close()
    assert not pool._answer_counts and not Path(f"/proc/{first}").exists()
    assert len(list(Path("/proc/self/fd").iterdir())) < descriptors
    second = pool.ask({}, 30)["pid"]
    del pool
    make.__closure__[0].cell_contents.clear()
    gc.collect()
    assert second != first and gone(second)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_workers_of_its_own(make):
    pool = make(size=1)
    mine = pool.ask({}, 30)["pid"]
    with (
        pool._request_slots
    ):  # as if another thread were asking: nobody will give it back in the other process
        pid = os.fork()
        if pid == 0:
            os._exit(0 if pool.ask({}, 30)["pid"] != mine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert pool.ask({}, 30)["pid"] == mine


def test_a_script_that_cannot_start_is_told_to_all_who_wait(make):
    pool = make(size=2)
    pool.script.write_text("raise ImportError('no such thing')")
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(pool.ask, {}, 30) for _ in range(4)]
        for one in waiting:
            with pytest.raises(StartFailure, match=r"(?s)echo.py cannot start: .*no such thing"):
                one.result()
    pool.script.write_text(SCRIPT)
    assert pool.ask({"n": 1}, 30)["n"] == 1


def test_where_no_thread_can_start_the_next_request_starts_the_worker(make, monkeypatch):
    pool = make(size=1, answers=1)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    pids = [pool.ask({}, 30)["pid"] for _ in range(2)]
    assert len(set(pids)) == 2 and all(map(gone, pids))


def test_a_replacement_that_could_not_start_is_tried_again_by_the_next_request(make):
    pool = make(size=1, answers=2)
    pool.ask({}, 30)
    pool.script.write_text("raise ImportError('no such thing')")
    pool.ask({}, 30)
    with pytest.raises(process.Died, match="no such thing"):
        pool._free_worker_getters[0]()
    pool.script.write_text(SCRIPT)
    assert pool.ask({"n": 1}, 30)["n"] == 1


def test_an_interrupt_while_asking_costs_the_worker_and_no_more(make, monkeypatch):
    pool = make(size=1)
    first = pool.ask({}, 30)["pid"]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(process.messages, "read_frame", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pool.ask({}, 30)
    assert pool.ask({}, 30)["pid"] != first


def test_a_pool_of_nothing_is_refused(make):
    with pytest.raises(ValueError, match="a pool of 0 workers"):
        make(size=0)
