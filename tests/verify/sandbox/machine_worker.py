"""Runs on a faked machine: asks for a level of the Python tool and, where it is refused, for the one that is named.

A script: `python -m …visitor LEVEL FILE PORT` prints one line of JSON. FILE and PORT are what a program must not reach.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from turngym.tests.verify.sandbox import proc
from turngym.tests.verify.sandbox.idle import SETTLE
from turngym.tools import ToolFailure
from turngym.tools.python.tool import PythonTool

NOT_FAKED = "the machine cannot be faked: what was taken away is still there"
LEVELS = ("namespaces", "landlock", "rlimits-only")  # strongest first
KEPT = {
    "namespaces": {"reads", "connects"},
    "landlock": {"reads", "connects"},
    "rlimits-only": set[str](),
}
_TRY = """
import socket
found = []
try:
    open({file!r}).read()
    found.append('reads')
except Exception:
    pass
try:
    socket.create_connection(('127.0.0.1', {port}), 1).close()
    found.append('connects')
except Exception:
    pass
print(' '.join(found))
"""


def report(level: str, file: str, port: int) -> dict[str, Any]:
    """Return the level that works, what a call answers there, what a program reaches and what is left behind."""
    refusals: list[str] = []
    while True:
        try:
            return {**works(level, file, port), "refusals": refusals}
        except ToolFailure as failure:
            refusals.append(f"{level}: {failure}")
            problem, level = following(level, str(failure))
            if problem:
                return {"error": f"{problem}: {failure}", "refusals": refusals}


def works(level: str, file: str, port: int) -> dict[str, Any]:
    """Return how the tool works at a level; raises `ToolFailure` where it refuses."""
    tool = PythonTool(timeout=20.0, persistent=False, level=level)
    answer = tool.call({"code": "print(6*7)"}).text
    reached = tool.call({"code": _TRY.format(file=file, port=port)}).text.split()
    tool.call({"code": "import subprocess\nsubprocess.Popen(['sleep', '600'])"})
    tool.close()
    zombies, until = 1, time.monotonic() + SETTLE
    while zombies and time.monotonic() < until:
        time.sleep(0.3)
        zombies = sum(process.zombie for process in proc.descendants().values())
    left = f"{zombies} zombies" if zombies else ""
    return {
        "level": level,
        "answer": answer,
        "reached": " and ".join(word for word in reached if word in KEPT[level]),
        "left": left,
    }


def following(level: str, message: str) -> tuple[str, str]:
    """Return what a refusal lacks (empty where it lacks nothing), and the weaker level that it names."""
    weaker = [other for other in LEVELS[LEVELS.index(level) + 1 :] if other in message]
    if level not in message.replace("user namespaces", ""):  # a reason, not the level
        return f"the refusal does not name the level {level}", level
    return ("", weaker[0]) if weaker else (f"the refusal of {level} names no weaker level", level)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(report(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
