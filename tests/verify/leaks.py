"""Environments that leak their gold, each in another place: the clause on canaries must find every one."""

from __future__ import annotations

import base64
import contextlib
import copy
import hashlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import gymnasium

from turngym.agents.check.canary import check_canary
from turngym.agents.check.episodes import Broken, Subject
from turngym.envs import Message
from turngym.envs.outcomes import EnvFailure, Reply
from turngym.envs.qa import QAGrader
from turngym.envs.question.env import QuestionEnv
from turngym.envs.spaces import TextSpace
from turngym.envs.tasks import ListTasks, Task
from turngym.envs.text_env import TextEnv
from turngym.tests.verify.rows import Row, Tally
from turngym.tools import Status, ToolFailure, ToolResult

Leak = tuple[
    str, Callable[..., Any]
]  # a method, and what takes its place: it is called with the original first
ID = "turngym-verify/Leak-v0"


class Note:
    """A tool without state that knows what is wanted."""

    name = "note"
    gold = ""

    @property
    def schema(self) -> dict[str, Any]:
        """One argument."""
        fields = {"text": {"type": "string"}}
        about = {
            "name": self.name,
            "description": "d",
            "parameters": {"properties": fields, "required": ["text"]},
        }
        return {"type": "function", "function": about}

    def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Tell nothing."""
        return ToolResult(Status.OK, "noted")

    def reset(self) -> None:
        """Keep what is known."""

    def fork(self) -> Note:
        """Return a copy."""
        return copy.copy(self)

    def close(self) -> None:
        """Do nothing."""


class Quiz(QuestionEnv):
    """Questions with a tool."""

    forked = False

    def __init__(self) -> None:
        tasks = ListTasks([Task(f"t{i}", f"Which number is {i}?", str(i)) for i in range(100, 120)])
        self.note = Note()
        super().__init__(tasks, QAGrader(), [self.note], format="hermes")

    def gold(self) -> list[str]:
        """Answer."""
        return [f"<answer>{self.wanted}</answer>"]

    @property
    def wanted(self) -> str:
        """The gold of the task."""
        return self.task.gold if self.task else ""

    def fork(self) -> Quiz:
        """Return a copy that knows what it is."""
        twin = super().fork()
        twin.forked = True
        return twin


def _told(before: Any, gold: str) -> Any:
    """Return what a method gave with the gold in it."""
    if isinstance(before, str):
        return f"{before} ({gold})"
    if isinstance(before, Reply):
        return replace(before, info={**before.info, "hint": gold})
    if isinstance(before, tuple):
        return (*before[:-1], {**before[-1], "hint": gold})
    return {**before, "hint": gold}


def _adds(method: str, spell: Callable[[str], str] = str) -> Leak:
    return method, lambda before, env, *args, **more: _told(
        before(env, *args, **more), spell(env.wanted)
    )


def _does(method: str, work: Callable[[str], object]) -> Leak:
    def leak(before: Any, env: Quiz, *args: Any, **more: Any) -> Any:
        given = before(env, *args, **more)
        work(env.wanted)
        return given

    return method, leak


def _fails(failure: type[Exception]) -> Leak:
    def leak(before: Any, env: Quiz, text: str) -> Any:
        raise failure(f"not {env.wanted}")

    return "on_step", leak


def _set(name: str, make: Callable[[str], object], method: str = "on_reset") -> Leak:
    def leak(before: Any, env: Quiz, *args: Any) -> Any:
        given = before(env, *args)
        setattr(env, name, make(env.wanted))
        return given

    return method, leak


def _space(gold: str) -> TextSpace:
    space = TextSpace()
    space.__class__ = type("Odd", (TextSpace,), {"__repr__": lambda self: f"Odd({gold})"})
    return space


def _system(before: Any, env: Quiz, observation: str) -> list[Message]:
    given: list[Message] = before(env, observation)
    return [{"role": "system", "content": f"Do not tell {env.wanted}."}, *given]


def _tool(**changed: Callable[[str], Any]) -> Leak:
    """Put a tool that knows the gold in place of the other from the first episode on."""

    def leak(before: Any, env: Quiz, *args: Any) -> Any:
        given = before(env, *args)
        gold = env.wanted
        kind = type("Knowing", (Note,), {name: make(gold) for name, make in changed.items()})
        env.note.__class__ = kind
        return given

    return "on_reset", leak


def _schema(gold: str) -> property:
    def schema(note: Note) -> dict[str, Any]:
        known = copy.deepcopy(Note.schema.fget(note))  # type: ignore[attr-defined]
        known["function"]["description"] = f"Not for {gold}."
        return known  # type: ignore[no-any-return]

    return property(schema)


def _fail(gold: str) -> Callable[..., Any]:
    def call(note: Note, arguments: Mapping[str, Any]) -> ToolResult:
        raise ToolFailure(f"the note on {gold} is lost")

    return call


def _only_last(before: Any, env: Quiz, text: str) -> Reply:
    reply: Reply = before(env, text)
    return replace(reply, info={**reply.info, "gold": env.wanted}) if reply.stop else reply


def _only_fork(before: Any, env: Quiz, text: str) -> Reply:
    reply: Reply = before(env, text)
    return replace(reply, text=f"{reply.text} {env.wanted}") if env.forked else reply


LEAKS: Mapping[str, Leak] = {
    "the first observation": _adds("on_reset"),
    "info of reset": _adds("reset"),
    "the messages": ("messages", _system),
    "a tool's schema": _tool(schema=_schema),
    "the task's id": _set("task_id", str),
    "an observation": (
        "on_step",
        lambda before, env, text: replace(before(env, text), text=env.wanted),
    ),
    "info of a step": _adds("on_step"),
    "info behind the base class": _adds("step"),
    "info of the last step": ("on_step", _only_last),
    "what a fork says": ("on_step", _only_fork),
    "a tool's result": _tool(
        call=lambda gold: lambda note, arguments: ToolResult(Status.OK, f"{gold}?")
    ),
    "a tool's error": _tool(
        call=lambda gold: lambda note, arguments: ToolResult(Status.ERROR, f"no {gold}")
    ),
    "a tool's failure": _tool(call=_fail),
    "the environment's failure": _fails(EnvFailure),
    "an exception": _fails(KeyError),
    "the snapshot": _adds("snapshot"),
    "the repr": ("__repr__", lambda before, env: f"Quiz({env.wanted})"),
    "the rendering": ("render", lambda before, env: env.wanted),
    "the metadata": _set("metadata", lambda gold: {"render_modes": [], "gold": gold}),
    "a space": _set("action_space", _space),
    "a log": _does("on_step", lambda gold: logging.getLogger("quiz").debug("it was %s", gold)),
    "a warning": _does("on_step", lambda gold: warnings.warn(f"not {gold}", stacklevel=2)),
    "standard output": _does("on_step", lambda gold: sys.stdout.write(gold)),
    "standard error": _does("on_reset", lambda gold: sys.stderr.write(gold)),
    "info, backwards": _adds("on_step", lambda gold: gold[::-1]),
    "info, with commas": _adds("on_step", lambda gold: f"{int(gold or 0):,}"),
    "info, in hexadecimal": _adds("on_step", lambda gold: gold.encode().hex()),
    "info, as a hexadecimal number": _adds("on_step", lambda gold: hex(int(gold or 0))),
    "info, in base64": _adds(
        "reset", lambda gold: base64.b64encode(f"gold: {gold}!".encode()).decode()
    ),
    "info, hashed": _adds("reset", lambda gold: hashlib.sha256(gold.encode()).hexdigest()),
}


def leak_row() -> Row:
    """Count the places of a leak that the clause on canaries finds."""
    said = Tally(
        "planted leaks of the gold, each in another place, are found by the clause on canaries"
    )
    said.add("no leak", found(Quiz))
    for place, (method, leak) in LEAKS.items():
        said.add(place, not found(leaking(method, leak)))
    return said.row()


def leaking(method: str, leak: Callable[..., Any]) -> type[Quiz]:
    """Return the quiz with `leak` in place of a method."""
    before = getattr(Quiz, method)

    def leaks(env: Quiz, *args: Any, **more: Any) -> Any:
        return leak(before, env, *args, **more)

    return type("Leaking", (Quiz,), {method: leaks})


def found(maker: type[TextEnv]) -> str:
    """Return what the clause finds; empty where it finds nothing."""
    with _registered(maker):
        try:
            check_canary(Subject(ID, {}))
        except Broken as broken:
            return str(broken)
    return ""


@contextlib.contextmanager
def _registered(maker: type[TextEnv]) -> Iterator[None]:
    gymnasium.register(ID, entry_point=lambda **options: maker(**options))
    try:
        yield
    finally:
        del gymnasium.registry[ID]
