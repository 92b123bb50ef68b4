import subprocess
import sys
from pathlib import Path

import pytest

from turngym.envs.math.reasoning_worker import __file__ as path
from turngym.envs.math.reasoning_worker import handle

reasoning_gym = pytest.importorskip("reasoning_gym")


def test_it_scores_and_says_why_it_cannot():
    entry = {"seed": 0, "size": 10, "index": 0}
    gold = reasoning_gym.create_dataset("chain_sum", seed=0, size=10)[0]["answer"]
    assert handle({}) == {}
    assert handle({"dataset": "chain_sum", "answer": gold, **entry}) == {"score": 1.0}
    assert handle({"dataset": "chain_sum", "answer": "no", **entry}) == {"score": 0.0}
    assert handle({"dataset": "prime_factorization", "answer": "none", **entry}) == {
        "score": 0.0,
        "error": "ValueError",
    }


def test_it_needs_nothing_of_the_package():
    code = (
        f"import runpy, sys; runpy.run_path({path!r}); print('turngym' in sys.modules, 'reasoning_gym' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, cwd=Path("/"))
    assert run.stdout == "False False\n"
