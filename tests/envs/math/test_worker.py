import signal
import subprocess
import sys
from pathlib import Path

import pytest

from turngym.envs.math import worker
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
