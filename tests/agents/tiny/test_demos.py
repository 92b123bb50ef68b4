import random
from collections import Counter

import pytest

from turngym.agents.tiny.demos import MIX, Demo, demo, demos, run
from turngym.envs.math import MathTasks, make_math_python
from turngym.envs.tasks import Task
from turngym.tools import get_format

FORM = get_format("hermes")
TASKS = MathTasks("train", (1, 2))
KINDS = {kind: [demo(TASKS[i], kind, FORM, random.Random(i)) for i in range(60)] for kind in MIX}


def code_of(one: Demo) -> str:
    call = FORM.parse(one.says[0], ("python",)).call
    assert call is not None
    return call.arguments["code"]


def numbers_of(text: str) -> list[str]:
    return "".join(c if c.isdigit() else " " for c in text).split()


def test_the_mix_is_a_distribution_that_demonstrations_follow():
    assert sum(MIX.values()) == pytest.approx(1)
    kinds = Counter()
    for index, one in enumerate(demos(TASKS, FORM, 600, seed=4)):
        kinds["guess" if not one.results else "slip" if code_of(one) != TASKS[index].solution else "computed"] += 1
    for kind, share in (("guess", MIX["guess"]), ("slip", MIX["slip"]), ("computed", MIX["good"] + MIX["misread"])):
        assert abs(kinds[kind] / 600 - share) < 4 * (share * (1 - share) / 600) ** 0.5


def test_the_same_arguments_demonstrate_the_same_episodes():
    one, again, other = (list(demos(TASKS, FORM, 40, seed)) for seed in (1, 1, 2))
    assert one == again != other
    assert [demo.prompt for demo in one] == [TASKS[i].prompt for i in range(40)]


def test_good_play_earns_the_reward_with_the_real_tool():
    env = make_math_python(split="train", difficulty=(1, 2))
    for index in (0, 11, 12):
        env.reset(options={"task": index})
        observation, reward, done = "", 0.0, False
        for text, result in zip(KINDS["good"][index].says, (*KINDS["good"][index].results, "")):
            observation, reward, done, _, info = env.step(text)
            assert observation.strip() == result
        assert (reward, done, info["used_tool"]) == (1.0, True, True)
    env.close()


def test_planted_play_is_what_its_name_says():
    for index in range(60):
        task = TASKS[index]
        good, guess, slip, misread = (KINDS[kind][index] for kind in ("good", "guess", "slip", "misread"))
        assert good.says[1] == f"\\boxed{{{good.results[0]}}}" and code_of(good) == task.solution
        assert guess.results == () and guess.says[0][7:-1] in numbers_of(task.prompt)
        assert code_of(slip) != task.solution
        assert slip.results == (run(code_of(slip)),) and slip.says[1] == f"\\boxed{{{slip.results[0]}}}"
        assert code_of(misread) == task.solution and misread.results == good.results
        assert misread.says[1][7:-1] in numbers_of(task.prompt)


def test_a_slip_computes_something_else():
    same = [one for index, one in enumerate(KINDS["slip"]) if one.results[0] == run(TASKS[index].solution)]
    assert same == []


def test_run_prints_what_python_prints():
    assert run("print((3+4)*5)") == "35"
    assert run("print(2**10//3%7)") == str(2**10 // 3 % 7)


@pytest.mark.parametrize("code", ["import os", "x = 1\nprint(x)", ""])
def test_run_takes_a_single_print_only(code):
    with pytest.raises(ValueError, match="not a single print"):
        run(code)


def test_a_task_without_a_program_cannot_be_demonstrated():
    with pytest.raises(ValueError, match="task gsm8k-1 has no solution program to demonstrate"):
        demo(Task("gsm8k-1", "How many?", "3"), "good", FORM, random.Random(0))
