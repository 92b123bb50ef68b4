"""Gymnasium environments of text over many turns (no torch).

- core: the base class of all environments: turns, forks, snapshots; the text space
- question: questions with tools, `tasks x tools x grader`
- graders: graders made of plain functions, and of several
- vector: many environments, stepped one after the other
- rewards: several named rewards of an episode, and their weighted sum
- registry: the ids, what makes them and with which options
- choices: what a file may choose of them, and of trainings and evaluations
- splits: the episodes of a split, how one begins, and worked examples of them
- examples: conversations of a file, and worked examples in front of a question
- tasks: tasks, sets of tasks, and what generated sets share
- rows: rows of questions, and the tasks that they give
- task_sets: tasks as authors give them: dicts, pairs, a file
- task_files: files of tasks: JSON lines, JSON, CSV, Parquet, folders
- sources: where questions come from: files and data sets
- diagnostic: worlds that each isolate one thing a control of entropy has to get right
- math, qa, household, suites: the other environments
- adapters: environments in other trainers, and theirs here
"""

from .core import EnvFailure, Outcome, Reply, StopReason, TextEnv, fork, outcome_of
from .graders import Rubric
from .question import QuestionEnv
from .registry import register_all
from .rewards import Rewards
from .sources import load_tasks
from .tasks import ListTasks, Message, Task
from .vector import TextVectorEnv

__all__ = [
    "EnvFailure",
    "ListTasks",
    "Message",
    "Outcome",
    "QuestionEnv",
    "Reply",
    "Rewards",
    "Rubric",
    "StopReason",
]
__all__ += ["Task", "TextEnv", "TextVectorEnv", "fork", "load_tasks", "outcome_of", "register_all"]
