r"""The child process that compares answers with math-verify, which may hang on hostile input.

It may also run out of memory; then only this process dies. It runs as a script and imports nothing
of the package: its first argument is the path of the file with `serve`.
"""

from __future__ import annotations

import functools
import logging
import runpy
import signal
import sys
from typing import Any

GRACE = 1.0  # seconds after the timeout in which the parent may end the process itself


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Compare an answer with the gold.

    Args:
        request: `gold` and `answer`, two formulas in LaTeX, and `seconds`, the timeout; or nothing,
            as a greeting, to load math-verify.

    Returns:
        `equal`, and an `error` if they cannot be compared; nothing for a greeting.
    """
    parse, verify = _load_math_verify()
    if not request:
        # The first formula takes far longer than any other, which is no answer's fault.
        verify(parse(r"\boxed{\frac{\sqrt{8}}{2}}"), parse(r"\boxed{\sqrt{2}}"))
        return {}
    # The parent ends this process after the timeout. If the parent is gone, the kernel does it.
    signal.setitimer(signal.ITIMER_REAL, request["seconds"] + GRACE)
    try:
        gold = parse(f"\\boxed{{{request['gold']}}}")
        answer = parse(f"\\boxed{{{request['answer']}}}")
        is_equal = bool(verify(gold, answer)) and not _are_different_small_values(
            gold[0], answer[0]
        )
        return {"equal": is_equal}
    except (Exception, MemoryError) as error:
        return {"equal": False, "error": type(error).__name__}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@functools.cache
def _load_math_verify() -> tuple[Any, Any]:
    """Return math-verify's functions to parse and to compare.

    They are without the rules that make different answers equal, and without timeouts: those need
    signals, and this process has its own.
    """
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, grader, parse, verify
    from sympy import Derivative, solve

    solve_and_compare = grader.sympy_solve_and_compare

    def compare_solvable(gold: Any, answer: Any, *precision: int) -> bool:
        # Two equations without a solution are not the same equation. And `solve` takes every
        # derivative for 0.
        if gold.has(Derivative) or not solve(gold, gold.free_symbols):
            return False
        return bool(solve_and_compare(gold, answer, *precision))

    grader.sympy_solve_and_compare = compare_solvable

    # With `units` it would read 2ab as 2. With `malformed_operators` it would read the second value
    # of `\frac{4}{2}, \log 250` as `\log 52 0`.
    normalization = NormalizationConfig(
        units=False, malformed_operators=False, nits=True, boxed="all"
    )
    extraction = LatexExtractionConfig(boxed_match_priority=0, normalization_config=normalization)
    parse_first_box = functools.partial(
        parse,
        extraction_config=[extraction],
        extraction_mode="first_match",
        parsing_timeout=None,
    )
    return parse_first_box, functools.partial(verify, timeout_seconds=None)


def _are_different_small_values(gold: Any, answer: Any) -> bool:
    """Return whether two values below 1 differ by more than 5e-6 of the gold.

    math-verify compares with an absolute tolerance, so that to it all tiny values are 0.
    """
    is_number = getattr(gold, "is_number", False) and getattr(answer, "is_number", False)
    if not is_number:
        return False
    gold_size = abs(gold.doit().evalf(20))
    if not gold_size < 1:
        return False
    difference = abs((gold - answer).doit().evalf(20))
    return bool(difference > 5e-6 * gold_size)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the parent may ignore it
    runpy.run_path(sys.argv[1])["serve"](handle, sized=True)
