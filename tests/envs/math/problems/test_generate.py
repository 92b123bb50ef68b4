import ast
import contextlib
import io
import re
from fractions import Fraction

import pytest

from turngym.envs.keyed_random import KeyedRandom
from turngym.envs.math.grading.grader import MathGrader
from turngym.envs.math.problems.families import FAMILIES, MIXED
from turngym.envs.math.problems.tasks import DIFFICULTIES, MathTasks
from turngym.envs.math.problems.writing import signed_term, write_decimal
from turngym.envs.splits import SPLITS, text_share


def test_a_task_depends_on_the_arguments_and_the_index_alone():
    first, again = (
        MathTasks("valid", (1, 3), seed=5),
        MathTasks("valid", (3, 1, 3), seed=5, size=10),
    )
    ahead = [first[i] for i in (9, 3, 3)]
    assert ahead == [again[i] for i in (9, 3, 3)]
    assert [first[i].prompt for i in range(20)] != [
        MathTasks("valid", (1, 3), seed=6)[i].prompt for i in range(20)
    ]
    reordered = MathTasks(families=("words", "linear"))
    assert reordered[7] == MathTasks(families=("linear", "words"))[7]


def test_the_generator_is_the_same_on_every_machine():
    task = MathTasks("train", 2, seed=1)[123]
    assert (task.id, task.prompt, task.gold, task.solution) == (
        "linear-2-train-1-123",
        "If 11(x + 17) = 242, what is x?",
        "5",
        "print(242//11-17)",
    )


@pytest.mark.slow
def test_splits_share_no_problem_whatever_their_arguments():
    sets = {
        split: {
            MathTasks(split, level, seed=seed)[i].prompt
            for level in (1, (1, 2))
            for seed in (0, 1)
            for i in range(1500)
        }
        for split in SPLITS
    }
    assert sets["train"].isdisjoint(sets["valid"] | sets["test"])
    assert sets["valid"].isdisjoint(sets["test"])
    assert all(0.0 <= text_share(text) < 0.1 for text in sets["valid"])
    assert all(0.1 <= text_share(text) < 0.2 for text in sets["test"])


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("level", DIFFICULTIES)
def test_every_family_and_level_has_problems_for_every_split(split, level):
    for family in FAMILIES:
        tasks = MathTasks(split, level, (family,))
        assert len({tasks[i].prompt for i in range(40)}) >= 20
        assert tasks[0].id == f"{family}-{level}-{split}-0-0"


def test_families_and_levels_are_mixed_evenly():
    kinds = [MathTasks(difficulty=(1, 2))[i].id.split("-train-")[0] for i in range(3600)]
    counts = {kind: kinds.count(kind) for kind in set(kinds)}
    assert set(counts) == {f"{family}-{level}" for family in MIXED for level in (1, 2)}
    assert all(140 <= count <= 260 for count in counts.values())


def test_a_task_shows_no_answer():
    tasks = MathTasks("train", DIFFICULTIES)
    for i in range(100):
        assert tasks[i].gold not in re.findall(r"gold|solution", repr(tasks[i]))
        assert tasks[i].solution is not None and tasks[i].solution not in repr(tasks[i])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"difficulty": 0}, "difficulty is 0; choose one or several of 1, 2, 3, 4, 5"),
        ({"difficulty": (1, 6)}, r"difficulty is \(1, 6\)"),
        ({"difficulty": ()}, r"difficulty is \(\)"),
        (
            {"families": ("word",)},
            "unknown family 'word'; did you mean 'words'? the families are arithmetic, words",
        ),
        ({"families": ("zzz",)}, "unknown family 'zzz'; the families are"),
        ({"families": ()}, "families is empty"),
        ({"split": "dev"}, "split is 'dev'; the splits are train, valid, test"),
        ({"size": 0}, "size is 0; a task set needs at least one task"),
    ],
)
def test_bad_arguments_are_named(arguments, complaint):
    with pytest.raises(ValueError, match=complaint.replace("?", r"\?")):
        MathTasks(**arguments)


def test_indices_out_of_range_are_refused():
    tasks = MathTasks(size=3)
    assert len(tasks) == 3
    for i in (-1, 3):
        with pytest.raises(IndexError, match=f"task {i} of math: there are tasks 0 to 2"):
            tasks[i]


EVERY = [(family, level) for family in FAMILIES for level in DIFFICULTIES]
CONSTANTS = {1, 2, 10, 100} | {
    60,
    24,
    7,
    12,
    1000,
}  # what a formula or a unit of measure brings along


def problems(family, level, count):
    rngs = [KeyedRandom("test", i) for i in range(count)]
    return [rng.choice(FAMILIES[family][level])(rng) for rng in rngs]


def printed(program):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(program, {})
    return out.getvalue().strip()


def numbers(text):
    return {int(number) for number in re.findall(r"\d+", text)}


def test_nine_families_are_mixed_and_sums_are_by_themselves():
    assert (
        *("arithmetic", "words", "fractions", "percent", "units"),
        *("linear", "systems", "number-theory", "sequences"),
    ) == MIXED
    assert tuple(FAMILIES) == (*MIXED, "sums")


def test_the_splits_of_sums_share_no_numbers():
    pairs = {
        split: {tuple(re.findall(r"\d+", tasks[i].prompt)) for i in range(3000)}
        for split in SPLITS
        if (tasks := MathTasks(split, 1, ("sums",)))
    }
    assert sum(map(len, pairs.values())) == len(set().union(*pairs.values())) > 380
    assert len(pairs["train"]) > 5 * len(pairs["test"]) > 100


@pytest.mark.parametrize(("family", "level"), EVERY)
def test_the_solution_prints_the_gold(family, level):
    grader = MathGrader()
    for text, gold, solution in problems(family, level, 200):
        grader.check_gold(gold)
        answer = printed(solution)
        grade = grader.grade(completion=f"\\boxed{{{answer}}}", gold=gold)
        assert (grade.score, grade.how in ("string", "numeric")) == (1.0, True), (
            text,
            gold,
            answer,
        )
        if level <= 2:
            assert answer == gold, text


@pytest.mark.parametrize(("family", "level"), EVERY)
def test_a_family_has_many_different_questions(family, level):
    texts = {text for text, _, _ in problems(family, level, 300)}
    assert len(texts) >= 240
    assert all(
        text.isascii() and text.endswith("?") and "  " not in text and ",000" not in text
        for text in texts
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("level", (1, 2))
def test_the_easy_levels_are_short_and_solved_by_one_expression_of_the_numbers_shown(family, level):
    allowed = (ast.BinOp, ast.UnaryOp, ast.USub, ast.Constant, ast.operator)
    for text, _, solution in problems(family, level, 200):
        assert len(text.split()) <= 25
        call = ast.parse(solution, mode="eval").body
        assert isinstance(call, ast.Call) and ast.unparse(call.func) == "print"
        nodes = list(ast.walk(call.args[0]))
        assert all(isinstance(node, allowed) for node in nodes), solution
        assert sum(isinstance(node, ast.BinOp) for node in nodes) <= (2 if level == 1 else 3)
        assert {node.value for node in nodes if isinstance(node, ast.Constant)} <= numbers(
            text
        ) | CONSTANTS, solution


def test_the_easy_levels_speak_a_small_language():
    texts = [
        text
        for family in FAMILIES
        for level in (1, 2)
        for text, _, _ in problems(family, level, 400)
    ]
    words = {word.lower() for text in texts for word in re.findall(r"[A-Za-z]+", text)}
    assert len(words) <= 150
    assert max(max(numbers(text), default=0) for text in texts) < 100_000


@pytest.mark.parametrize(
    ("family", "level", "text", "gold"),
    [
        ("linear", 3, r"(-?\d*)x( [-+] \d+)? = (-?\d*)x( [-+] \d+)?(?![\dx])", None),
        (
            "systems",
            2,
            r"x \+ y = (\d+) and x - y = (-?\d+)\. What is x\?",
            lambda s, d: (int(s) + int(d)) / 2,
        ),
        (
            "number-theory",
            1,
            r"multiples of (\d+) are there from 1 to (\d+)\?",
            lambda k, n: len(range(int(k), int(n) + 1, int(k))),
        ),
        (
            "sequences",
            3,
            r"starts at (\d+) .* is (\d+) more .* first (\d+) terms",
            lambda a, d, n: sum(int(a) + int(d) * k for k in range(int(n))),
        ),
    ],
)
def test_the_text_states_the_problem_that_the_gold_answers(family, level, text, gold):
    met = 0
    for problem in problems(family, level, 200):
        match = re.search(text, problem.text)
        if match is None:
            continue
        met += 1
        if gold is not None:
            assert float(problem.gold) == gold(*match.groups())
            continue
        coefficient = {"": 1, "-": -1}
        a, b, c, d = (group or "" for group in match.groups())
        x, left, right = int(problem.gold), coefficient.get(a, a), coefficient.get(c, c)
        assert int(left) * x + int(b.replace(" ", "") or 0) == int(right) * x + int(
            d.replace(" ", "") or 0
        ), problem.text
    assert met >= 20


def test_terms_are_written_as_people_write_them():
    assert [
        signed_term(3, "y"),
        signed_term(-1, "y"),
        signed_term(1),
        signed_term(0),
        signed_term(-7),
    ] == [
        " + 3y",
        " - y",
        " + 1",
        "",
        " - 7",
    ]
    assert [
        write_decimal(Fraction(3, 4)),
        write_decimal(Fraction(-1, 8)),
        write_decimal(Fraction(2)),
    ] == [
        "0.75",
        "-0.125",
        "2.0",
    ]
