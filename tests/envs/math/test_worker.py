import signal
import subprocess
import sys
from pathlib import Path

import pytest

from turngym.envs.core import EnvFailure
from turngym.envs.math import reasoning_worker, worker
from turngym.envs.math.grade import GraderFailure, Workers
from turngym.tools import frames, process


@pytest.fixture(scope="module")
def ask():
    child = process.Child([sys.executable, "-I", worker.__file__, frames.__file__])
    assert child.request({}, 60).keys() == {"memory_mb"}

    def ask(gold: str, answer: str, seconds: float = 60.0) -> dict:
        reply = child.request({"gold": gold, "answer": answer, "seconds": seconds}, 60)
        assert 10 < reply.pop("memory_mb") < 1000
        return reply

    yield ask
    child.close()


def test_it_compares(ask):
    assert ask(r"\frac{\sqrt{8}}{2}", r"\sqrt{2}") == {"equal": True}
    assert ask(r"\sqrt{3}", r"\sqrt{2}") == {"equal": False}


def test_it_says_why_it_cannot_compare(monkeypatch):
    def parse(_: str) -> None:
        raise MemoryError

    monkeypatch.setattr(worker, "_math_verify", lambda: (parse, None))
    reply = worker.handle({"gold": "x", "answer": "y", "seconds": 60.0})
    assert reply == {"equal": False, "error": "MemoryError"}


@pytest.mark.parametrize(
    ("gold", "answer", "equal"),
    [
        *(("1", "1", True), ("x", r"\frac{1}{0}", False), ("", "", False), ("x", "", False), ("x", r"\text{}", False)),
        *((r"\frac{1}{2^{98}}", r"\frac{1}{2^{99}}", False), ("x^2=-1", "x^2=-2", False)),
    ],
)
def test_texts_that_say_nothing_are_equal_to_nothing(ask, gold, answer, equal):
    assert ask(gold, answer)["equal"] is equal


def test_an_answer_that_takes_for_ever_ends_without_a_parent(ask):
    # The last that this child is asked.
    with pytest.raises(process.Died, match=f"exit code -{signal.SIGALRM:d}"):
        ask("3", "9^{9^{9^9}}", seconds=0.1)


def test_it_needs_nothing_of_the_package():
    code = f"import runpy, sys; runpy.run_path({worker.__file__!r}); print('turngym' in sys.modules)"
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, cwd=Path("/"))
    assert run.stdout == "False\n"


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


def test_it_scores_and_says_why_it_cannot():
    reasoning_gym = pytest.importorskip("reasoning_gym")
    entry = {"seed": 0, "size": 10, "index": 0}
    gold = reasoning_gym.create_dataset("chain_sum", seed=0, size=10)[0]["answer"]
    assert reasoning_worker.handle({}) == {}
    assert reasoning_worker.handle({"dataset": "chain_sum", "answer": gold, **entry}) == {"score": 1.0}
    assert reasoning_worker.handle({"dataset": "chain_sum", "answer": "no", **entry}) == {"score": 0.0}
    assert reasoning_worker.handle({"dataset": "prime_factorization", "answer": "none", **entry}) == {
        "score": 0.0,
        "error": "ValueError",
    }


def test_the_scorer_of_reasoning_gym_needs_nothing_of_the_package():
    seen = "print('turngym' in sys.modules, 'reasoning_gym' in sys.modules)"
    code = f"import runpy, sys; runpy.run_path({reasoning_worker.__file__!r}); {seen}"
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, cwd=Path("/"))
    assert run.stdout == "False False\n"
