"""What somebody tries in the first hour who knows Gymnasium and other trainers, through what is public only.

Other parts of that hour: mistakes (`test_mistakes.py`), own environments (`agents/test_own_environment.py`) and what a
check says of them (`agents/check/test_tasks.py`), time limits and options (`envs/test_limit.py`), turns that are cut
(`training/test_cut_turns.py`), stock models (`training/test_stock_models.py`), a person who plays (`test_main.py`).
"""

import sys

import gymnasium
import pytest

from turngym import __main__ as cli
from turngym.agents.evaluation import run as evaluate
from turngym.envs.math import make_math
from turngym.envs.question.env import QuestionEnv
from turngym.tests.support.chat_server import ChatServer, Scripted
from turngym.tools import ToolCall, get_format

MATH = "turngym/Math-v0"
METHOD = '''"""A method of one's own."""
from turngym.training.methods.base_algorithms.grpo import grpo


def factory(scale: float = 1.0):
    """Advantages of my own."""
    return grpo()
'''


@pytest.fixture
def turngym(capsys, monkeypatch, tmp_path):
    """Run a command line in an empty folder: exit status, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*args):
        with pytest.raises(SystemExit) as left:
            cli.main([*args])
        return left.value.code, *capsys.readouterr()

    return run


def test_an_answer_in_words_is_read_by_whoever_asks_for_it():
    env = gymnasium.make(MATH, system=True, answers="lenient")
    _, info = env.reset(options={"task": 3})
    system, question = info["messages"]
    assert (system["role"], question["role"]) == ("system", "user") and "\\boxed{}" in system[
        "content"
    ]
    gold = env.unwrapped.gold()[0].removeprefix("\\boxed{").removesuffix("}")
    _, reward, *_ = env.step(f"Let me think.\n\nThe answer is {gold}.")
    assert reward == 1.0


def test_a_model_behind_a_url_is_evaluated(turngym, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(evaluate, "pick_tasks", lambda tasks, count, seed: list(range(count)))
    server = ChatServer(Scripted.of(make_math(split="test")))
    with server.run() as url:
        status, out, err = turngym(
            "eval", MATH, "--model", "m", "--base-url", url, "--episodes", "2"
        )
    assert status == 0 and "success" in out, err
    assert len(server.asked) == 2 and all(asked["model"] == "m" for asked in server.asked)


def test_a_method_of_ones_own_is_named_by_its_module(turngym, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "own_hour.py").write_text(METHOD)
    status, out, err = turngym("methods", "own_hour:factory")
    sys.modules.pop("own_hour", None)
    assert status == 0 and "Advantages of my own." in out and "scale=1.0" in out, err


def test_a_group_of_one_has_nothing_to_compare(turngym, tmp_path):
    small = [
        "--steps",
        "1",
        "--prompts",
        "1",
        "--max-tokens",
        "2",
        "--eval-tasks",
        "1",
        "--threads",
        "1",
    ]
    status, _, err = turngym("train", "--group", "1", *small, "--out", "run")
    assert (
        status == 2
        and "group is 1, but grpo judges a path by the others of its group; use --group 8" in err
    )
    assert list(tmp_path.iterdir()) == []


def test_a_plain_function_is_a_tool():
    def double(number: int) -> str:
        """Return twice a number."""
        return str(2 * number)

    math = make_math(split="train")
    env = QuestionEnv(math.tasks, math.grader, [double], max_turns=2)
    _, info = env.reset(seed=0)
    assert [tool["function"]["name"] for tool in info["tools"]] == ["double"]
    observation, *_ = env.step(get_format("hermes").render(ToolCall("double", {"number": 21})))
    assert "42" in observation
