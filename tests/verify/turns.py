"""What a turn is, on every environment: one call or one answer; no end is stepped behind, no reset overtaken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from threading import Thread
from typing import Any

import gymnasium

from turngym.envs.outcomes import Reply
from turngym.envs.question.env import QuestionEnv
from turngym.envs.registry import make
from turngym.envs.text_env import TextEnv
from turngym.tests.verify.rows import Row, Tally
from turngym.tools import FORMATS, Status, Tool, ToolCall, ToolResult

WRONG = "wrong"
THOUGHT = "<think>{}</think>"


@dataclass
class Stub:
    """A tool in the place of another: it counts its calls, and does something in each."""

    tool: Tool
    during: Callable[[], object] = int
    calls: int = 0

    def __post_init__(self) -> None:
        """Be called as the other is."""
        self.name, self.schema = self.tool.name, self.tool.schema

    def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Answer, whatever the arguments are."""
        self.calls += 1
        self.during()
        return ToolResult(Status.OK, "seen")

    def reset(self) -> None:
        """Keep the count."""

    def fork(self) -> Tool:
        """Return itself."""
        return self

    def close(self) -> None:
        """End the other tool."""
        self.tool.close()


def turn_rows(ids: list[str], seed: int) -> Iterator[Row]:
    """Yield the rows of these environments."""
    mixed = Tally("turns with several answers or calls count as the one that they are said to")
    ended = Tally("steps without an episode, and behind its end, are refused and change nothing")
    overtaken = Tally("episodes that begin during a step are not touched by it")
    for id in ids:
        for env in in_formats(id):
            _mix(mixed, env, f"{id} {env.format.name}", seed)
            env.close()
        _end(ended, id, seed)
        for reply in (True, False):
            _overtake(overtaken, id, seed, reply)
    yield from (tally.row() for tally in (mixed, ended, overtaken) if tally.of)


def in_formats(id: str) -> Iterator[QuestionEnv]:
    """Make an environment that asks questions in every format that its tools can be called in."""
    for name in FORMATS:
        try:
            env = make(id, format=name)
        except ValueError:  # no such option, or no such call
            env = make(id)
        if isinstance(env, QuestionEnv) and (env.format.name == name or not len(env.toolbox)):
            yield env
        if getattr(getattr(env, "format", None), "name", "") != name:
            env.close()
            if not len(getattr(env, "toolbox", ())):
                return


def _mix(said: Tally, env: QuestionEnv, what: str, seed: int) -> None:
    env.reset(seed=seed)
    right = env.gold()[-1]
    wrong = right.replace(env.task.gold if env.task else "", WRONG)
    texts = {
        (right,): 1.0,
        (wrong, right): 1.0,
        (right, wrong): 0.0,
        (THOUGHT.format(right),): 0.0,
        (THOUGHT.format(right), wrong): 0.0,
        (right, right): 1.0,
    }
    for parts, paid in texts.items():
        env.reset(seed=seed)
        _, reward, done, _, _ = env.step("\n".join(parts))
        said.add(
            f"{what} {parts}", (reward, done) != (paid, True) and f"pays {reward}, ended {done}"
        )
    for name, tool in env.toolbox.tools.items():
        env.toolbox.tools[name] = stub = Stub(tool)
        required = tool.schema["function"]["parameters"]["required"]
        call = env.format.render(ToolCall(name, dict.fromkeys(required, "1")))
        marked = (
            env.format.find_start(right) is not None
        )  # the format says where a final answer ends the turn
        broken = call[:-1]
        for text, calls, paid in (
            (f"{call}\n{right}", 1, 0.0),
            (f"{call}\n{call}", 1, 0.0),
            (f"{wrong}\n{call}\n{right}", 0 if marked else 1, 1.0 if marked else 0.0),
            (f"{right}\n{call}", 0 if marked else 1, 1.0 if marked else 0.0),
            (f"{broken}\n{right}", 0, 0.0),
        ):
            env.reset(seed=seed)
            before = stub.calls
            _, reward, *_ = env.step(text)
            got = stub.calls - before, reward
            said.add(f"{what} {text!r}", got != (calls, paid) and f"{got[0]} calls, pays {got[1]}")


def _end(said: Tally, id: str, seed: int) -> None:
    env = make(id)
    said.add(f"{id} before reset", not _refused(env, "1"))
    env.reset(seed=seed)
    gold, total = list(env.gold()), 0.0
    while env.live:
        total += env.step(gold.pop(0))[1]
    before = env.snapshot()
    for action in (env.actions[-1], "done", "stop", "", "<answer>1</answer>"):
        said.add(
            f"{id} {action!r} behind the end", not _refused(env, action) or env.snapshot() != before
        )
    said.add(f"{id} pays once", abs(total - 1) > 1e-9)
    env.close()


def _overtake(said: Tally, id: str, seed: int, reply: bool) -> None:
    """Reset in another thread: as the reply of a step is ready, or in a call of a tool."""
    env, fresh = make(id), make(id)
    began = list[Any]()

    def begin() -> None:
        thread = Thread(target=lambda: began.append(env.reset(seed=seed + 1)))
        thread.start()
        thread.join()

    env.reset(seed=seed)
    action, real = env.gold()[0], env.on_step
    if reply:

        def on_step(text: str) -> Reply:
            answer = real(text)
            if not began:
                begin()
            return answer

        env.on_step = on_step  # type: ignore[method-assign]
    elif isinstance(env, QuestionEnv) and len(env.toolbox):
        name, tool = next(iter(env.toolbox.tools.items()))
        env.toolbox.tools[name] = Stub(tool, begin)
        required = tool.schema["function"]["parameters"]["required"]
        action = env.format.render(ToolCall(name, dict.fromkeys(required, "1")))
    else:
        return
    told = _refused(env, action)
    opening = fresh.reset(seed=seed + 1)
    same = (
        bool(began)
        and began[0][0] == opening[0]
        and env.snapshot() == fresh.snapshot()
        and env.live
        and env.turn == 0
    )
    fault = (
        ""
        if told and same
        else "the step is answered"
        if not told
        else "the new episode is another"
    )
    fault = fault or ("its results are kept" if getattr(env, "results", None) else "")
    said.add(f"{id} {'reply' if reply else 'tool'}", fault)
    env.close()
    fresh.close()


def _refused(env: TextEnv, action: str) -> bool:
    try:
        env.step(action)
    except gymnasium.error.ResetNeeded:
        return True
    return False
