"""A fresh process that grades hostile completions one after the other and tells what it saw of each.

It adopts what its children leave behind, so that no process they start is out of its sight.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from turngym.envs.math import MathGrader
from turngym.envs.question.env import QuestionEnv
from turngym.envs.rows import SourceOptions, load_jsonl
from turngym.envs.tasks import ListTasks, Task
from turngym.tests.verify.grader.predicates import Seen
from turngym.tests.verify.grader.processes import family
from turngym.tools import PythonTool, ToolResult, get_format
from turngym.tools.subprocesses.messages import serve

_PR_SET_CHILD_SUBREAPER = 36
_RUNS = (
    "exec",
    "compile",
    "os.system",
    "os.exec",
    "os.spawn",
    "os.posix_spawn",
    "subprocess.Popen",
)
_FORMATS = {
    "<tool_call>": "hermes",
    "```": "fenced",
    "<python>": "tags",
    "<|python_tag|>": "llama-json",
}  # by a mark
_LIMITS = "import resource as r\nprint([r.getrlimit(n) for n in (r.RLIMIT_AS, r.RLIMIT_NOFILE, r.RLIMIT_FSIZE)])"


class _Tool:
    """A Python tool that counts its calls, and the seconds they take."""

    name = PythonTool.name

    def __init__(self) -> None:
        self.tool, self.calls, self.seconds = PythonTool(), 0, 0.0
        self.schema = self.tool.schema

    def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Count, and run."""
        self.calls += 1
        began = time.monotonic()
        try:
            return self.tool.call(arguments)
        finally:
            self.seconds += time.monotonic() - began

    def reset(self) -> None:
        """Reset the tool."""
        self.tool.reset()

    def fork(self) -> _Tool:
        """Nothing forks here."""
        raise AssertionError("no episode forks here")

    def close(self) -> None:
        """Close the tool."""
        self.tool.close()

    def limits(self) -> tuple[Any, ...]:
        """Return the tool's own limits, and those that its code runs under."""
        return (
            vars(self.tool).get("timeout"),
            vars(self.tool).get("memory_mb"),
            self.tool.call({"code": _LIMITS}).text,
        )


class Server:
    """Answers requests in the fresh process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.grader = folder, MathGrader()
        self.ran: list[str] | None = None  # filled while it is a list

    def handle(self, request: dict[str, Any]) -> Any:
        """Answer one request."""
        if "processes" in request:
            return [tuple(one) for one in family(os.getpid())]
        if "rest" in request:
            return self.grader.close()
        if "ready" in request:
            return self._ready(request["ready"])
        return asdict(self._see(**request))

    def _ready(self, tools: bool) -> bool:
        for _ in range(2):
            self._next_ok()
            if tools:
                self._play(
                    '<tool_call>{"name": "python", "arguments": {"code": "1"}}</tool_call>', "7"
                )
        return True

    def _see(self, env: str, text: str, gold: str) -> Seen:
        before = dict(_files(self.folder))
        self.ran, began = [], time.monotonic()
        seen: dict[str, Any] = {}
        try:
            seen = self._play(text, gold) if env == "math_tool" else self._grade(text, gold)
        except Exception as error:  # whatever comes out, it is what was seen
            seen = {"raised": f"{type(error).__name__}: {error}"}
        ran, self.ran = self.ran, None
        after = dict(_files(self.folder))
        files = tuple(sorted(str(path) for path, _ in before.items() ^ after.items()))
        executed = (
            () if env == "math_tool" else tuple(ran)
        )  # a tool is there to run what is asked for
        seen = {"seconds": time.monotonic() - began, **seen}
        return Seen(
            **seen,
            files=files,
            executed=executed,
            refused=self._refused(gold),
            next_ok=self._next_ok(),
        )

    def _grade(self, text: str, gold: str) -> dict[str, Any]:
        grade = self.grader.grade(completion=text, gold=gold)
        return {"score": grade.score, "turns": 1}

    def _play(self, text: str, gold: str) -> dict[str, Any]:
        """Play the completion as the one turn of an episode, and once more cut behind its first call."""
        name = next((name for mark, name in _FORMATS.items() if mark in text), "hermes")
        format = get_format(name)
        parsed = format.parse(text, (_Tool.name,))
        whole, again = self._episode(name, text, gold), self._episode(name, parsed.text, gold)
        ends = format.complete(parsed.text) and not format.complete(parsed.text[:-1])
        whole["cut"] = parsed.call is not None and ends and whole["told"] == again["told"]
        told = whole.pop("told")
        whole["control"] = _control(text, told[0])
        return whole

    def _episode(self, format: str, text: str, gold: str) -> dict[str, Any]:
        tool = _Tool()
        env = QuestionEnv(
            ListTasks([Task("row", "How many?", gold)]), self.grader, [tool], format=format
        )
        try:
            env.reset(seed=0)
            limits = (env.max_turns, env.toolbox.timeout, *tool.limits())
            began = time.monotonic()
            told, reward, done, cut_short, info = env.step(text)
            seconds = time.monotonic() - began - tool.seconds  # to read and to grade
            if info.get("outcome") in ("tool_error", "infra_error"):
                raise RuntimeError(f"{info['outcome']}: {info.get('error')}")
            return {
                "score": reward,
                "seconds": seconds,
                "calls": tool.calls,
                "most_calls": env.max_turns,
                "turns": env.turn if done or cut_short else None,
                "error": "error" in told.lower() and info.get("tool_status") != "ok",
                "limits": limits == (env.max_turns, env.toolbox.timeout, *tool.limits()),
                "told": (told, reward, tool.calls),
            }
        finally:
            env.close()

    def _refused(self, gold: str) -> bool:
        """Whether the grader and the loader both refuse a gold."""
        path = self.folder / "tasks.jsonl"
        path.write_text(json.dumps({"problem": "How many?", "answer": gold}))
        checks = (
            lambda: self.grader.check_gold(gold),
            lambda: load_jsonl(path, SourceOptions(check_gold=self.grader.check_gold)),
        )
        refusals = [_raises(check) for check in checks]
        path.unlink()
        return all(refusals)

    def _next_ok(self) -> bool:
        """Whether answers are graded as ever: plain ones, and such as need a look at formulas."""
        cases = (
            ("42", "42", 1.0),
            ("43", "42", 0.0),
            (r"\sqrt{8}", r"2\sqrt{2}", 1.0),
            (r"\sqrt{7}", r"2\sqrt{2}", 0.0),
        )
        grades = [
            self.grader.grade(completion=f"\\boxed{{{given}}}", gold=gold)
            for given, gold, _ in cases
        ]
        return all(grade.score == score for grade, (_, _, score) in zip(grades, cases))

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """Keep what this process runs while it grades: a hook for audit events."""
        if self.ran is not None and event in _RUNS and not _own(event, args):
            self.ran.append(f"{event} {args!r:.80}")


def _own(event: str, args: tuple[Any, ...]) -> bool:
    """Whether the process starts a worker of its grader, which is Python itself, or loads a module from its file."""
    if event == "subprocess.Popen":
        return bool(args[0] == sys.executable)
    name = {"exec": lambda: args[0].co_filename, "compile": lambda: args[1]}.get(
        event, lambda: None
    )()
    return isinstance(name, str) and (name.startswith("<frozen ") or Path(name).is_file())


def _control(*texts: str) -> int:
    """Return how many control tokens the texts are encoded with by tokenizers that know each of those they spell."""
    from turngym.agents.chat.chat import Encoder
    from turngym.agents.chat.rendering import MarkedText
    from turngym.tests.verify.grader.control_tokens import tokenizers

    # As in a chat: UTF-8 carries no lone surrogates.
    marked = [MarkedText(text.encode("utf-8", "replace").decode()) for text in texts]
    encoders = [Encoder(tokenizer) for tokenizer in tokenizers(marked)]
    return sum(
        int(i) in encoder.control
        for encoder in encoders
        for text in marked
        for i in encoder.encode(text)
    )


def _raises(check: Callable[[], object]) -> bool:
    try:
        check()
    except ValueError:
        return True
    return False


def _files(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield what lies in a folder, with its size and when it changed."""
    for path in folder.rglob("*"):
        state = path.lstat()
        yield str(path), (state.st_size, state.st_mtime_ns) if path.is_file() else (0, 0)


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    server = Server(Path(sys.argv[1]))
    sys.addaudithook(server.hear)
    serve(server.handle)
