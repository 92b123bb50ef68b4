"""Whether an expression is an integral of another, computed by sympy within the boundary of the Python tool.

sympy's own reader evaluates what it reads. So an answer is read by a grammar, and what sympy gets is a program of
calls that were written here; the program runs as an agent's does, in a session of its own, which ends with it.
"""

import functools

from ....tools import Status, ToolFailure
from ....tools.python import LEVELS, require
from ....tools.python.tool import PythonTool
from .expressions import Expression
from .grader import GraderFailure

CONFINING = tuple(level for level in LEVELS if level != "rlimits-only")
"""The levels that are a boundary, the strongest first."""

FUNCTIONS = frozenset(
    {
        f"{arc}{name}{hyperbolic}"
        for name in ("sin", "cos", "tan")
        for arc in ("", "a")
        for hyperbolic in ("", "h")
    }
    | {"sec", "csc", "cot", "exp", "log", "ln", "sqrt", "Abs"}
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
    """The program did not end within its limits: no fault but the answer's."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status


@functools.cache
def find_level() -> str:
    """Return the strongest level at which programs are confined here. Raises Unconfined with the reasons."""
    reasons = []
    for level in CONFINING:
        try:
            require(level)
        except ToolFailure as failure:
            reasons.append(" ".join(str(failure).split()))
        else:
            return level
    raise Unconfined(f"no program can be confined here ({'; '.join(dict.fromkeys(reasons))})")


def is_integral(answer: Expression, integrand: Expression, variable: str, seconds: float) -> bool:
    """Return whether the derivative of `answer` by `variable` is `integrand`.

    Raises NotDecided where sympy oversteps `seconds` or its memory, or raises; GraderFailure where it cannot run.
    """
    program = _PROGRAM.format(
        answer=answer.sympy_code, integrand=integrand.sympy_code, variable=variable
    )
    try:
        tool = PythonTool(seconds, MEMORY_MB, persistent=False, level=find_level())
        result = tool.call({"code": program})
    except (ToolFailure, Unconfined) as failure:
        raise GraderFailure(f"an integral cannot be checked: {failure}") from failure
    if result.status is not Status.OK:
        raise NotDecided(result.status, result.text.strip().rpartition("\n")[2])
    return result.text.strip() == "True"
