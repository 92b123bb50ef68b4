"""`BFCL-v0`: function calls of the Berkeley Function-Calling Leaderboard (Apache-2.0), data from its own package.

In a single-turn category the one reply is the answer. In a conversation (`multi_turn_…`) each reply's calls act on
objects of the episode and are answered, and a reply without calls ends the user's turn; after the last turn the state
of the objects, and what calls said, are compared with those of the gold calls.
Source: S. Patil et al., "The Berkeley Function Calling Leaderboard" (ICML 2025), and the package `bfcl-eval`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...tools.checks import cut_middle
from ...tools.formats.foreign import foreign_call
from ...tools.thoughts import thought_marks
from ..outcomes import Reply, StopReason
from ..spaces import TextSpace
from ..splits import check_split
from ..tasks import Message, check_known, choose_index, strict
from ..text_env import TextEnv
from .calls import ERROR, MODULES, PACKAGE, Conversation, judge, official, read, written

SINGLE = ("simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance")
CONVERSATIONS = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)
# By kind the last numbers of the ids in `train` and in `valid`.
SPLITS: dict[str, dict[str, list[int]]] = json.loads(
    Path(__file__).with_name("bfcl_splits.json").read_text()
)
STEPS = (
    20  # replies with calls in one turn of the user; with one more the episode ends, as officially
)
LARGEST = (
    2**20
)  # bytes of an observation; the files of long conversations need more than the usual size
INSTALL = "pip install --no-deps bfcl-eval==2026.3.23"
PYTHON = " Note that the provided function is in Python 3 syntax."  # behind each description, as officially
DONE = "Done."
PROMPTS = "constants.default_prompts"


class BFCL(TextEnv):
    """Call functions as the user asks, in `[f(a=1), g(b=2)]`; 1 for a task that the official checker takes, else 0.

    The last `info` holds `category`, `score`, and the official `error_type`, empty where all is right.

    Args:
        tasks: The tasks; `reset(options={"task": i})` picks one, else the environment's generator draws it.
        max_turns: Limit of replies in an episode, on top of the official one of 20 with calls in a turn of the user.
    """

    shared: ClassVar[frozenset[str]] = TextEnv.shared | {"tasks", "task"}

    def __init__(self, tasks: BFCLTasks, max_turns: int = 200) -> None:
        super().__init__(max_turns)
        self.observation_space = TextSpace(LARGEST)
        self.tasks = tasks
        self.task: BFCLTask | None = None
        self.conversation: Conversation | None = None
        self.steps = 0

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        self.task = task = self.tasks[choose_index(rng, options, self.tasks)]
        self.task_id, self.category, self.steps = task.id, task.category, 0
        self.conversation = Conversation(task.row, task.gold) if task.is_conversation else None
        return str(task.messages(0)[-1]["content"])

    def messages(self, observation: str) -> list[Message]:
        """Return the official system prompt, which lists the functions, and the first messages of the user."""
        task = self._task()
        return [{"role": "system", "content": _system(task.functions)}, *task.messages(0)]

    def without_thoughts(self, action: str) -> str:
        """Return what is said; the marks of thoughts in a list of calls are part of their arguments."""
        if read(action):
            return action
        ends = [mark.thought_end or mark.end for mark in thought_marks(action)[:1]]
        return next(
            (action[end:] for end in ends if read(action[end:])), super().without_thoughts(action)
        )

    def on_step(self, text: str) -> Reply:
        reply = self._answer(text)
        names = [one["name"] for one in self._task().functions]
        foreign = None if read(text) else foreign_call(text, "pythonic", names)
        return replace(reply, info={**reply.info, "foreign_call": foreign}) if foreign else reply

    def _answer(self, text: str) -> Reply:
        task, conversation = self._task(), self.conversation
        if conversation is None:
            return self._end(
                judge(task.category, task.functions, task.gold, text), read(text) is not None
            )
        if calls := read(text):
            results = conversation.call(calls)
            self.steps += 1
            if self.steps > STEPS:
                return self._end("multi_turn:force_terminated", True, StopReason.MAX_TURNS)
            said = zip(map(written, calls), results)
            shown = [{"role": "tool", "name": name, "content": result} for name, result in said]
            wrong = sum(result.startswith(ERROR) for result in results)
            info = {"tool_status": "error" if wrong else "ok", "tool": written(calls[0].func)}
            return Reply(cut_middle(repr(shown), LARGEST // 5), info=info, valid=not wrong)
        conversation.next_turn()
        self.steps = 0
        if conversation.turn < len(task.gold):
            return Reply(task.messages(conversation.turn)[-1]["content"])
        return self._end(conversation.error, None)

    def gold(self) -> list[str]:
        """Return the gold calls of the turns to come, each followed by a reply that ends the turn."""
        task = self._task()
        if self.conversation is None:
            return [task.answer]
        turns = task.gold[self.conversation.turn :]
        replies = [
            reply for turn in turns for reply in ([f"[{', '.join(turn)}]"] if turn else []) + [DONE]
        ]
        return replies[1:] if self.conversation.called and turns[0] else replies

    def _task(self) -> BFCLTask:
        if self.task is None:
            raise RuntimeError("there is no task: call reset() first")
        return self.task

    def _end(self, error: str, valid: bool | None, stop: StopReason = StopReason.ANSWERED) -> Reply:
        score = float(not error)
        info = {"score": score, "category": self._task().category, "error_type": error}
        return Reply("", reward=score, stop=stop, info=info, valid=valid)


class BFCLTask:
    """One task: its row of the data, and the gold of its file of answers."""

    def __init__(self, category: str, row: dict[str, Any], gold: list[Any]) -> None:
        self.category, self.row, self.gold, self.id = category, row, gold, str(row["id"])
        self.is_conversation = category in CONVERSATIONS

    @cached_property
    def functions(self) -> list[dict[str, Any]]:
        """The functions that are shown at the start."""
        missed = {name for names in self.row.get("missed_function", {}).values() for name in names}
        found = self._documents if self.is_conversation else self.row["function"]
        return [
            {**one, "description": one["description"] + PYTHON}
            for one in found
            if one["name"] not in missed
        ]

    @property
    def _documents(self) -> list[dict[str, Any]]:
        return [one for name in self.row["involved_classes"] for one in _document(name)]

    def messages(self, turn: int) -> list[Message]:
        """Return what the user says in a turn, or which functions are there from now on."""
        if names := self.row.get("missed_function", {}).get(str(turn)):
            every = {one["name"]: one for one in self._documents}
            more = [every[name] for name in names]
            text = official(PROMPTS).DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING.format(
                functions=more
            )
            return [{"role": "user", "content": text}]
        return [dict(message) for message in self.row["question"][turn]]

    @property
    def answer(self) -> str:
        """A reply that is right in a single-turn category."""
        if self.category == "irrelevance":
            return "None of the functions can be used."
        required = {one["name"]: one["parameters"]["required"] for one in self.row["function"]}
        gold = [
            (name, _chosen(choices, required[name]))
            for one in self.gold
            for name, choices in one.items()
        ]
        texts = (
            f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"
            for name, given in gold
        )
        return f"[{', '.join(texts)}]"


class BFCLTasks(list[BFCLTask]):
    """Tasks of several categories, one after another."""

    def __init__(self, categories: Sequence[str], split: str) -> None:
        self.name, self.split = f"bfcl:{','.join(categories)}", split
        super().__init__(
            task
            for category in categories
            for task in _category(category)
            if _is_in(task.id, split)
        )


@strict
def make_bfcl(
    category: str | Iterable[str] = SINGLE, split: str = "all", max_turns: int = 200
) -> BFCL:
    """Return `turngym/BFCL-v0`.

    Args:
        category: One or several of `simple_python`, `multiple`, `parallel`, `parallel_multiple`, `irrelevance`, and of
            the conversations `multi_turn_base`, `…_miss_func`, `…_miss_param`, `…_long_context`.
        split: `all` for figures to compare. `bfcl_splits.json` names half of the tasks for `train` and a tenth for
            `valid`; the others are `test`. The variants of one conversation are in the same split.
        max_turns: Limit of replies in an episode.

    Raises ValueError where there is no such category or split, or the package is not installed.
    """
    categories = (category,) if isinstance(category, str) else tuple(category)
    known = (*SINGLE, *CONVERSATIONS)
    for one in categories:
        check_known(one, known, f"category is {one!r}", "the categories are")
    if not categories:
        raise ValueError(f"category is empty; the categories are {', '.join(known)}")
    if split != "all":
        check_split(split)
    return BFCL(BFCLTasks(list(dict.fromkeys(categories)), split), max_turns)


def _is_in(task_id: str, split: str) -> bool:
    """Return whether a task is in a split; the conversations of one number are variants of each other."""
    name, _, number = task_id.rpartition("_")
    kind = SPLITS["multi_turn" if name.startswith("multi_turn") else name]
    return split == "all" or split == next(
        (one for one in kind if int(number) in kind[one]), "test"
    )


@cache
def _data() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ValueError(
            f"the data of BFCL are in the package bfcl-eval, which is not installed: {INSTALL}"
        )
    return Path(spec.origin).parent / "data"


@cache
def _category(category: str) -> list[BFCLTask]:
    name = f"BFCL_v4_{category}.json"
    rows = _rows(_data() / name)
    if category == "irrelevance":
        return [BFCLTask(category, row, []) for row in rows]
    gold = {row["id"]: row["ground_truth"] for row in _rows(_data() / "possible_answer" / name)}
    return [BFCLTask(category, row, gold[row["id"]]) for row in rows]


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        return [
            json.loads(line)
            for line in path.read_text(encoding="utf-8").splitlines()
            if line.strip()
        ]
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}; install it again: {INSTALL}") from error


@cache
def _document(name: str) -> tuple[dict[str, Any], ...]:
    return tuple(_rows(_data() / "multi_turn_func_doc" / f"{MODULES[name]}.json"))


def _system(functions: Sequence[Mapping[str, Any]]) -> str:
    """Return the system prompt of the official default: Python calls, functions as JSON, no markup."""
    prompts = official(PROMPTS)
    style = prompts.PROMPT_STYLE_TEMPLATES["classic"]
    form = {"output_format": prompts.OUTPUT_FORMAT_MAPPING["python"], "param_types": ""}
    shown = style["available_tools"].format(
        format="json", functions=json.dumps(functions, indent=4)
    )
    made = {"tool_call_format": style["tool_call_no_tag"].format(**form), "available_tools": shown}
    return str(prompts.PROMPT_TEMPLATE_MAPPING["plaintext"].format(**{**style, **made}))


def _chosen(choices: Mapping[str, list[Any]], required: Iterable[str] = ()) -> dict[str, Any]:
    """Return the first choice of each value; "" among them means that it may be left out."""
    needed = {key: found for key, found in choices.items() if "" not in found or key in required}
    return {key: _plain(next(one for one in found if one != "")) for key, found in needed.items()}


def _plain(value: Any) -> Any:
    """Return a value; dictionaries list the choices of each of theirs."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return _chosen(value) if isinstance(value, dict) else value
