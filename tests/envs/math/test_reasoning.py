import copy
import json
import sys

import pytest

from turngym.envs import fork
from turngym.envs.math import make_math, make_math_python
from turngym.envs.math.reasoning import (
    REFUSED,
    SIZE,
    Gold,
    ReasoningGrader,
    ReasoningTasks,
    offered,
)

pytest.importorskip("reasoning_gym")
GRADER = ReasoningGrader(deadline=60)


def graded(gold, answer, grader=GRADER):
    return grader.grade(completion=f"<think>hm</think>It is \\boxed{{{answer}}}.", gold=gold)


def test_a_task_depends_on_name_split_and_index_alone():
    tasks = ReasoningTasks(["chain_sum"], "train")
    assert len(tasks) == SIZE and tasks.name == "reasoning-gym:chain_sum" and tasks.split == "train"
    late = ReasoningTasks(["chain_sum"], "train")
    assert [late[i] for i in (999_999, 5, 0)] == [tasks[i] for i in (999_999, 5, 0)]
    assert tasks[5].id == "chain_sum-train-5"
    sum_ = tasks[0].prompt.removeprefix("State the final answer to the following arithmetic problem: ").rstrip(" =")
    assert eval(sum_) == int(tasks[0].gold)  # noqa: S307 - a sum of numbers
    assert tasks[0].gold.entry == ("chain_sum", 0, 0)


def test_splits_are_drawn_with_other_seeds():
    seeds = set()
    for split in ("train", "valid", "test"):
        tasks = ReasoningTasks(["chain_sum"], split)
        for i in (0, SIZE - 1):
            _, seed, index = tasks[i].gold.entry
            seeds.add(seed + index)
    assert sorted(seeds) == [0, SIZE - 1, SIZE, 2 * SIZE - 1, 2 * SIZE, 3 * SIZE - 1]


def test_several_data_sets_take_turns():
    tasks = ReasoningTasks(["chain_sum", " leg_counting"], "valid")
    assert [tasks[i].id for i in range(3)] == ["chain_sum-valid-0", "leg_counting-valid-0", "chain_sum-valid-1"]
    assert tasks[2].prompt == ReasoningTasks(["chain_sum"], "valid")[1].prompt
    for i in (-1, SIZE):
        with pytest.raises(IndexError, match=f"task {i} of reasoning-gym:chain_sum,leg_counting: there are tasks 0 to"):
            tasks[i]


def test_other_right_answers_are_paid_and_wrong_ones_are_not():
    gold = ReasoningTasks(["countdown"], "valid")[0].gold
    assert gold == "12*51 - 37 - 94"
    for answer in ("12*51 - 37 - 94", "51*12 - (94 + 37)", r"\text{(51*12) - 94 - 37}"):
        assert graded(gold, answer).score == 1.0 and graded(gold, answer).how == "reasoning-gym"
    for answer in ("481", "12*51 - 37", "12*51 - 37 - 95", "481 + 0*12*51*37*94"):
        assert graded(gold, answer).score < 0.1
    assert graded(gold, "(12*51 - 37 - 94").how in ("reasoning-gym", "failed")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("chain_sum", "{} or 8"),
        ("polynomial_equations", "0.1"),
        ("syllogism", "Yes No"),
        ("prime_factorization", "{}1"),
    ],
)
def test_parts_of_a_score_are_not_paid(name, part):
    for i in range(4):
        gold = ReasoningTasks([name])[i].gold
        assert graded(gold, gold).score == 1.0
        assert graded(gold, part.format(gold)).score == 0.0


def test_a_rounded_solution_of_an_equation_is_paid():
    gold = ReasoningTasks(["polynomial_equations"])[0].gold
    assert gold == "0.0, 0.5909"
    assert graded(gold, "0.590909, 0").score == 1.0 and graded(gold, "0.6, 0").score == 0.0


NOT_FINITE = ["nan", "NaN + NaNj", "inf", "-Infinity", "1e999", "1E+400j", "9" * 400, "∞", r"\infty", "oo", "１e９９９"]
NOT_FINITE += ["float('nan')", "complex(nan, nan)", "nanj", "nan i", "0 * inf", "{inf}", r"\text{nan}"]


@pytest.mark.parametrize("answer", NOT_FINITE)
def test_no_answer_without_a_finite_value_reaches_a_scorer(answer):
    for name in ("complex_arithmetic", "chain_sum", "power_function"):
        result = graded(ReasoningTasks([name])[0].gold, answer)
        assert (result.score, result.error) == (0.0, "the box holds no finite value; it needs the value")


def test_a_right_answer_may_spell_what_others_may_not():
    gold = Gold("Nan, and, inf")
    gold.entry = ReasoningTasks(["word_sequence_reversal"])[0].gold.entry
    assert graded(gold, "Nan, and, inf").how == "reasoning-gym"
    assert graded(gold, "information about Nancy").how == "reasoning-gym"


def test_a_sign_that_a_scorer_does_not_see_counts():
    gold = ReasoningTasks(["gsm_symbolic"])[0].gold
    assert graded(gold, gold).score == 1.0
    assert graded(gold, f"-{gold}").error == "the number has the other sign"
    gold = ReasoningTasks(["simple_integration"])[0].gold
    assert graded(gold, f"{gold} or {gold}").error == "the box holds several answers; it needs the one answer"


def test_no_box_is_no_answer():
    assert GRADER.grade(completion="it is 7", gold="7").how == "no-answer"


@pytest.mark.parametrize(
    "answer",
    [
        *("open('/etc/passwd')", "__import__('os')", "(open)('x')", "[open][0]('x')", "ｏｐｅｎ('x')", "open\t('x')"),
        *("open\\\n('x')", "[open #\n('x')]", "x.__class__", "eval('1')", "12 + int('3')"),
    ],
)
def test_no_scorer_that_evaluates_gets_code(answer):
    result = graded(ReasoningTasks(["countdown"])[0].gold, answer)
    assert (result.score, result.how, result.error) == (0.0, "failed", "the box holds code; it needs the answer alone")


def test_a_gold_knows_its_entry_after_a_copy_and_a_plain_one_is_compared_as_text():
    task = ReasoningTasks(["chain_sum"])[3]
    twin = copy.deepcopy(task)
    assert twin == task and isinstance(twin.gold, Gold) and twin.gold.entry == task.gold.entry
    assert (graded("48151623", "48151623").score, graded("48151623", "48151624").score) == (1.0, 0.0)


@pytest.mark.parametrize("make", [make_math, make_math_python])
def test_an_environment_plays_its_tasks(make):
    env = make(tasks="reasoning-gym:chain_sum,leg_counting", split="test")
    for task in (0, 1):
        first, info = env.reset(seed=1, options={"task": task})
        twin = fork(env)
        *_, answer = env.gold()
        for player in (env, twin):
            _, reward, terminated, _, last = player.step(answer)
            assert (reward, terminated, last["how"]) == (1.0, True, "reasoning-gym")
        env.reset(options={"task": task})
        last = env.step("\\boxed{no}")[4]
        assert env.task.gold not in json.dumps([info, last]) + repr(env.task).replace(first, "")
    env.close()


def test_what_cannot_be_used_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="reasoning-gym's 'puzzle24' cannot be used: its scorer pays for any four"):
        ReasoningTasks(["chain_sum", "puzzle24"])
    with pytest.raises(ValueError, match=r"has no data set 'chainsum'; did you mean 'chain_sum'\? it has ab, "):
        ReasoningTasks(["chainsum"])
    with pytest.raises(ValueError, match="reasoning-gym has no data set ''"):
        ReasoningTasks([""])
    assert len(offered()) > 80 and not set(offered()) & set(REFUSED)


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(ValueError, match=r"needs the package reasoning-gym: pip install 'turngym\[tasks\]'"):
        ReasoningTasks(["chain_sum"])


# The last test, as it ends the child that the others use.
def test_an_answer_that_hangs_earns_nothing():
    gold = ReasoningTasks(["countdown"], "valid")[0].gold
    hostile = graded(gold, "9**9**9**9", ReasoningGrader(deadline=0.5))
    assert (hostile.score, hostile.how, hostile.error) == (0.0, "timeout", "scoring took over 0.5 s")
    assert graded(gold, "x" * 20_001).error == "the answer has 20001 characters; at most 20000 are read"
    with pytest.raises(ValueError, match="deadline is 0 seconds; it must be above 0"):
        ReasoningGrader(0)
