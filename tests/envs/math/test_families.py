import ast
import contextlib
import io
import re
from fractions import Fraction

import pytest

from turngym.envs.math.families import FAMILIES, LEVELS, make
from turngym.envs.math.grade import MathGrader
from turngym.envs.math.problem import decimal, signed
from turngym.envs.tasks import KeyedRandom

EVERY = [(family, level) for family in FAMILIES for level in LEVELS]
CONSTANTS = {1, 2, 10, 100} | {60, 24, 7, 12, 1000}  # what a formula or a unit of measure brings along


def problems(family, level, count):
    return [make(family, level, KeyedRandom("test", i)) for i in range(count)]


def printed(program):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(program, {})
    return out.getvalue().strip()


def numbers(text):
    return {int(number) for number in re.findall(r"\d+", text)}


def test_there_are_nine_families():
    assert (
        *("arithmetic", "words", "fractions", "percent", "units"),
        *("linear", "systems", "number-theory", "sequences"),
    ) == FAMILIES


@pytest.mark.parametrize(("family", "level"), EVERY)
def test_the_solution_prints_the_gold(family, level):
    grader = MathGrader()
    for text, gold, solution in problems(family, level, 200):
        grader.check_gold(gold)
        answer = printed(solution)
        grade = grader.grade(completion=f"\\boxed{{{answer}}}", gold=gold)
        assert (grade.score, grade.how in ("string", "numeric")) == (1.0, True), (text, gold, answer)
        if level <= 2:
            assert answer == gold, text


@pytest.mark.parametrize(("family", "level"), EVERY)
def test_a_family_has_many_different_questions(family, level):
    texts = {text for text, _, _ in problems(family, level, 300)}
    assert len(texts) >= 240
    assert all(text.isascii() and text.endswith("?") and "  " not in text and ",000" not in text for text in texts)


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
        assert {node.value for node in nodes if isinstance(node, ast.Constant)} <= numbers(text) | CONSTANTS, solution


def test_the_easy_levels_speak_a_small_language():
    texts = [text for family in FAMILIES for level in (1, 2) for text, _, _ in problems(family, level, 400)]
    words = {word.lower() for text in texts for word in re.findall(r"[A-Za-z]+", text)}
    assert len(words) <= 150
    assert max(max(numbers(text), default=0) for text in texts) < 100_000


@pytest.mark.parametrize(
    ("family", "level", "text", "gold"),
    [
        ("linear", 3, r"(-?\d*)x( [-+] \d+)? = (-?\d*)x( [-+] \d+)?(?![\dx])", None),
        ("systems", 2, r"x \+ y = (\d+) and x - y = (-?\d+)\. What is x\?", lambda s, d: (int(s) + int(d)) / 2),
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
        assert int(left) * x + int(b.replace(" ", "") or 0) == int(right) * x + int(d.replace(" ", "") or 0), (
            problem.text
        )
    assert met >= 20


def test_terms_are_written_as_people_write_them():
    assert [signed(3, "y"), signed(-1, "y"), signed(1), signed(0), signed(-7)] == [" + 3y", " - y", " + 1", "", " - 7"]
    assert [decimal(Fraction(3, 4)), decimal(Fraction(-1, 8)), decimal(Fraction(2))] == ["0.75", "-0.125", "2.0"]
