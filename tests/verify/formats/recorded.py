"""Real completions, and what each of them calls, read without the formats.

Where a file says what is expected that is the reading; for code and queries it is what stands between the first
markers, found by splitting the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turngym.tools import ToolCall

STYLES = {
    "hermes_tool_call": "hermes",
    "llama3_json": "llama-json",
    "llama_pythonic": "pythonic",
    "mint_execute_solution": "tags",
    "search_r1": "tags",
    "arpo_python_result": "tags",
    "tora_python_output": "fenced",
    "roll_python": "fenced",
}
MARKERS = {  # what opens and closes, and what it calls; "" is a final answer
    "tags": (
        ("<python>", "</python>", "python"),
        ("<search>", "</search>", "search"),
        ("<execute>", "</execute>", "python"),
        ("<llm-code>", "</llm-code>", "python"),
        ("<answer>", "</answer>", ""),
        ("<solution>", "</solution>", ""),
    ),
    "fenced": (("```python\n", "\n```", "python"),),
}
HERMES = {  # rows that do not say what is expected: the call, or None for one that is malformed
    "completions.jsonl:0": ToolCall("generate_password", {"length": 8}),
    "completions.jsonl:6": None,
    "completions.jsonl:7": ToolCall("get_weather_forecast", {"location": "San Francisco"}),
}
EXCEPTIONS = {  # rows that are read otherwise than their file expects, and why
    "completions.jsonl:1": "the call is never closed; a turn goes on until it is",
    "completions.jsonl:2": "the arguments are text, not an object: no tool could take them",
}


@dataclass(frozen=True)
class Recorded:
    """A real completion in the format `style`; `want` is its first call, None where it has none to run."""

    where: str
    style: str
    text: str
    want: ToolCall | None


def recorded(folder: Path) -> list[Recorded]:
    """Read the completions of all files.

    Raises:
        FileNotFoundError: a file is missing.
    """
    return [
        row
        for name in ("completions", "arpo_python_result", "roll_trajectories")
        for row in _rows(folder, name)
    ]


def tool_names(rows: list[Recorded]) -> tuple[str, ...]:
    """Return the tools that exist where these completions are read: all that are called."""
    return tuple(sorted({row.want.name for row in rows if row.want} | {"python", "search"}))


def agrees(call: ToolCall | None, row: Recorded) -> bool:
    """Return whether `call` is the one of `row`; blanks around code and queries are frame."""
    if call is not None and row.style in MARKERS:
        call = ToolCall(
            call.name, {name: str(value).strip() for name, value in call.arguments.items()}
        )
    return call == row.want


def _rows(folder: Path, name: str) -> Iterator[Recorded]:
    path = folder / f"{name}.jsonl"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing; --data names the folder of recorded tool calls"
        )
    for i, line in enumerate(path.read_text("utf-8").rstrip("\n").split("\n")):
        row = json.loads(line)
        if "not a completion" not in row["kind"]:
            where, style = f"{path.name}:{i}", STYLES[row["format"]]
            text = (
                row["text"].rpartition("<|im_start|>assistant\n")[2]
                if name.startswith("arpo")
                else row["text"]
            )
            yield Recorded(where, style, text, _wanted(row, where, style, text))


def _wanted(row: dict[str, Any], where: str, style: str, text: str) -> ToolCall | None:
    if where in HERMES:
        return HERMES[where]
    if "expected_calls" in row:
        first = next(iter(row["expected_calls"]), None)
        return first and ToolCall(first["name"], first["arguments"])
    found = [(text.find(opener), opener, closer, tool) for opener, closer, tool in MARKERS[style]]
    _, opener, closer, tool = min(
        (entry for entry in found if entry[0] >= 0), default=(-1, "", "", "")
    )
    if not tool:
        return None
    body = text.partition(opener)[2].partition(closer)[0]
    return ToolCall(tool, {"query" if tool == "search" else "code": body.strip()})
