"""`BFCL-v0`: function calls of the Berkeley Function-Calling Leaderboard, scored as officially.

In a single-turn category the one reply is the answer. In a conversation (`multi_turn_…`) the calls
of each reply act on objects of the episode and are answered, and a reply without calls ends the
user's turn. At the end of each turn the state of the objects, and the results of the calls, are
compared with those of the gold calls.

`make_bfcl` makes the environment `BFCL` of `BFCLTasks`; the module `calls` reads, runs and judges
calls. The data come from the official package `bfcl-eval` (Apache-2.0).
Source: S. Patil et al., "The Berkeley Function Calling Leaderboard" (ICML 2025).
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...tools.checks import cut_middle
from ...tools.formats.foreign import find_foreign_call
from ...tools.thoughts import thought_marks
from ..outcomes import Reply, StopReason
from ..spaces import TextSpace
from ..splits import check_split
from ..tasks import Message, check_known, choose_index, strict
from ..text_env import TextEnv
from .calls import (
    ERROR_PREFIX,
    MODULES,
    PACKAGE,
    Conversation,
    import_official,
    judge_reply,
    parse_calls,
    unparse_call,
)

INSTALL = "pip install --no-deps bfcl-eval==2026.3.23"
SINGLE = ("simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance")
CONVERSATIONS = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)
# For each category, with all conversations as one, the numbers of the tasks in `train` and `valid`.
SPLITS: dict[str, dict[str, list[int]]] = json.loads(
    Path(__file__).with_name("bfcl_splits.json").read_text()
)
# Replies with calls in one turn of the user; one more ends the episode, as officially.
MAX_STEPS = 20
# Bytes of an observation; the files of long conversations need more than the usual size.
MAX_OBSERVATION_BYTES = 2**20
# Appended to each description of a function, as officially.
PYTHON_NOTE = " Note that the provided function is in Python 3 syntax."
DONE = "Done."  # a reply without calls, which ends the user's turn
PROMPTS = "constants.default_prompts"  # the module of the package with its prompts


class BFCL(TextEnv):
    """Call functions as the user asks, in the form `[f(a=1), g(b=2)]`.

    The reward is 1 if the official checker accepts the episode, else 0. The last `info` has
    `category`, `score`, and the official `error_type`, which is empty if all is right.

    Args:
        tasks: The tasks; `reset(options={"task": i})` picks one, else one is drawn.
        max_turns: Limit of replies in an episode, besides the official one of 20 replies with
            calls in one turn of the user.
    """

    shared: ClassVar[frozenset[str]] = TextEnv.shared | {"tasks", "task"}

    def __init__(self, tasks: BFCLTasks, max_turns: int = 200) -> None:
        super().__init__(max_turns)
        self.observation_space = TextSpace(MAX_OBSERVATION_BYTES)
        self.tasks = tasks
        self.task: BFCLTask | None = None
        self.conversation: Conversation | None = None  # None in single-turn categories
        self.steps = 0  # replies with calls in the present turn of the user

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        """Begin a task, with new objects if it is a conversation; return what the user asks."""
        task = self.tasks[choose_index(rng, options, self.tasks)]
        self.task = task
        self.task_id = task.id
        self.category = task.category
        self.steps = 0
        self.conversation = Conversation(task.row, task.gold) if task.is_conversation else None
        return str(task.messages(turn=0)[-1]["content"])

    def messages(self, observation: str) -> list[Message]:
        """Return the official system prompt, with the functions, and the user's first messages."""
        task = self._require_task()
        return [
            {"role": "system", "content": _system_prompt(task.functions)},
            *task.messages(turn=0),
        ]

    def without_thoughts(self, action: str) -> str:
        """Return an action without its thoughts, but leave lists of calls as they are.

        Text such as "</think>" inside a list of calls is part of an argument.
        """
        if parse_calls(action):
            return action
        for mark in thought_marks(action)[:1]:
            after_first_thought = action[mark.thought_end or mark.end :]
            if parse_calls(after_first_thought):
                return after_first_thought
        return super().without_thoughts(action)

    def on_step(self, text: str) -> Reply:
        """Answer a reply; `info` tells if it has no call, but one in another model's format."""
        reply = self._answer(text)
        if parse_calls(text):
            return reply
        function_names = [function["name"] for function in self._require_task().functions]
        foreign_format = find_foreign_call(text, "pythonic", function_names)
        if foreign_format is None:
            return reply
        return replace(reply, info={**reply.info, "foreign_call": foreign_format})

    def gold(self) -> list[str]:
        """Return the gold calls of the turns to come, each followed by a reply that ends the turn.

        If the agent has made a call in the present turn, the gold calls of it are left out.
        """
        task = self._require_task()
        if self.conversation is None:
            return [task.answer]
        gold_turns = task.gold[self.conversation.turn :]
        replies: list[str] = []
        for gold_calls in gold_turns:
            if gold_calls:
                replies.append(f"[{', '.join(gold_calls)}]")
            replies.append(DONE)
        if self.conversation.has_called and gold_turns[0]:
            return replies[1:]
        return replies

    def _answer(self, text: str) -> Reply:
        """Judge the reply of a single-turn category, or go on with a conversation."""
        task = self._require_task()
        calls = parse_calls(text)
        if self.conversation is None:
            error = judge_reply(task.category, task.functions, task.gold, text)
            return self._end(error, valid=calls is not None)
        if calls:
            return self._run_calls(self.conversation, calls)
        self.conversation.end_turn()
        self.steps = 0
        if self.conversation.turn < len(task.gold):
            return Reply(task.messages(self.conversation.turn)[-1]["content"])
        return self._end(self.conversation.error, valid=None)

    def _run_calls(self, conversation: Conversation, calls: list[ast.Call]) -> Reply:
        """Run the calls of one reply and show their results in the official form."""
        results = conversation.call(calls)
        self.steps += 1
        if self.steps > MAX_STEPS:
            return self._end("multi_turn:force_terminated", valid=True, stop=StopReason.MAX_TURNS)
        tool_messages = [
            {"role": "tool", "name": unparse_call(call), "content": result}
            for call, result in zip(calls, results, strict=True)
        ]
        has_failed = any(result.startswith(ERROR_PREFIX) for result in results)
        info = {
            "tool_status": "error" if has_failed else "ok",
            "tool": unparse_call(calls[0].func),
        }
        observation = cut_middle(repr(tool_messages), MAX_OBSERVATION_BYTES // 5)
        return Reply(observation, info=info, valid=not has_failed)

    def _require_task(self) -> BFCLTask:
        if self.task is None:
            raise RuntimeError("there is no task: call reset() first")
        return self.task

    def _end(self, error: str, valid: bool | None, stop: StopReason = StopReason.ANSWERED) -> Reply:
        """End the episode; `error` is the official error type, empty if all is right."""
        score = float(not error)
        info = {"score": score, "category": self._require_task().category, "error_type": error}
        return Reply("", reward=score, stop=stop, info=info, valid=valid)


class BFCLTask:
    """One task.

    Args:
        category: Its category.
        row: Its row of the official data.
        gold: The official answer. In a conversation the calls of each turn, as text; else a list
            of `{function: {argument: [right values]}}`.
    """

    def __init__(self, category: str, row: dict[str, Any], gold: list[Any]) -> None:
        self.category = category
        self.row = row
        self.gold = gold
        self.id = str(row["id"])
        self.is_conversation = category in CONVERSATIONS

    @cached_property
    def functions(self) -> list[dict[str, Any]]:
        """The documents of the functions that are shown at the start."""
        later_names: set[str] = set()  # of functions that a later turn adds
        for names in self.row.get("missed_function", {}).values():
            later_names.update(names)
        documents = self._class_documents if self.is_conversation else self.row["function"]
        return [
            {**document, "description": document["description"] + PYTHON_NOTE}
            for document in documents
            if document["name"] not in later_names
        ]

    @property
    def _class_documents(self) -> list[dict[str, Any]]:
        """The documents of all functions of a conversation's classes."""
        documents: list[dict[str, Any]] = []
        for class_name in self.row["involved_classes"]:
            documents.extend(_load_documents(class_name))
        return documents

    def messages(self, turn: int) -> list[Message]:
        """Return what the user says in a turn, or which functions can be called from now on."""
        added_names = self.row.get("missed_function", {}).get(str(turn))
        if not added_names:
            return [dict(message) for message in self.row["question"][turn]]
        documents = {document["name"]: document for document in self._class_documents}
        template = import_official(PROMPTS).DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING
        text = template.format(functions=[documents[name] for name in added_names])
        return [{"role": "user", "content": text}]

    @property
    def answer(self) -> str:
        """A right reply in a single-turn category."""
        if self.category == "irrelevance":
            return "None of the functions can be used."
        required_arguments = {
            document["name"]: document["parameters"]["required"]
            for document in self.row["function"]
        }
        calls: list[str] = []
        for gold_call in self.gold:
            for name, choices in gold_call.items():
                arguments = _choose_values(choices, required_arguments[name])
                written = [f"{key}={value!r}" for key, value in arguments.items()]
                calls.append(f"{name}({', '.join(written)})")
        return f"[{', '.join(calls)}]"


class BFCLTasks(list[BFCLTask]):
    """The tasks of several categories in a split, category by category."""

    def __init__(self, categories: Sequence[str], split: str) -> None:
        self.name = f"bfcl:{','.join(categories)}"
        self.split = split
        super().__init__()
        for category in categories:
            self.extend(task for task in _load_tasks(category) if _is_in_split(task.id, split))


@strict
def make_bfcl(
    category: str | Iterable[str] = SINGLE, split: str = "all", max_turns: int = 200
) -> BFCL:
    """Return `turngym/BFCL-v0`.

    Args:
        category: One or several of `simple_python`, `multiple`, `parallel`, `parallel_multiple`,
            `irrelevance`, and of the conversations `multi_turn_base`, `…_miss_func`,
            `…_miss_param`, `…_long_context`.
        split: `all` for figures to compare. `bfcl_splits.json` names half of the tasks for `train`
            and a tenth for `valid`; the others are `test`. The variants of one conversation are in
            the same split.
        max_turns: Limit of replies in an episode.

    Raises:
        ValueError: There is no such category or split, or the package is not installed.
    """
    categories = (category,) if isinstance(category, str) else tuple(category)
    all_categories = (*SINGLE, *CONVERSATIONS)
    for name in categories:
        check_known(name, all_categories, f"category is {name!r}", "the categories are")
    if not categories:
        raise ValueError(f"category is empty; the categories are {', '.join(all_categories)}")
    if split != "all":
        check_split(split)
    unique_categories = list(dict.fromkeys(categories))
    return BFCL(BFCLTasks(unique_categories, split), max_turns)


def _is_in_split(task_id: str, split: str) -> bool:
    """Return whether a task, such as "multi_turn_miss_func_12", is in a split.

    All conversations of one number are variants of each other, so they are in the same split.
    """
    if split == "all":
        return True
    category, _, number = task_id.rpartition("_")
    if category.startswith("multi_turn"):
        category = "multi_turn"
    for listed_split, numbers in SPLITS[category].items():
        if int(number) in numbers:
            return split == listed_split
    return split == "test"


def _system_prompt(functions: Sequence[Mapping[str, Any]]) -> str:
    """Return the system prompt of the official default: Python calls, functions as JSON, no markup.

    Args:
        functions: The documents of the functions to show.
    """
    prompts = import_official(PROMPTS)
    sections = dict(prompts.PROMPT_STYLE_TEMPLATES["classic"])
    sections["tool_call_format"] = sections["tool_call_no_tag"].format(
        output_format=prompts.OUTPUT_FORMAT_MAPPING["python"], param_types=""
    )
    sections["available_tools"] = sections["available_tools"].format(
        format="json", functions=json.dumps(functions, indent=4)
    )
    return str(prompts.PROMPT_TEMPLATE_MAPPING["plaintext"].format(**sections))


# -- gold values -------------------------------------------------------------------------------


def _choose_values(
    choices: Mapping[str, list[Any]], required: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the first right value of each argument or key; what may be left out is left out.

    Args:
        choices: The right values of each name. "" among them means that the name may be left out.
        required: The names that are kept even so.
    """
    chosen: dict[str, Any] = {}
    for name, values in choices.items():
        if "" in values and name not in required:
            continue
        first_value = next(value for value in values if value != "")
        chosen[name] = _plain_value(first_value)
    return chosen


def _plain_value(value: Any) -> Any:
    """Return a gold value as an argument: a dictionary in it has choices for each of its keys."""
    if isinstance(value, list):
        return [_plain_value(item) for item in value]
    if isinstance(value, dict):
        return _choose_values(value)
    return value


# -- the data of the package -------------------------------------------------------------------


@cache
def _find_data_folder() -> Path:
    """Return the folder with the data; raise ValueError if the package is not installed."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ValueError(
            f"the data of BFCL are in the package bfcl-eval, which is not installed: {INSTALL}"
        )
    return Path(spec.origin).parent / "data"


@cache
def _load_tasks(category: str) -> list[BFCLTask]:
    """Return all tasks of a category, in the order of the data."""
    file_name = f"BFCL_v4_{category}.json"
    rows = _read_rows(_find_data_folder() / file_name)
    if category == "irrelevance":  # it has no file of answers: any call is wrong
        return [BFCLTask(category, row, gold=[]) for row in rows]
    answers = _read_rows(_find_data_folder() / "possible_answer" / file_name)
    gold_by_id = {answer["id"]: answer["ground_truth"] for answer in answers}
    return [BFCLTask(category, row, gold=gold_by_id[row["id"]]) for row in rows]


@cache
def _load_documents(class_name: str) -> tuple[dict[str, Any], ...]:
    """Return the documents of the functions of a conversation's class, such as `MathAPI`."""
    folder = _find_data_folder() / "multi_turn_func_doc"
    return tuple(_read_rows(folder / f"{MODULES[class_name]}.json"))


def _read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file with one JSON object a line."""
    rows: list[dict[str, Any]] = []
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.strip():
                rows.append(json.loads(line))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}; install it again: {INSTALL}") from error
    return rows
