import json
import re
from pathlib import Path

import pytest

import turngym
from turngym.envs.math.grading import grader as grade_module
from turngym.envs.math.grading.grader import MathGrader
from turngym.envs.rows import SourceOptions, load_jsonl

DATA = Path(turngym.__file__).parent.parent / "shared" / "data"
GRADER = MathGrader()


def graded(gold, answer, grader=GRADER):
    return grader.grade(completion=f"<think>hm</think>It is \\boxed{{{answer}}}.", gold=gold)


@pytest.mark.parametrize(
    ("gold", "answer", "how"),
    [
        *(
            ("42", "42", "string"),
            ("42", "$42$", "string"),
            ("-5", "−5", "string"),
            ("(1, 2)", r"\left(1,2\right)", "string"),
        ),
        *(
            ("1234", "1,234", "numeric"),
            ("1234", "1234.0", "numeric"),
            ("1234", r"\frac{2468}{2}", "numeric"),
        ),
        *(
            ("18", r"\$18.00", "numeric"),
            ("18", "18 dollars", "numeric"),
            ("5", "x = 5", "numeric"),
            ("1234", "1.234e3", "numeric"),
        ),
        *(
            (r"10\text{ units}", "10", "numeric"),
            ("5", "x_1=5", "numeric"),
            (r"\dfrac{1}{2}", "0.5", "numeric"),
        ),
        *(
            ("Evelyn", r"\text{Evelyn}", "string"),
            ("Monday", "monday", "string"),
            ("C", r"\text{C}", "string"),
        ),
        *(
            (r"2\sqrt{3}", r"\sqrt{12}", "math-verify"),
            ("x^2-4", "(x-2)(x+2)", "math-verify"),
        ),
        *(
            ("1500", r"1.5 \times 10^3", "numeric"),
            ("5/2", r"2\frac{1}{2}", "numeric"),
        ),
        *(
            ("x=5", "5", "numeric"),
            ("[-2,7]", r"x \in [-2,7]", "numeric"),
            ("1,2", "2,1", "numeric"),
        ),
        *(
            (r"(1,\frac{9}{2})", "(1,4.5)", "numeric"),
            (r"\pi/2", r"\frac{\pi}{2}", "math-verify"),
            ("3", r"\boxed{3}", "numeric"),
        ),
        *((r"k \ge 2", r"k \geq 2", "numeric"), ("C", r"\text{(C)}", "string")),
    ],
)
def test_right_answers_are_paid_however_they_are_written(gold, answer, how):
    result = graded(gold, answer)
    assert (result.score, result.how, result.error) == (1.0, how, None)


@pytest.mark.parametrize(
    ("gold", "answer", "how"),
    [
        *(
            ("42", "43", "numeric"),
            ("42", "-42", "numeric"),
            ("1/3", "0.33", "numeric"),
            ("1234", "1.234", "numeric"),
        ),
        *(
            (r"\sqrt{2}", r"\sqrt{3}", "math-verify"),
            ("x^2+1", "x^2-1", "math-verify"),
            ("(1,2)", "(2,1)", "numeric"),
        ),
        *(
            ("Evelyn", "nylevE", "string"),
            ("1,2", "1", "numeric"),
            ("5", "5x", "failed"),
            ("12:00", "1:00", "string"),
        ),
        *(
            ("5", "5 million", "numeric"),
            (r"\pi", "3.14", "math-verify"),
            ("5", "?!", "failed"),
            ("1", "1/0", "failed"),
        ),
    ],
)
def test_wrong_answers_are_not_paid(gold, answer, how):
    result = graded(gold, answer)
    assert (result.score, result.answer, result.how) == (0.0, answer, how)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        *(
            ("5", "4 or 5"),
            ("5", "4, 5"),
            ("5", r"5 \text{ or } 6"),
            ("5", "x=4=5"),
            ("5", "5=5"),
            ("5", "x<6"),
            ("5", r"x \le 5"),
        ),
        *(
            ("5", r"5 \approx 5"),
            ("5", "4;5"),
            ("5", "x=5, y=3"),
            (r"\sqrt{2}", r"\sqrt{2}, \sqrt{3}"),
            ("5", "4 and 5"),
        ),
        *(
            ("1764", "37*48-12"),
            ("7", "3+4"),
            ("7", "3 4"),
            ("7", "9 - 2"),
            ("6", "3!"),
            ("28", r"4 \times 7"),
            ("6", r"\binom{4}{2}"),
        ),
        *(("12", "24//2"), ("2", r"17 \bmod 5"), ("5", r"\text{maybe } 5")),
    ],
)
def test_hedging_and_restating_the_question_are_not_paid(gold, answer):
    result = graded(gold, answer)
    assert (result.score, result.how) == (0.0, "failed")
    assert "the box holds" in result.error


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        *(
            ("4t", "4"),
            ("2ab", "2"),
            ("9c+6", "15"),
            ("x + 2m", "x + 2"),
            ("5 t", "5"),
            (r"\frac{a}{3}h", r"\frac{a}{3}"),
        ),
        *(
            ("10 cm", "10 mm"),
            (r"8\sqrt{3}\text{ feet}", r"8\sqrt{3}\text{ inches}"),
            ("8_9", "8_3"),
            ("43_5", "43_6"),
        ),
        *(
            (r"\frac{1}{2^{98}}", r"\frac{1}{2^{99}}"),
            (r"\frac{1}{2004!}", r"\frac{1}{2005!}"),
            ("x^2=-1", "x^2=-2"),
        ),
        *(
            (r"\frac{4}{2}, \log _{10} 250", r"2, \log _{10} 520"),
            ("9:24", "3:8"),
            (r"\text{4:30 p.m.}", "4:30 AM"),
        ),
        *(
            (r"\frac{dM}{dt}=M^6", r"\frac{dM}{dt}=w^6"),
            (r"\frac{dM}{dt}=M^6", r"\frac{dM}{dt}=M^7"),
            ("0", "(1)_{7}"),
            ("23", "43_5"),
            ("43", "43_5"),
            ("a<b<c", "a>b>c"),
            (r"0.\overline{3}", "0.3"),
        ),
    ],
)
def test_different_values_are_not_paid_for_looking_alike(gold, answer):
    assert graded(gold, answer).score == 0.0


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        *(
            ("4t", r"t \cdot 4"),
            ("9c+6", "6+9c"),
            ("3i, -3i", r"-i \cdot 3, i \cdot 3"),
            (r"\frac\pi4", r"\pi/4"),
        ),
        *(
            (r"8\sqrt{3} \text { square inches}", r"\sqrt{192}"),
            (r"3\pi\text{ in}^2", r"\pi \cdot 3 \text{ in}^{2}"),
        ),
        *(("43_5", r"(43)_{\text{five}}"), (r"\text{A5}_{11}", "A5_{11}"), ("43_5", "43")),
        *(
            (r"\dfrac{1}{29,\!322,\!216}", "1/29322216"),
            ("-3./2", "-1.5"),
            ("4.5e33", r"4.5 \times 10^{33}"),
        ),
        *(
            (
                r"\begin{pmatrix} 1/2 \\ -3 \end{pmatrix}",
                r"\begin{bmatrix} 0.5 \\ \frac{-6}{2} \end{bmatrix}",
            ),
        ),
        *(
            (r"\{4,5\}", "5, 4"),
            ("6, 8\\text{, and }10", "10, 8, 6"),
            (r"k \geqslant 2", r"2 \le k"),
        ),
        *(
            ("f(2) < f(1) < f(4)", "f(4) > f(1) > f(2)"),
            ("0.56 = 56\\%", "0.56"),
            ("x^2+1", "f(x) = 1+x^2"),
        ),
        *(
            (r"\text{4:30 p.m.}", "4:30 PM"),
            ("05:00", "5:00"),
            (r"\text{B, A}", r"\text{A,B}"),
            (r"\overline{CD}", "CD"),
        ),
        *(
            (r"2,-\log _{10} 250", r"\frac{4}{2}, -\log_{10} 250"),
            ("E_{1},E_{2}", "E_{2}, E_{1}"),
            (r"45^\circ, 60^\circ", "60°, 45°"),
            ("np.arcsin(10/13)", r"\arcsin(10/13)"),
        ),
        *(
            (r"m_{\max }=n^{2}", r"n^2 = m_{\max}"),
            ("3:5", r"\frac{3}{5}"),
            (r"x^(1/2)", r"\sqrt{x}"),
        ),
    ],
)
def test_second_forms_are_paid_without_the_shortcut(gold, answer):
    result = graded(gold, answer, MathGrader(shortcuts=False))
    assert (result.score, result.error) == (1.0, None)


def test_the_shortcut_pays_for_the_same_spelling_alone():
    sentence = "all that do not divide 7, and 3"
    assert graded(sentence, f"${sentence}.$").how == "string"
    assert graded(sentence, sentence.replace("7", "8")).score == 0.0
    assert graded(sentence, sentence, MathGrader(shortcuts=False)).how != "string"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        *(
            ("[-2, 7]", r"-2 \le x \le 7"),
            (r"x \in [-2, 7]", r"-2 \\le x \\le 7"),
            (r"(3, \infty)", "x > 3"),
        ),
        *(
            (r"[-\sqrt{2}, \sqrt{2}]", r"-\sqrt{2} \leq x \leq \sqrt{2}"),
            ("2, 3", r"x=3 \text{ or } x=2"),
        ),
        *(
            (r"x_{1}=2, x_{2}=3", "3, 2"),
            ("11", r"x \approx 11"),
            ("(3, 4)", "(x, y) = (3, 4)"),
            ("8", r"\boxed{8 \text{ cm}}"),
        ),
        *(
            (r"I_{\max }=\frac{q}{\sqrt{2 L C}}", r"\frac{q}{\sqrt{2 C L}}"),
            ("10,100", "{10,100}"),
            ("12", r"\text{12 apples}"),
        ),
        *(
            ("1/3", r"0.\overline{3}"),
            ("5/2", "2 1/2"),
            (r"\sqrt{2}", "√2"),
            ("x^2", "x²"),
            ("42", "42cm"),
            ("42", "42 cm^2"),
        ),
        *(
            (
                r"\begin{pmatrix}1 & 2 \\ 3 & 4\end{pmatrix}",
                r"\left[\begin{array}{cc}1 & 2 \\ 3 & 4\end{array}\right]",
            ),
        ),
        *(("42", "m + n = 42"), (r"\pm 2", "2, -2"), ("2, -2", r"\pm 2"), (r"\emptyset", r"\{\}")),
        *((r"\emptyset", "∅"), ("50\\%", "0.5"), ("1,000,000", "10^6")),
    ],
)
def test_other_ways_of_saying_the_same_are_paid(gold, answer):
    assert graded(gold, answer).score == 1.0


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        *(
            ("[1,2]", "(1,2)"),
            ("(1,2)", r"\{1,2\}"),
            (r"\{1,2\}", "(1,2)"),
            ("(1,2]", r"1 \le x < 2"),
            ("2, 3", "2, 3, 4"),
        ),
        *(
            ("x=5", "x=4=5"),
            (r"\frac{\pi}{4}", r"\int_0^1 \frac{1}{1+x^2} dx"),
            ("1", r"\int_0^1 3x^2 dx"),
        ),
        *(
            ("42", r"\boxed{7} \boxed{42}"),
            (r"\sqrt{2}", r"7 \text{ not } \boxed{\sqrt{2}}"),
            (r"\sqrt{2}", r"\pm\sqrt{2}"),
        ),
        *(
            ("42", r"\{41, 42\}"),
            ("42", "(41, 43)"),
            ("2, 3", "2"),
            ("(1, 2)", "12"),
            ("42", r"\begin{cases} 42 \\ 7 \end{cases}"),
            ("B", "A or B"),
            ("42", ""),
            ("42", r"\,"),
        ),
        *(
            ("(3, 4)", "x=4, y=3"),
            (r"\frac{1}{3}", "0.333"),
            ("42", r"\text{nan}"),
            ("2mg", "2"),
            ("42", "41.9999999"),
        ),
    ],
)
def test_what_is_not_the_answer_is_not_paid(gold, answer):
    assert graded(gold, answer).score == 0.0


def test_where_the_answer_stands_can_be_chosen():
    last, first = MathGrader(extract="last"), MathGrader(extract=lambda text: text.split()[0])
    assert last.grade(completion="so it is\n#### 1,234", gold="1234").score == 1.0
    assert last.grade(completion=r"\boxed{7}, not 1234", gold="1234").score == 0.0
    assert first.grade(completion=r"1234 and \boxed{7}", gold="1234").score == 1.0
    with pytest.raises(
        ValueError, match="extract is 'first'; it must be one of box, last, lenient, or a function"
    ):
        MathGrader(extract="first")


def test_every_adversarial_completion_gets_what_it_has_to(shared_data):
    path = shared_data.parent / "corpora" / "adversarial_answers.jsonl"
    rows = [
        row for row in map(json.loads, path.read_text("utf-8").splitlines()) if row["env"] == "math"
    ]
    impatient = MathGrader(deadline=1.0)
    for row in rows:
        wanted, text = (
            row["must_hold"],
            "".join(part * n for part, n in row.get("parts", [[row["text"], 1]])),
        )
        if "rejected_gold" in wanted:
            with pytest.raises(ValueError, match="is empty"):
                GRADER.check_gold(row["gold"])
            continue
        scores = {impatient.grade(completion=text, gold=row["gold"]).score for _ in range(2)}
        assert len(scores) == 1, row["id"]
        if reward := re.search(r"reward=([01])", wanted):
            assert scores == {float(reward[1])}, row["id"]
    assert len(rows) > 30


@pytest.mark.parametrize(
    "completion", ["", "it is 42", r"\boxed{}", r"<think>\boxed{42}", r"\boxed{42}<think>"]
)
def test_no_box_is_no_answer(completion):
    result = GRADER.grade(completion=completion, gold="42")
    assert (result.score, result.answer, result.how, result.error) == (0.0, None, "no-answer", None)


def test_enormous_answers_are_refused_unread():
    result = graded("3", "(" * 100_000)
    assert (result.score, result.how) == (0.0, "failed")
    assert result.error == "the answer has 100000 characters; at most 5000 are read"


@pytest.mark.parametrize(
    ("gold", "complaint"),
    [
        *(
            ("", "is empty"),
            ("  ", "is empty"),
            ("$$", "is empty"),
            ("???", "has no letter or digit"),
            (r"\text{}", "has no letter or digit"),
            (r"$\mathrm{ }$", "has no letter or digit"),
            (r"\left(\right)", "has no letter or digit"),
            ("\u200b", "is empty"),
            (
                r"Thus, $x=4$. The answer is $\boxed{4}$.",
                "is a whole solution: give what is in its box alone",
            ),
            ("1/0", "divides by zero"),
        ),
        *(
            (r"\frac{1}{", "has unbalanced braces"),
            ("3}", "has unbalanced braces"),
            ("x =", "begins or ends with an operator"),
        ),
        ("3 +", "begins or ends with an operator"),
    ],
)
def test_a_gold_without_a_value_is_refused(gold, complaint):
    with pytest.raises(ValueError, match=complaint):
        GRADER.check_gold(gold)


@pytest.mark.parametrize(
    "gold",
    [r"\emptyset", r"\{\}", r"\infty", "∞", r"\boxed{4}", "∅", r"\mathbb{R}", r"\pi", "(1, 2)"],
)
def test_a_gold_that_is_a_value_is_not_refused(gold):
    GRADER.check_gold(gold)


def test_a_deadline_of_no_time_is_refused():
    with pytest.raises(ValueError, match="deadline is 0 seconds; it must be above 0"):
        MathGrader(deadline=0)


@pytest.mark.parametrize(
    "name", ["gsm8k_test.jsonl", pytest.param("gsm8k_train.jsonl.gz", marks=pytest.mark.slow)]
)
def test_every_gsm8k_gold_is_paid_in_every_form_and_its_neighbours_are_not(name, monkeypatch):
    if not (DATA / "math" / name).exists():
        pytest.skip("../shared/data is absent")
    monkeypatch.setattr(
        grade_module._workers, "ask", lambda *_: pytest.fail("the fast path was left")
    )
    tasks = load_jsonl(DATA / "math" / name, SourceOptions(check_gold=GRADER.check_gold))
    for i in range(len(tasks)):
        gold = tasks[i].gold.replace(",", "")
        if "." in gold or i % 7:
            assert graded(gold, gold).score == 1.0
            continue
        n = int(gold)
        for form in (
            f"{n:,}",
            f"{n}.0",
            f"\\frac{{{2 * n}}}{{2}}",
            f"\\${n:,}.00",
            f"{n} apples",
            f"x = {n}",
        ):
            assert graded(gold, form).score == 1.0, (gold, form)
        for form in (f"{n + 1}", f"{n}.5", f"{n}1", f"{n}, {n}", f"{n} or {n + 1}"):
            assert graded(gold, form).score == 0.0, (gold, form)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        *(
            ("aime24_test.jsonl", 30),
            ("amc23_test.jsonl", 40),
            ("math_test_minus500.jsonl.gz", 4500),
        ),
        *(
            ("math_train.jsonl.gz", 7470),
            ("minerva_test.jsonl", 272),
            ("olympiadbench_oe_to_maths_en.jsonl", 675),
        ),
    ],
)
def test_golds_of_other_real_files_have_a_value(name, rows):
    if not (DATA / "math" / name).exists():
        pytest.skip("../shared/data is absent")
    assert (
        len(load_jsonl(DATA / "math" / name, SourceOptions(check_gold=GRADER.check_gold))) == rows
    )


def test_real_predictions_are_graded_as_labelled():
    path = DATA / "answer_equiv" / "model_predictions_math.jsonl"
    if not path.exists():
        pytest.skip("../shared/data is absent")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    grades = [GRADER.grade(completion=row["response"], gold=row["gold"]) for row in rows]
    assert len(grades) == 44
    differ = [
        row["gold"] for row, one in zip(rows, grades) if (one.score == 1.0) != row["expected_equal"]
    ]
    # The label says that 10000 is not 10{,}000; it is.
    assert differ == ["10{,}000"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *(
            ("42", "42.0"),
            ("1/2", r"\frac{2}{4}"),
            ("1,234", "1234"),
            ("x = 5", "5"),
            ("", ""),
            ("?", "?"),
        ),
        *(
            ("2.5", r"\frac{5}{2} \text{ cm}"),
            (r"50\%", "0.5"),
            (r"50\%", "50"),
            ("1/3", "0.333333333333333"),
        ),
        *(
            (r"\sqrt{8}", r"2\sqrt{2}"),
            ("(1, 2)", r"\left(1,2\right)"),
            ("1, 2", "2, 1"),
            ("Monday", r"\text{monday}"),
        ),
        *(("a" * 6000, "a" * 6000), ("1/0", "1/0"), (r"\frac{\pi}{2}", r"0.5\pi")),
    ],
)
def test_answers_that_mean_the_same_are_the_same_both_ways(first, second):
    assert GRADER.same(first, second) is GRADER.same(second, first) is True


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *(
            ("42", "43"),
            ("1/3", "0.333"),
            ("", "5"),
            ("1/0", "5"),
            ("1/0 = 2", "x"),
            ("5 cm", "5 kg"),
            ("50", "0.5"),
        ),
        *(
            ("(1, 2)", "(2, 1)"),
            (r"\sqrt{2}", "1.41"),
            ("a" * 6000, "b" * 6000),
            ("Monday", "Tuesday"),
            ("x", "y"),
        ),
    ],
)
def test_other_answers_are_not_the_same(first, second):
    assert GRADER.same(first, second) is GRADER.same(second, first) is False


def test_two_plain_numbers_need_no_other_process(monkeypatch):
    monkeypatch.setattr(
        grade_module._workers, "ask", lambda *_: pytest.fail("math-verify was asked")
    )
    numbers = [
        "0",
        "42",
        "-7",
        "1,234",
        "3.25",
        r"\frac{1}{2}",
        "1/3",
        "2e9",
        r"75\%",
        r"5 \text{ cm}",
        "1 1/2",
    ]
    assert [
        one for one in numbers for other in numbers if GRADER.same(one, other) and one != other
    ] == []
