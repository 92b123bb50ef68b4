"""Math questions: generated, from files or from known data sets, in one turn or with a Python tool over several.

- make: the environments, made from their options; the data sets known by name
- grade: whether a completion answers a question; math-verify in a child process
- extract: the answer of a completion
- numbers: plain numbers, read exactly
- values: tuples, lists, sets, intervals, unions and matrices of plain numbers, element by element
- names: names in front of values, and mappings from several names
- notation: one spelling for LaTeX that can be written in several ways; choices, words and relations
- signs: signs of Unicode, and what programs print, in LaTeX's spelling
- worker: the child process that runs math-verify
- problems: generated problems: text, gold and program, by the rows of `families.toml`, each fixed by its index
- reasoning: tasks that reasoning-gym makes and scores
- reasoning_worker: the child process that scores them
- expressions: expressions of numbers and names, read by a grammar, for the tasks whose scorers would evaluate a text
- calculus: whether an expression is an integral, computed by sympy within the boundary of the Python tool
"""

from .grade import MathGrader
from .make import SYSTEM, SYSTEM_TOOL, make_math, make_math_python
from .problems import MathTasks

__all__ = ["SYSTEM", "SYSTEM_TOOL", "MathGrader", "MathTasks", "make_math", "make_math_python"]
