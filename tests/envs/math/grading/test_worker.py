import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turngym.envs.math.grading import grader as grade_module
from turngym.envs.math.grading import worker
from turngym.envs.math.grading.grader import GraderFailure, MathGrader
from turngym.envs.math.grading.grader import ask as ask_workers
from turngym.envs.math.reasoning import worker as reasoning_worker
from turngym.envs.outcomes import EnvFailure
from turngym.tools.subprocesses import messages, process


@pytest.fixture(scope="module")
def ask():
    child = process.Child([sys.executable, "-I", worker.__file__, messages.__file__])
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

    monkeypatch.setattr(worker, "_load_math_verify", lambda: (parse, None))
    reply = worker.handle({"gold": "x", "answer": "y", "seconds": 60.0})
    assert reply == {"equal": False, "error": "MemoryError"}


@pytest.mark.parametrize(
    ("gold", "answer", "equal"),
    [
        *(
            ("1", "1", True),
            ("x", r"\frac{1}{0}", False),
            ("", "", False),
            ("x", "", False),
            ("x", r"\text{}", False),
        ),
        *((r"\frac{1}{2^{98}}", r"\frac{1}{2^{99}}", False), ("x^2=-1", "x^2=-2", False)),
    ],
)
def test_texts_that_say_nothing_are_equal_to_nothing(ask, gold, answer, equal):
    assert ask(gold, answer)["equal"] is equal


@pytest.mark.slow
def test_an_answer_that_takes_for_ever_ends_without_a_parent(ask):
    # The last that this child is asked.
    with pytest.raises(process.Died, match=f"exit code -{signal.SIGALRM:d}"):
        ask("3", "9^{9^{9^9}}", seconds=0.1)


def test_it_needs_nothing_of_the_package():
    code = (
        f"import runpy, sys; runpy.run_path({worker.__file__!r}); print('turngym' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path("/"),
    )
    assert run.stdout == "False\n"


@pytest.fixture
def workers(tmp_path, monkeypatch):
    made = process.Pool(tmp_path / "echo.py", size=1)
    made.script.write_text(
        "import runpy, sys; runpy.run_path(sys.argv[1])['serve'](lambda request: request)"
    )
    yield made
    made.close()


def test_requests_are_answered(workers):
    assert ask_workers(workers, "math-verify", {"n": 1}, 30) == {"n": 1}


def test_what_is_the_fault_of_a_request_is_no_failure_of_the_grader(workers):
    workers.script.write_text(
        "import os, runpy, sys; runpy.run_path(sys.argv[1])['serve'](lambda request: os._exit(3) if request else {})"
    )
    with pytest.raises(process.Died, match="exit code 3"):
        ask_workers(workers, "math-verify", {"n": 1}, 30)


def test_workers_that_cannot_start_are_a_failure_of_the_grader(workers):
    workers.script.write_text("raise ImportError('no such thing')")
    with pytest.raises(
        GraderFailure, match=r"(?s)cannot start: .*no such thing.*; check that math-verify imports"
    ) as one:
        ask_workers(workers, "math-verify", {}, 30)
    assert isinstance(one.value, EnvFailure)


def test_it_scores_and_says_why_it_cannot():
    reasoning_gym = pytest.importorskip("reasoning_gym")
    entry = {"seed": 0, "size": 10, "index": 0}
    gold = reasoning_gym.create_dataset("chain_sum", seed=0, size=10)[0]["answer"]
    assert reasoning_worker.handle({}) == {}
    assert reasoning_worker.handle({"dataset": "chain_sum", "answer": gold, **entry}) == {
        "score": 1.0
    }
    assert reasoning_worker.handle({"dataset": "chain_sum", "answer": "no", **entry}) == {
        "score": 0.0
    }
    assert reasoning_worker.handle(
        {"dataset": "prime_factorization", "answer": "none", **entry}
    ) == {
        "score": 0.0,
        "error": "ValueError",
    }


def test_the_scorer_of_reasoning_gym_needs_nothing_of_the_package():
    seen = "print('turngym' in sys.modules, 'reasoning_gym' in sys.modules)"
    code = f"import runpy, sys; runpy.run_path({reasoning_worker.__file__!r}); {seen}"
    run = subprocess.run(
        [sys.executable, "-I", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path("/"),
    )
    assert run.stdout == "False False\n"


def graded(gold, answer, grader=None):
    return (grader or MathGrader()).grade(completion=f"\\boxed{{{answer}}}", gold=gold)


def test_closing_ends_the_processes_until_the_next_answer():
    assert graded(r"\sqrt{2}", r"\frac{2}{\sqrt{2}}").score == 1.0
    pids = [worker.pid for worker in grade_module._workers._answer_counts]
    MathGrader.close()
    assert not grade_module._workers._answer_counts
    assert pids and not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert graded(r"\sqrt{3}", r"\frac{3}{\sqrt{3}}").score == 1.0


def test_an_answer_that_hangs_earns_nothing_and_the_next_one_is_graded():
    impatient = MathGrader(deadline=0.5)
    assert graded(r"2\sqrt{2}", r"\sqrt{8}").score == 1.0
    hostile = graded(r"\sqrt{3}", "9^{9^{9^9}}", impatient)
    assert (hostile.score, hostile.how, hostile.error) == (
        0.0,
        "timeout",
        "comparing took over 0.5 s",
    )
    assert graded(r"3\sqrt{2}", r"\sqrt{18}").score == 1.0


def test_no_parser_that_evaluates_is_even_imported_here():
    code = (
        "import sys; from turngym.envs.math.grading.grader import MathGrader\n"
        "score = MathGrader().grade(completion=r'\\boxed{\\sqrt{8}}', gold=r'2\\sqrt{2}').score\n"
        "print(score, {'sympy', 'math_verify', 'latex2sympy2_extended'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "1.0 set()\n"


def test_threads_share_one_worker_and_get_their_own_verdicts():
    pairs = [(f"{n}\\sqrt{{2}}", f"\\sqrt{{{2 * n * n + n % 2}}}") for n in range(1, 25)]
    with ThreadPoolExecutor(8) as pool:
        scores = list(pool.map(lambda pair: graded(*pair).score, pairs))
    assert scores == [float(n % 2 == 0) for n in range(1, 25)]


def test_a_worker_that_died_is_replaced():
    assert graded(r"2\sqrt{2}", r"\sqrt{8}").score == 1.0
    first = [worker.pid for worker in grade_module._workers._answer_counts]
    for pid in first:
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert graded(r"4\sqrt{2}", r"\sqrt{32}").score == 1.0
    assert not set(first) & {worker.pid for worker in grade_module._workers._answer_counts}


def test_a_worker_that_cannot_start_is_a_failure_and_not_a_reward(monkeypatch):
    monkeypatch.setattr(grade_module, "_workers", process.Pool(Path(worker.__file__)))
    monkeypatch.setattr(process.sys, "executable", "/nowhere/python")
    assert graded("42", "42.0").score == 1.0
    with pytest.raises(
        GraderFailure, match=r"(?s)process cannot start: .* check that math-verify imports"
    ):
        graded(r"2\sqrt{2}", r"\sqrt{8}")
    assert issubclass(GraderFailure, EnvFailure)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_grades_with_a_worker_of_its_own():
    assert graded(r"2\sqrt{2}", r"\sqrt{8}").score == 1.0
    pid = os.fork()
    if pid == 0:
        os._exit(0 if graded(r"5\sqrt{2}", r"\sqrt{50}").score == 1.0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert graded(r"6\sqrt{2}", r"\sqrt{72}").score == 1.0
