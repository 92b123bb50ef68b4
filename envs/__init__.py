"""Gymnasium environments of text over many turns (no torch).

- `text_env`: the base class of all environments: turns, forks, snapshots
- `spaces`: the text space
- `outcomes`: how an episode can end, and what an environment replies to an action
- `rewards`: several named rewards of an episode, and their weighted sum
- `question`: questions with tools, `tasks x tools x grader`
- `vector`: many environments, stepped one after the other
- `registry`: the ids, and what makes them
- `options`: the options that they are made with
- `choices`: what a file may choose of environments, trainings and evaluations; `reserved_choices` finds the rest
- `splits`: the splits of tasks, and to which one a generated problem belongs
- `split_episodes`: the episodes of a split, how one begins, and worked examples of them
- `examples`: conversations of a file, and worked examples in front of a question
- `tasks`: tasks and sets of tasks; `keyed_random`: their draws
- `rows`: rows of questions, and the tasks that they give
- `sources`: where questions come from: files and data sets; `task_files` reads the files
- `diagnostic`: worlds that each isolate one thing a control of entropy has to get right
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
]
__all__ += ["Task", "TextEnv", "TextVectorEnv", "fork", "load_tasks", "outcome_of", "register_all"]
