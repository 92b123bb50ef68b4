"""Math questions, in one turn or with a Python tool over several turns.

The questions are generated, read from files or from data sets, or made by reasoning-gym.

- `make`: makes the environments from their options; lists the data sets that have short names
- `problems`: generated problems
- `grading`: decides whether a completion answers a question
- `reasoning`: tasks that reasoning-gym makes and scores
"""

from .grading.grader import MathGrader
from .make import SYSTEM, SYSTEM_TOOL, make_math, make_math_python
from .problems.tasks import MathTasks

__all__ = ["SYSTEM", "SYSTEM_TOOL", "MathGrader", "MathTasks", "make_math", "make_math_python"]
