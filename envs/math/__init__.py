"""Math questions: generated, from files or from known data sets, in one turn or with a Python tool over several.

- `make`: the environments, made from their options; the data sets known by name
- `problems`: generated problems
- `grading`: whether a completion answers a question
- `reasoning`: tasks that reasoning-gym makes and scores
"""

from .grading.grader import MathGrader
from .make import SYSTEM, SYSTEM_TOOL, make_math, make_math_python
from .problems.tasks import MathTasks

__all__ = ["SYSTEM", "SYSTEM_TOOL", "MathGrader", "MathTasks", "make_math", "make_math_python"]
