"""Worked examples (`shots`) in front of a question: an expert's play of other tasks, or conversations of a file.

They are messages of an episode's opening, behind its system prompt, so everyone who reads the opening gets them:
rollouts, evaluations, servers, players, warm-ups. A question is never among its own examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

from .core import Example, Message, TextEnv
from .rows import json_rows
from .splits import begin, open_split

MOST = 64  # shots
ROLES = {"user": ("assistant",), "assistant": ("user", "tool"), "tool": ("assistant",)}  # who may speak behind whom


def examples(env_id: str, options: Mapping[str, Any], shots: object) -> tuple[list[Example], int]:
    """Return worked examples for an environment, and how many of them an opening has.

    Where an expert plays them they are the last tasks of the split `train`, and one more than asked for: a question is
    left out of its own examples.

    Args:
        env_id: The environment.
        options: The options that it is made with, without `shots`.
        shots: How many episodes of its expert, or a JSONL file of conversations (`messages`).

    Raises:
        ValueError, TypeError, OSError: there is no expert, no such number, or no such file, or it holds something else.
    """
    if isinstance(shots, str | Path):
        found = [as_example(messages, where) for where, messages in conversations(Path(shots).expanduser())]
        if len(found) > MOST:
            raise ValueError(f"shots is {str(shots)!r}, which holds {len(found)} conversations; at most {MOST} fit")
        return found, len(found)
    if type(shots) is not int or not 1 <= shots <= MOST:
        raise ValueError(f"shots is {shots!r}; give a number from 1 to {MOST}, or a JSONL file of `messages`")
    split = open_split(env_id, {**options, "split": "train"})
    with closing(split.env) as env:
        tasks = [split.tasks[place] for place in range(max(len(split.tasks) - shots - 1, 0), len(split.tasks))]
        found = [played(env, task) for task in reversed(tasks)]
    return found, shots


def played(env: TextEnv, task: int) -> Example:
    """Return an episode of the expert, from the question to its last turn."""
    observation, info = begin(env, task, 0)
    talk = [message for message in info["messages"] if message["role"] != "system"]
    act = expert_of(env)
    while env.live:
        talk.append({"role": "assistant", "content": (say := act(observation))})
        observation, _, _, _, info = env.step(say)
        talk += info["messages"] if env.live else ()
    return tuple(talk)


def expert_of(env: TextEnv) -> Callable[[str], str]:
    """Return what plays an episode well: an observer that sees what the agent sees, where there is one, or the gold."""
    if hasattr(env, "expert"):
        expert = env.expert()
        return lambda observation: str(expert.act(observation))
    return lambda observation: env.gold()[0]


def conversations(path: Path) -> Iterator[tuple[str, list[Message]]]:
    """Yield where each conversation of a JSONL file is, and its messages of role and content.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is no conversation, or there is none.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; name a JSONL file whose lines hold `messages`")
    number = 0
    for number, row in json_rows(path):
        messages = row.get("messages") if isinstance(row, dict) else None
        if not isinstance(messages, list) or not all(map(_is_message, messages)) or not messages:
            raise ValueError(
                f"{path}:{number} is no conversation; a line holds "
                '{"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}'
            )
        yield f"{path}:{number}", messages
    if not number:
        raise ValueError(f"{path} holds no conversation; it needs lines with `messages`")


def as_example(messages: Sequence[Message], where: str) -> Example:
    """Return a conversation that the user begins and the assistant ends.

    Raises:
        ValueError: it is none; `where` names it.
    """
    roles = [str(message["role"]) for message in messages]
    if roles[0] == "system":
        raise ValueError(f"{where} has a system message; an environment has its own: leave it out of worked examples")
    wrong = next((b for a, b in pairwise(roles) if b not in ROLES.get(a, ())), None)
    if wrong or roles[0] != "user" or roles[-1] != "assistant":
        raise ValueError(
            f"{where} has the roles {', '.join(roles)}; a worked example begins with `user`, ends with `assistant`, "
            "and an assistant answers everything between"
        )
    return tuple(messages)


def _is_message(message: object) -> bool:
    return isinstance(message, dict) and all(isinstance(message.get(name), str) for name in ("role", "content"))
