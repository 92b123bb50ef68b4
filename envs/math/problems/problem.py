"""What every kind of generated problem is made with.

A kind of problem is a function that draws numbers and words from a `KeyedRandom` and returns a
`Problem`. It registers itself with the `ProblemFamily` of its subject:

    @ARITHMETIC.kind(level=1)
    def ask_small_sum(rng: KeyedRandom) -> Problem: ...

The draws are part of what a seed means. To change their number or order, or the order in which
kinds are registered at a level, changes the problems of every seed.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from ...keyed_random import KeyedRandom


class Problem(NamedTuple):
    """A generated problem.

    Args:
        text: What is asked; it ends with a question.
        gold: The exact answer: an integer, a finite decimal or a fraction `a/b`.
        solution: A Python program that prints the answer.
    """

    text: str
    gold: str
    solution: str


ProblemKind = Callable[[KeyedRandom], Problem]


class ProblemFamily:
    """The kinds of problem of one subject, by difficulty, in the order in which they are written.

    Args:
        name: As users choose it, such as `number-theory`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.kinds_by_level: dict[int, list[ProblemKind]] = {}

    def kind(self, *, level: int) -> Callable[[ProblemKind], ProblemKind]:
        """Register the decorated function as a kind of problem of this family.

        Args:
            level: Its difficulty, from 1 (one operation) to 5 (several steps, fractions).
        """

        def register(draw_problem: ProblemKind) -> ProblemKind:
            self.kinds_by_level.setdefault(level, []).append(draw_problem)
            return draw_problem

        return register


_IMPORTS = {
    "Fraction(": "from fractions import Fraction\n",
    "gcd(": "from math import gcd\n",
    "lcm(": "from math import lcm\n",
}  # the calls that a solution may contain, and the line that each one needs


def make_problem(question: str, *, gold: int | Fraction | str, solution: str) -> Problem:
    """Return a problem whose solution is a complete program.

    Args:
        question: The text of the problem.
        gold: The answer, worked out from the numbers that were drawn.
        solution: A Python expression for the answer, or a program that prints it, built from the
            numbers of the question. It may call `Fraction`, `gcd` and `lcm` without importing
            them. So gold and solution are two independent ways to the same value.
    """
    program = solution if "print(" in solution else f"print({solution})"
    imports = [line for call, line in _IMPORTS.items() if call in solution]
    return Problem(question, str(gold), "".join(imports) + program)


_VALUE_WORDINGS = (
    "What is {}?",
    "How much is {}?",
    "What is the value of {}?",
    "What do you get for {}?",
)
_SOLVE_WORDINGS = ("{}. What is x?", "If {}, what is x?", "For which x is {}?")


def phrase_value_question(rng: KeyedRandom, expression: str) -> str:
    """Return a question for the value of an expression, in a wording that is drawn."""
    return rng.choice(_VALUE_WORDINGS).format(expression)


def phrase_solve_question(rng: KeyedRandom, equation: str) -> str:
    """Return a question for the x that solves an equation, in a wording that is drawn."""
    return rng.choice(_SOLVE_WORDINGS).format(equation)
