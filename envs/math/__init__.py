"""Math questions: generated, from files or from known data sets, in one turn or with a Python tool over several.

- make: the environments, made from their options, and the data sets that they know by name
- grade: whether a completion answers a question; math-verify in a child process
- extract: the answer of a completion
- numbers: plain numbers and collections of them, read exactly
- notation: one spelling for LaTeX that can be written in several ways; names and relations around a value
- worker: the child process that runs math-verify
- generate: generated problems, fixed by an index
- problem: a problem of a family: text, gold and program
- algebra, arithmetic, ratios, stories: the families
- reasoning: tasks that reasoning-gym makes and scores
- reasoning_worker: the child process that scores them
"""

from .generate import MathTasks
from .grade import MathGrader
from .make import SYSTEM, SYSTEM_TOOL, make_math, make_math_python

__all__ = ["SYSTEM", "SYSTEM_TOOL", "MathGrader", "MathTasks", "make_math", "make_math_python"]
