"""Questions of fact with a search tool: an invented world's, from files or from known data sets.

- make: the environment, made from its options, and the data sets that it knows by name
- search: the environment: a question of fact, a search tool, and a grader
- world: an invented world, its passages and the questions about it, fixed by an index, and an expert that reads them
- facts: the names of its things, and what holds between them (`relations.toml`)
"""

from .make import make_search
from .search import QAGrade, QAGrader, QATask, SearchEnv
from .world import InventedWorld

__all__ = ["InventedWorld", "QAGrade", "QAGrader", "QATask", "SearchEnv", "make_search"]
