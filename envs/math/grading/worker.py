r"""The child process that compares answers with math-verify, which can hang or run out of memory on hostile input.

It runs as a script and imports nothing of the package: its first argument is the path of the file with `serve`.
"""

from __future__ import annotations

import functools
import logging
import runpy
import signal
import sys
from typing import Any

GRACE = 1.0


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Answer `{gold, answer, seconds}` with `{equal}`, and an `error` if they cannot be compared; `{}` is a greeting.

    The kernel ends the process some time after `seconds`: its parent may be gone, and an answer may take for ever.
    """
    parse, verify = _math_verify()
    if not request:
        # The first formula costs far more than any other one, which is no answer's fault.
        verify(parse(r"\boxed{\frac{\sqrt{8}}{2}}"), parse(r"\boxed{\sqrt{2}}"))
        return {}
    signal.setitimer(signal.ITIMER_REAL, request["seconds"] + GRACE)
    try:
        gold, answer = (parse(f"\\boxed{{{request[key]}}}") for key in ("gold", "answer"))
        return {"equal": bool(verify(gold, answer)) and not _apart(gold[0], answer[0])}
    except (Exception, MemoryError) as error:
        return {"equal": False, "error": type(error).__name__}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@functools.cache
def _math_verify() -> tuple[Any, Any]:
    """Return what parses and what compares, without the rules that would make different answers equal."""
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, grader, parse, verify
    from sympy import Derivative, solve

    compare = grader.sympy_solve_and_compare

    def solved(gold: Any, answer: Any, *precision: int) -> bool:
        # Two equations without a solution are not the same one, and to solve is to take all derivatives for 0.
        if gold.has(Derivative) or not solve(gold, gold.free_symbols):
            return False
        return bool(compare(gold, answer, *precision))

    grader.sympy_solve_and_compare = solved
    # Its units make 2 of 2ab; its repairs make \log 52 0 of the second value of \frac{4}{2}, \log 250.
    plain = NormalizationConfig(units=False, malformed_operators=False, nits=True, boxed="all")
    config = [LatexExtractionConfig(boxed_match_priority=0, normalization_config=plain)]
    return (
        functools.partial(
            parse, extraction_config=config, extraction_mode="first_match", parsing_timeout=None
        ),
        functools.partial(verify, timeout_seconds=None),
    )


def _apart(gold: Any, answer: Any) -> bool:
    """Return whether two values below 1 differ by over 5e-6 of their size: to math-verify all that is tiny is 0."""
    if not (getattr(gold, "is_number", False) and getattr(answer, "is_number", False)):
        return False
    size = abs(gold.doit().evalf(20))
    return bool(size < 1 and abs((gold - answer).doit().evalf(20)) > 5e-6 * size)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the parent may ignore it
    runpy.run_path(sys.argv[1])["serve"](handle, sized=True)
