"""Checks integrals with sympy in the Python tool's sandbox.

sympy's own parser evaluates what it reads. So an answer is read by the grammar of `expressions`,
and sympy gets a program of calls that were written here. The program runs as an agent's code does,
in a session of its own that ends with it.
"""

import functools

from ....tools import Status, ToolFailure
from ....tools.python import LEVELS, require
from ....tools.python.tool import PythonTool
from .expressions import Expression
from .grader import GraderFailure

CONFINING = tuple(level for level in LEVELS if level != "rlimits-only")
"""The levels of isolation that are a boundary, the strongest first."""

FUNCTIONS = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "asin",
        "acos",
        "atan",
        "asinh",
        "acosh",
        "atanh",
        "sec",
        "csc",
        "cot",
        "exp",
        "log",
        "ln",
        "sqrt",
        "Abs",
    ]
)
"""The functions that an integral may call, as sympy spells them."""

MEMORY_MB = 1024
_PROGRAM = """
from sympy import *
answer = {answer}
integrand = {integrand}
print(simplify(diff(answer, Symbol({variable!r})) - integrand) == 0)
"""


class Unconfined(ValueError):
    """This machine can confine no program."""


class NotDecided(RuntimeError):
    """The program did not end within its limits: no fault but the answer's.

    Attributes:
        status: How the program ended, such as `Status.TIMEOUT`.
    """

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status


@functools.cache
def find_level() -> str:
    """Return the strongest level at which this machine can confine programs.

    Raises:
        Unconfined: It can confine none; the message has the reasons.
    """
    reasons = []
    for level in CONFINING:
        try:
            require(level)
        except ToolFailure as failure:
            reasons.append(" ".join(str(failure).split()))
        else:
            return level
    distinct_reasons = dict.fromkeys(reasons)
    raise Unconfined(f"no program can be confined here ({'; '.join(distinct_reasons)})")


def is_integral(answer: Expression, integrand: Expression, variable: str, seconds: float) -> bool:
    """Return whether the derivative of `answer` is `integrand`.

    Args:
        answer: The integral.
        integrand: What was integrated.
        variable: The name of the variable that it was integrated over.
        seconds: The time limit of the program.

    Raises:
        NotDecided: sympy exceeded its time or memory, or raised an error.
        GraderFailure: The program cannot run at all.
    """
    program = _PROGRAM.format(
        answer=answer.sympy_code, integrand=integrand.sympy_code, variable=variable
    )
    try:
        tool = PythonTool(seconds, MEMORY_MB, persistent=False, level=find_level())
        result = tool.call({"code": program})
    except (ToolFailure, Unconfined) as failure:
        raise GraderFailure(f"an integral cannot be checked: {failure}") from failure
    output = result.text.strip()
    if result.status is not Status.OK:
        last_line = output.rpartition("\n")[2]
        raise NotDecided(result.status, last_line)
    return output == "True"
