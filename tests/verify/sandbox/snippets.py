"""Programs that do no harm: controls that print the same each time, and code of real completions against CPython.

The tool echoes the value of a last expression. The reference does so, too: that expression becomes the argument of
`sys.displayhook` before the file is run. Of an error the last line is compared, and all that was printed before it.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from turngym.tests.verify.rows import Row, first
from turngym.tests.verify.sandbox.corpus import BENIGN, Program
from turngym.tests.verify.sandbox.trial import PythonRunner
from turngym.tools import Status, ToolFailure, ToolResult

BLOCKS = (  # how code stands in completions
    re.compile(r"<execute>(.*?)</execute>", re.DOTALL),
    re.compile(r"<python>(.*?)</python>", re.DOTALL),
    re.compile(r"<llm-code>(.*?)</llm-code>", re.DOTALL),
    re.compile(r"```python\n(.*?)```", re.DOTALL),
)
TIMEOUT = 60.0  # seconds, of the reference and of the tool
TRACEBACK = "Traceback (most recent call last):"


@dataclass(frozen=True)
class Ended:
    """How a program ended: whether well, what it printed, and the last line of its error."""

    well: bool
    printed: str
    error: str = ""


def benign_row(programs: Sequence[Program], tool: PythonRunner, runs: int) -> Row:
    """Count the controls that give the same bytes in every run."""
    controls = [program for program in programs if program.category == BENIGN]
    wrong = []
    for program in controls:
        results = {_called(tool, program.code) for _ in range(runs)}
        if len(results) != 1:
            wrong.append(f"{program.id} gives {len(results)} different results")
        elif (result := results.pop()).status is not Status.OK:
            wrong.append(f"{program.id} is {result.status}: {result.text[-100:]!r}")
    what = f"benign controls print the same bytes, {runs} runs"
    return Row(what, len(controls) - len(wrong), len(controls), first(wrong))


def snippet_row(folder: Path, tool: PythonRunner) -> Row:
    """Count the snippets for which the tool gives what plain CPython gives."""
    codes = snippets(folder)
    wrong, failed = [], 0
    for where, code in codes.items():
        want, got = reference(code), ended(_called(tool, code))
        failed += not want.well
        if want != got:
            wrong.append(f"{where}: {got}, CPython: {want}"[:400])
    note = first(wrong) or f"{failed} of them end with the same error"
    return Row(
        "snippets of real completions give what plain CPython gives",
        len(codes) - len(wrong),
        len(codes),
        note,
    )


def snippets(path: Path) -> dict[str, str]:
    """Return each distinct program in the completions of a JSONL file, or of all such files of a folder.

    Raises:
        FileNotFoundError: there is no such file or folder, or none in it.
    """
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise FileNotFoundError(
            f"{path} holds no JSONL file; --calls names a file of completions, or their folder"
        )
    found: dict[str, str] = {}
    for file in files:
        for number, line in enumerate(file.read_text("utf-8").rstrip("\n").split("\n")):
            for i, code in enumerate(_codes(json.loads(line)["text"])):
                found.setdefault(code, f"{file.name}:{number}/{i}")
    return {where: code for code, where in found.items()}


def _codes(text: str) -> Iterator[str]:
    for block in BLOCKS:
        for found in block.findall(text):
            code = found.strip()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    compile(code, "snippet", "exec")
                except (SyntaxError, ValueError):
                    continue
            yield code


def reference(code: str) -> Ended:
    """Run a program as a file with plain CPython, in an empty folder and a bare environment."""
    tree = ast.parse(code)
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        hook = ast.parse("__import__('sys').displayhook()", mode="eval").body
        assert isinstance(hook, ast.Call)
        hook.args = [tree.body[-1].value]
        tree.body[-1].value = hook
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "program.py").write_text(ast.unparse(tree), "utf-8")
        env = {
            "PATH": os.defpath,
            "LANG": "C.UTF-8",
            "PYTHONHASHSEED": "0",
            "HOME": folder,
            "OMP_NUM_THREADS": "1",
        }
        try:
            run = subprocess.run(
                [sys.executable, "program.py"],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            return Ended(False, (late.stdout or b"").decode(), str(Status.TIMEOUT))
    status = Status.OK if run.returncode == 0 else Status.ERROR
    return ended(ToolResult(status, run.stdout.decode()))


def ended(result: ToolResult) -> Ended:
    """Return how a call ended."""
    if result.status is Status.OK:
        return Ended(True, result.text)
    printed, mark, trace = result.text.partition(TRACEBACK)
    return Ended(False, printed, trace.rstrip().rpartition("\n")[2] if mark else str(result.status))


def _called(tool: PythonRunner, code: str) -> ToolResult:
    try:
        return tool.call({"code": code})
    except ToolFailure as failure:
        return ToolResult(Status.KILLED, f"ToolFailure: {failure}")
