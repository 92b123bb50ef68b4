"""Questions of fact with a search tool: about an invented world, from files or from data sets.

- `make`: the environment, made from its options, and the data sets that it knows by name
- `env`: the environment: a question of fact, a search tool, and a grader
- `grader`: exact match and F1
- `world`: an invented world, its passages, and the questions about it
- `facts`: the names of the world's things, and the facts about them (`relations.toml`)
- `expert`: an expert that answers by searching
"""

from .env import QATask, SearchEnv
from .grader import QAGrade, QAGrader
from .make import make_search
from .world import InventedWorld

__all__ = ["InventedWorld", "QAGrade", "QAGrader", "QATask", "SearchEnv", "make_search"]
