"""Gymnasium environments of text over many turns (no torch).

Base of all environments:

- `text_env`: the base class: turns, forks, snapshots
- `spaces`: the text space
- `outcomes`: how an episode can end, and an environment's reply to an action
- `rewards`: several named rewards of an episode, and their weighted sum
- `vector`: many environments, stepped one after the other

Ids, options and splits:

- `registry`: the ids of environments, and the factories that make them
- `options`: the options of an environment, as a command or a file names them
- `choices`: what a file may choose of environments, trainings and evaluations
- `reserved_choices`: finds those choices of a file that only a command may make
- `splits`: the splits of tasks, and the one that a generated problem belongs to
- `split_episodes`: the episodes of a split, how one begins, and worked examples of them

Tasks:

- `tasks`: tasks and sets of tasks
- `keyed_random`: random draws of generated tasks
- `sources`: where questions come from: files and data sets
- `task_files`: readers of the files
- `rows`: rows of questions, and the tasks that they give
- `examples`: worked examples in front of a question

Environments:

- `question`: questions with tools: tasks, tools and a grader
- `diagnostic`: worlds that each isolate one difficulty of entropy control
- `math`, `qa`, `household`, `suites`: the other environments
- `adapters`: environments in other trainers, and theirs here
"""

from .outcomes import EnvFailure, Outcome, Reply, StopReason, outcome_of
from .question.env import QuestionEnv
from .question.graders import Rubric
from .registry import register_all
from .rewards import Rewards
from .sources import load_tasks
from .tasks import ListTasks, Message, Task
from .text_env import TextEnv, fork
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
    "Task",
    "TextEnv",
    "TextVectorEnv",
    "fork",
    "load_tasks",
    "outcome_of",
    "register_all",
]
