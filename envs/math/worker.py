r"""The child process that compares answers with math-verify, which can hang or run out of memory on hostile input.

It runs as a script and imports nothing of the package: its first argument is the path of the module with `serve`.
"""

from __future__ import annotations

import logging
import resource
import runpy
import sys
from typing import Any

MEMORY = 2 * 2**30


def handle(request: dict[str, str]) -> dict[str, Any]:
    """Answer `{gold, answer}` with `{equal}`, and an `error` where they could not be compared; `{}` is a greeting."""
    from math_verify import LatexExtractionConfig, parse, verify

    if not request:
        return {}
    config = [LatexExtractionConfig(boxed_match_priority=0)]
    try:
        gold, answer = (
            parse(f"\\boxed{{{request[key]}}}", config, extraction_mode="first_match", parsing_timeout=None)
            for key in ("gold", "answer")
        )
        return {"equal": bool(verify(gold, answer, timeout_seconds=None))}
    except (Exception, MemoryError) as error:
        return {"equal": False, "error": type(error).__name__}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    runpy.run_path(sys.argv[1])["serve"](handle)
