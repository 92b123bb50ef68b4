r"""Where the gold is made of plain numbers, an answer has to be, too: no arithmetic is paid, whatever its signs."""

import re

import pytest

from turngym.envs.math import MathGrader, MathTasks
from turngym.envs.math.grading import grader as grade_module
from turngym.envs.math.problems.families import FAMILIES
from turngym.envs.math.problems.tasks import read_off
from turngym.envs.question.env import QuestionEnv
from turngym.envs.registry import make

GRADER = MathGrader(deadline=60)


def score(gold, answer):
    return GRADER.grade(completion=f"\\boxed{{{answer}}}", gold=gold).score


def paid(gold, answers):
    return [answer for answer in answers if score(gold, answer)]


def unpaid(gold, answers):
    return [answer for answer in answers if not score(gold, answer)]


TIMES = (
    *"⋅∗∙⊗⋆∘×✕⨯•·*⨂⊙⊠◦●✖⨉∧⊓",
    *(
        "\u2062",
        r"\cdot ",
        r"\times ",
        r"\ast ",
        r"\star ",
        r"\bullet ",
        r"\otimes ",
        r"\odot ",
        r"\circ ",
        r"\cdotp ",
    ),
    *(
        r"\boxtimes ",
        r"\centerdot ",
        r"\diamond ",
        r"\ltimes ",
        r"\wedge ",
        r"\text{ times }",
        r"\mathbin{\cdot}",
        "x",
    ),
)
PLUS = (
    *"+＋∔⊕➕﹢⁺⊞",
    "\u2064",
    r"\oplus ",
    r"\dotplus ",
    r"\boxplus ",
    r"\text{ plus }",
    r"\uplus ",
    "{+}",
    r"\cup ",
)
MINUS = (*"-−–—∸⊖﹣－➖", r"\ominus ", r"\dotminus ", r"\setminus ", r"\text{ minus }", "{-}")
OVER = (*"÷➗∶：:", r"\div ", r"\colon ", "//", r"\text{ over }", r"\bmod ")


def test_no_operator_makes_arithmetic_a_number():
    sums = [f"6{blank}{sign}{blank}7" for sign in TIMES for blank in ("", " ")]
    sums += (
        [f"40{sign}2" for sign in PLUS]
        + [f"44{sign}2" for sign in MINUS]
        + [f"84{sign}2" for sign in OVER]
    )
    assert paid("42", sums) == []


@pytest.mark.parametrize(
    ("gold", "answers"),
    [
        (
            "42",
            [
                r"\sqrt{1764}",
                "√1764",
                "1764**0.5",
                "1764^{1/2}",
                "sqrt(1764)",
                "42^1",
                "42¹",
                "(42)^1",
                "2^{5}+10",
            ],
        ),
        (
            "42",
            [
                "|42|",
                r"\left|-42\right|",
                r"\lfloor 42.5\rfloor",
                "⌊42.5⌋",
                r"\gcd(42,84)",
                "abs(-42)",
                "int(42.7)",
            ],
        ),
        (
            "42",
            [
                "-(-42)",
                "--42",
                r"\frac{\frac{84}{1}}{2}",
                r"\frac{84}{\frac{4}{2}}",
                "42/1/1",
                "(84)/(4/2)",
                "84:2",
            ],
        ),
        (
            "42",
            [
                r"40\frac{4}{2}",
                r"41\frac{2}{2}",
                "40 4/2",
                r"\frac{42!}{41!}",
                r"3!\cdot 7",
                r"\binom{42}{1}",
            ],
        ),
        (
            "42",
            [
                r"\begin{vmatrix}6&0\\0&7\end{vmatrix}",
                r"4.2\times 10^{2-1}",
                r"4.2\times 10",
                "6(7)",
                "[6][7]",
            ],
        ),
        (
            "42",
            [
                "42'",
                "4'2",
                "42_{16}",
                "101010_2",
                "0x2A",
                r"42,\ldots",
                r"50\%\text{ of }84",
                r"42\text{ tenths}",
            ],
        ),
        (
            "42",
            [
                r"42\text{ at least}",
                r"42\text{ is wrong}",
                r"42\text{ dozen}",
                r"42\text{ million}",
            ],
        ),
        ("1024", ["2^{10}", "2**10", "4^5"]),
        ("-1", ["(-1)^{2021}", "i^2"]),
        (r"\frac{1}{8}", ["2^{-3}", r"\left(\frac{1}{2}\right)^3", "8^{-1}"]),
        (
            r"\frac{1}{3}",
            ["1÷3", r"1\div 3", "0.33", r"\frac{1}{\frac{3}{1}}", r"\frac{2}{6}\cdot 1"],
        ),
        (
            "(4, 6)",
            [
                "(1+3, 2+4)",
                "(4, 2·3)",
                r"(\sqrt{16}, 6)",
                "(4, 3!)",
                "(2,3)⋅2",
                "2(2,3)",
                r"(4, 12\div 2)",
            ],
        ),
        (r"\{3\}", [r"\{1+2\}", r"\{6/2 + 0\}"]),
        (r"\{3, 5\}", [r"\{1+2, 5\}", r"\{3, 2⊕3\}"]),
        ("3, 7", ["1+2, 3+4", r"\sqrt{9}, 7"]),
        ("[0, 5]", ["[1-1, 2+3]", r"0 \le x \le 2+3", r"[0, \sqrt{25}]"]),
        ("(3, 4), (5, 6)", ["(1+2, 4), (5, 6)", "(3, 4), (5, 2·3)"]),
        (
            r"\begin{pmatrix}6&8\\10&12\end{pmatrix}",
            [
                r"\begin{pmatrix}1&2\\3&4\end{pmatrix}+\begin{pmatrix}5&6\\7&8\end{pmatrix}",
                r"\begin{pmatrix}1+5&8\\10&12\end{pmatrix}",
                r"2\begin{pmatrix}3&4\\5&6\end{pmatrix}",
                r"\frac{1}{2}\begin{pmatrix}12&16\\20&24\end{pmatrix}",
                r"\begin{pmatrix}6&10\\8&12\end{pmatrix}",
            ],
        ),
        (r"(1, \sqrt{2})", [r"(0+1, \sqrt2)", r"(\sqrt2, 1)", r"(1, \sqrt{2}x^0)"]),
        (r"\{1, \sqrt{2}, \pi\}", [r"\{\pi, 3-2, \sqrt2\}", r"\{1, \sqrt2\}"]),
        ("x = 42", ["x + 3 = 45", "2x = 84", "x = 40+2", "x = 6⋅7", "y = 42"]),
        ("x > 2", [r"x > \sqrt{4}", "x > 1+1"]),
        ("1, 2, 3", [r"1,2,3,\ldots", "1,2,3…", r"1, \dots, 3"]),
        (r"5\text{ cm}", [r"5\%", "5 kg"]),
        ("C", ["C'", r"C\text{ or }D", "(C)(D)", r"\text{(C) or (D)}", "(D) 14", "C, D"]),
    ],
)
def test_unworked_arithmetic_is_not_paid(gold, answers):
    assert paid(gold, answers) == []


@pytest.mark.parametrize(
    ("gold", "answers"),
    [
        (
            "42",
            [
                "(42)",
                "((42))",
                "[42]",
                r"\{42\}",
                "n = 42",
                "42 = n",
                "42.",
                "042",
                "42°",
                "42∘",
                r"42^\circ",
            ],
        ),
        (
            "42",
            [
                r"\$42",
                "€42",
                r"\pounds 42",
                r"42\text{ cm}^2",
                r"42\,\mathrm{m}/\mathrm{s}",
                r"42\text{ N·m}",
            ],
        ),
        (
            "42",
            [
                "4.2 × 10¹",
                "4.2·10^1",
                "4.2*10**1",
                "4.2⋅10^{1}",
                "4.2 x 10^1",
                r"4.2\ast 10^1",
                "4.2e1",
                "420e-1",
            ],
        ),
        (
            "42",
            [
                "84/2",
                "84∕2",
                "84⁄2",
                r"{84 \over 2}",
                r"\nicefrac{84}{2}",
                r"\frac{-84}{-2}",
                "Fraction(84, 2)",
            ],
        ),
        (
            "42",
            [
                "４２",
                "𝟒𝟐",
                "42\u200b",
                "\ufeff42",
                "42。",
                "**42**",
                "`42`",
                '"42"',
                r"\[42\]",
                r"\(42\)",
                "42_{10}",
            ],
        ),
        ("400000", ["4 × 10^5", "4·10^5", "4*10^5", "4×10⁵", "4e5"]),
        (r"4 \times 10^{5}", ["4 × 10^5", "4·10^5", "4*10^5", "4×10⁵", "4*10**5", "400000"]),
        (
            "3000000",
            [r"3 \text{ million}", "3 million", r"\$3 \text{ million dollars}", "0.003 billion"],
        ),
        (r"3 \text{ million}", ["3000000", "3,000,000", "3e6"]),
        ("2.5", ["2½", "2 ½", "2 1/2", r"2\tfrac12", "2 1⁄2"]),
        (r"\frac{3}{2}", [r"\frac123", "1½", "3:2"]),
        (
            r"\frac{1}{3}",
            [
                "⅓",
                r"0.\overline{3}",
                "0.(3)",
                r"0.\bar3",
                "1:3",
                r"33\frac{1}{3}\%",
                r"33.\overline{3}\%",
            ],
        ),
        (r"- \frac 32", [r"\mathbf{- \frac{3}{2}}", "-1½"]),
        ("-5", ["−5", "﹣5", r"\frac{10}{-2}", "-(5)", r"-(10/2)"]),
        (
            "(4, 6)",
            ["4, 6", "(4.0, 12/2)", "x=4, y=6", "y=6, x=4", r"\langle 4, 6\rangle", "（4，6）"],
        ),
        (
            r"\{3, 5\}",
            ["5, 3", r"\lbrace 3,5 \rbrace", "3 and 5", r"x=3 \text{ or } x=5", "x_1=3, x_2=5"],
        ),
        ("[1, 2, 3]", ["1,2,3", "(1,2,3)"]),
        ("1,000, 2", ["(1000, 2)", "1000, 2"]),
        ("2, -2", [r"\pm 2", r"x = \pm 2"]),
        (
            r"(-\infty, 2) \cup (2, \infty)",
            [r"(2, \infty) \cup (-\infty, 2)", r"x < 2 \text{ or } x > 2"],
        ),
        (
            r"\begin{pmatrix}-1/5\\2/5\end{pmatrix}",
            [r"\frac{1}{5}\begin{pmatrix}-1\\2\end{pmatrix}"],
        ),
        (r"[1,2] \cup [2,3]", ["[1,3]"]),
        (
            r"\begin{pmatrix}6&8\\10&12\end{pmatrix}",
            [
                r"\begin{bmatrix}6&8\\10&12\end{bmatrix}",
                r"\begin{pmatrix}6.0&16/2\\[4pt]10&12\\\end{pmatrix}",
            ],
        ),
        (r"(1, \sqrt{2})", [r"(1.0, \frac{2}{\sqrt{2}})", r"x=1, y=\sqrt2"]),
        (r"\{1, \sqrt{2}, \pi\}", [r"\{\pi, 1, \sqrt2\}", r"\sqrt2, 1, \pi"]),
        ("101_2", ["101", "(101)_2", "101₂"]),
        (r"2^{10}", ["2**10", "1024"]),
        ("C", [r"\textbf{(C)}\ 14", r"\text{(C) } 14", "C) 14"]),
        (r"\textbf{(C)}\ 14", ["C", "14"]),
        ("B, D", ["BD", "D, B"]),
        ("BD", ["B, D", r"B \text{ and } D"]),
    ],
)
def test_right_answers_are_read(gold, answers):
    assert unpaid(gold, answers) == []


@pytest.mark.parametrize(
    ("gold", "answers"),
    [
        (r"\frac{\pi}{3}", ["pi/3", "π/3", "1/3*pi", "1/3⋅π", "1/3⊗π"]),
        ("x^2+1", ["x**2+1", "x**2 + 1", "1+x**2", "x ⋅ x + 1", "x^{2}∔1"]),
        ("2i", ["2*I", "2I", "2j", "2*i"]),
        ("3+4i", ["(3+4j)", "3 + 4*I"]),
        ("e^2", ["exp(2)", "E**2"]),
        (r"\infty", ["oo", "∞"]),
        (r"\sqrt[3]{2}", ["2**(1/3)", "∛2", r"\sqrt[3]2", "cbrt(2)"]),
        (r"\sqrt{2+\sqrt{3}}", ["sqrt(2 + sqrt(3))", "sqrt(sqrt(3) + 2)"]),
        (r"\sin 1", ["sin(1)", "np.sin(1)"]),
        (r"\log_2 3", ["log(3)/log(2)"]),
        ("pi/3", [r"\frac{\pi}{3}"]),
        ("x**2 + 1", ["x^2+1"]),
        ("exp(2)", ["e^2"]),
        ("3 + 4*I", ["3+4i"]),
        ("oo", [r"\infty"]),
        (r"\text{é}", ["e\u0301", "é"]),
        (r"2\sqrt{2}", ["2⋅√2", "2∗√2", "2*sqrt(2)"]),
    ],
)
def test_what_programs_print_is_paid(gold, answers):
    assert unpaid(gold, answers) == []


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        (
            "x=1, y=2",
            [
                "(1,2)",
                "1, 2",
                "y=2, x=1",
                "x=1; y=2",
                "(x,y)=(1,2)",
                "(y,x)=(2,1)",
                "(x=1, y=2)",
                "x=1.0, y=4/2",
            ],
            [
                "(2,1)",
                "2, 1",
                r"\{1,2\}",
                "x=2, y=1",
                "x=1",
                "a=1, b=2",
                "(y,x)=(1,2)",
                "x=1, y=2, z=3",
                "x=1, y=1+1",
            ],
        ),
        ("f(0)=2, f(1)=5", ["f(1)=5, f(0)=2", "2,5"], ["f(0)=5, f(1)=2", "5,2", "(5,2)"]),
        ("a_1=2, a_2=5", ["a_2=5, a_1=2", "(2,5)"], ["a_1=5, a_2=2", "(5,2)", "5,2"]),
        (
            r"P(A)=\frac12, P(B)=\frac13",
            ["P(B)=1/3, P(A)=1/2"],
            [r"\frac13,\frac12", r"P(A)=\frac13, P(B)=\frac12"],
        ),
        ("A=2, B=-3, C=4", ["(2,-3,4)", "C=4, A=2, B=-3"], ["(4,-3,2)", "A=4, B=-3, C=2"]),
        (r"x=1 \text{ and } y=2", ["1, 2"], ["2,1"]),
        (r"\alpha=1, \beta=2", ["1,2"], ["2,1"]),
        ("(x,y)=(1,2)", ["x=1,y=2", "y=2,x=1", "(1,2)", "1,2"], ["(2,1)", "y=1,x=2", r"\{1,2\}"]),
        ("(1,2)", ["x=1, y=2", "(x,y)=(1,2)"], ["y=1, x=2", "(y,x)=(1,2)"]),
        (r"x=2 \text{ or } x=5", ["5,2", "x=5, x=2", r"\{2,5\}"], ["(2,5,1)", "x=2", "x=2, x=6"]),
        ("x_1=2, x_2=3", ["3, 2", "x_1=2, x_2=3"], ["x_1=3, x_2=2", "(3, 2)"]),
        (
            "x=1, y=\\sqrt{2}",
            [r"(1, \sqrt2)", r"y=\sqrt2, x=1"],
            [r"(\sqrt2, 1)", r"x=\sqrt2, y=1"],
        ),
    ],
)
def test_several_names_are_a_mapping(gold, right, wrong):
    assert unpaid(gold, right) == [] and paid(gold, wrong) == []


def test_math_verify_is_not_asked_about_plain_numbers(monkeypatch):
    monkeypatch.setattr(
        grade_module._workers, "ask", lambda *_: pytest.fail("math-verify was asked")
    )
    golds = [
        "42",
        "(4, 6)",
        r"\{3, 5\}",
        "[0, 5)",
        "x = 3",
        "x=1, y=2",
        r"\begin{pmatrix}1\\2\end{pmatrix}",
    ]
    answers = [
        *golds,
        "6 ⋅ 7",
        "x^2",
        r"\sqrt{2}",
        "((1",
        "9^{9^{9^9}}",
        "(1+1, 2)",
        r"\int_0^1 x",
        "a, b",
    ]
    assert [
        gold for gold in golds for answer in answers if score(gold, answer) and answer != gold
    ] == []


# --- quotients that can be read off a generated problem

SPELLINGS = (
    *(
        "{}/{}",
        r"\frac{{{}}}{{{}}}",
        r"\dfrac{{{}}}{{{}}}",
        "{}:{}",
        "{}∕{}",
        "{}⁄{}",
        "-{}/-{}",
        "+{}/{}",
    ),
    *(
        "({})/({})",
        "({}/{})",
        "[{}/{}]",
        r"\{{{}/{}\}}",
        "{}/{} apples",
        r"\${}/{}",
        r"{}/{}\%",
        r"0\frac{{{}}}{{{}}}",
    ),
    *(
        "x = {}/{}",
        "{}/{} = x",
        r"{{{} \over {}}}",
        r"\nicefrac{{{}}}{{{}}}",
        "Fraction({}, {})",
        r"{}\div {}",
    ),
    *("0{}/{}", "{}./{}", r"\text{{{}/{}}}", r"-\frac{{-{}}}{{{}}}", r"\boxed{{{}/{}}}"),
)


def test_the_quotients_of_a_generated_problem_earn_nothing_in_any_spelling():
    env = make("turngym/Math-v0", split="test", difficulty=(1, 2, 3))
    tried = 0
    for task in range(0, 1500, 5):
        env.reset(seed=0, options={"task": task})
        quotients = set(re.findall(r"(\d+) ?/ ?(\d+)", env.task.prompt))
        quotients |= set(re.findall(r"^print\((\d+)//?(\d+)\)$", env.task.solution))
        for quotient in quotients - {tuple(env.task.gold.split("/"))}:
            for spelling in SPELLINGS:
                env.reset(seed=0, options={"task": task})
                reward, info = env.step(f"\\boxed{{{spelling.format(*quotient)}}}")[1::3]
                tried += 1
                assert (reward, info["score"]) == (0.0, 0.0), (env.task.prompt, spelling)
    assert tried > 1000


def test_a_quotient_is_a_right_form_for_the_grader_and_only_the_question_refuses_its_own():
    tasks = MathTasks("test", 1, ("arithmetic",))
    index = next(i for i in range(100) if " / " in tasks[i].prompt)
    task = tasks[index]
    top, bottom = re.search(r"(\d+) / (\d+)", task.prompt).groups()
    env = QuestionEnv(tasks, MathGrader())
    for answer, reward, how in (
        (f"{top}/{bottom}", 0.0, "restated"),
        (f"{2 * int(top)}/{2 * int(bottom)}", 1.0, "numeric"),
        (task.gold, 1.0, "string"),
    ):
        env.reset(options={"task": index})
        result = env.step(f"\\boxed{{{answer}}}")
        assert (result[1], result[4]["how"]) == (reward, how)
    assert score(task.gold, f"{top}/{bottom}") == 1.0


def test_the_golds_own_form_and_every_gold_are_paid():
    for family in FAMILIES:
        tasks = MathTasks("test", (1, 2, 3, 4, 5), (family,))
        for i in range(60):
            assert (
                not tasks[i].restates(tasks[i].gold) and score(tasks[i].gold, tasks[i].gold) == 1.0
            )


def test_what_can_be_read_off_a_problem():
    assert read_off("2 friends share 84 apples.", "print(84//2)") >= {(84, 2), (2, 84)}
    assert read_off("How many hours are 120 minutes?", "print(120//60)") >= {(120, 60)}
    assert read_off("What is x?", "print(Fraction(3, 4))") == {(3, 4)}
    assert read_off("0 and 5", "") == {(0, 5), (5, 5)}
