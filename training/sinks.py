"""Loggers: TensorBoard, Weights & Biases, trackio and MLflow get the lines of `metrics.jsonl` as they are written.

Each is a process of its own that reads what the run writes, so a run neither waits for a logger nor depends on one, and
the steps before a kill arrive as well. RUN/loggers/NAME keeps its output and which step it was given last, written down
before the step is sent: a step that is taken again, or whose sending was cut off, is not sent twice.
"""

import json
import logging
import os
import select
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

from ..agents.journal import Incident, locked, write_file
from ..tools.progress import Work
from .loggers import LOGGERS, SINKS, Place, Sink
from .run_folder import CONFIG, METRICS

log = logging.getLogger(__name__)

OUTPUT = "output.txt"
ENDED, CUT = "ended", "cut"
POLL = 0.5  # seconds between two looks at the file
PATIENCE, HASTE = 60.0, 5.0  # seconds in which a logger must be done when the run is over, and when it is interrupted


def parse_loggers(names: str) -> list[str]:
    """Return the loggers in `names`. Raises ValueError for one that is unknown, twice there or not installed."""
    found = [name.strip() for name in names.split(",") if name.strip()]
    for name in found:
        if name not in SINKS:
            raise ValueError(f"log names {name!r}, which is no logger; loggers are {', '.join(SINKS)}")
        if found.count(name) > 1:
            raise ValueError(f"log names {name} twice; name it once")
        if find_spec(name) is None:
            raise ValueError(f"log names {name}, which is not installed: pip install 'turngym[{name}]'")
    return found


def follow(kind: Callable[[Place, Mapping[str, Any]], Sink], run: Path, name: str, over: Callable[[], str]) -> None:
    """Send the steps that were not sent before to a logger, until `over` says how the run ended: `ENDED` or `CUT`."""
    state = run / LOGGERS / name / "state.json"
    known = json.loads(state.read_text()) if state.exists() else {}
    settings = tomllib.loads((run / CONFIG).read_text("utf-8"))["train"]
    sink = kind(Place(run, known.get("id") or uuid4().hex, bool(known)), settings)
    sent, offset, end = int(known.get("step", -1)), 0, ""
    while not end:
        end = over()  # and if so, all lines have been written
        found, offset = _lines(run / METRICS, offset)
        for line in found:
            if (step := line["step"]) > sent:
                write_file(state, json.dumps({"id": sink.id, "step": step}) + "\n")
                sent = step
                numbers = {name: float(value) for name, value in line.items() if isinstance(value, int | float)}
                sink.send(step, {name: value for name, value in numbers.items() if name != "step"})
    sink.close(end == ENDED)


def _lines(path: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """Return the complete lines of a file from `offset` on, and where the next begins."""
    if not path.exists():
        return [], offset
    with path.open("rb") as file:
        file.seek(offset)
        whole = file.read()
    whole = whole[: whole.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], offset + len(whole)


def main() -> None:
    """Be the logger that the arguments name, until standard input says that the run is over, or ends with it."""
    name, run = sys.argv[1], Path(sys.argv[2])
    with ExitStack() as stack:
        for left in reversed(range(int(PATIENCE / POLL))):  # that of a run that was killed may be about to end
            try:
                stack.enter_context(locked(run / LOGGERS / name))
                break
            except BlockingIOError:
                if not left:
                    raise
                time.sleep(POLL)

        def heard() -> str:  # what standard input says; it is closed where the run died
            return (sys.stdin.read() or CUT) if select.select([sys.stdin], [], [], POLL)[0] else ""

        follow(SINKS[name], run, name, heard)


@contextmanager
def following(
    names: Sequence[str], run: Path, report: Callable[[int, Incident], None]
) -> Iterator[Callable[[int], None]]:
    """Have loggers follow a run.

    What is yielded is called with each step whose line of metrics is written: it begins the loggers, and reports those
    that have failed. No logger raises anything.
    """
    at, patience = 0, HASTE
    children, failed = dict[str, subprocess.Popen[bytes]](), set[str]()

    def fail(name: str, why: str) -> None:
        failed.add(name)
        log.warning("%s takes no more steps, and the run goes on: %s", name, why)
        report(at, Incident("log", f"{name} takes no more steps: {why}"))

    def poll(step: int) -> None:
        nonlocal at
        at = step
        for name in sorted({*names} - failed):
            if name in children and children[name].poll():
                output = run / LOGGERS / name / OUTPUT
                said = output.read_bytes()[-4096:].decode("utf-8", "replace").split("\n") if output.exists() else []
                last = next((line for line in reversed(said) if line.strip()), "it wrote no error message")
                fail(name, " ".join(last.split())[:300])
            elif name not in children:
                try:
                    children[name] = _begin(name, run)
                except OSError as error:
                    fail(name, f"{error}")

    try:
        yield poll
        patience = PATIENCE
    finally:
        until = time.monotonic() + patience
        for child in children.values():
            with suppress(OSError):  # it has ended already
                if child.stdin:
                    child.stdin.write((ENDED if patience == PATIENCE else CUT).encode())
                    child.stdin.close()
        for name, child in children.items():
            with Work(f"waiting for {name}"):
                try:
                    child.wait(max(until - time.monotonic(), 0.1))
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
                    fail(name, f"it was not done {patience:g} s after the run")
        if children:
            poll(at)


def _begin(name: str, run: Path) -> subprocess.Popen[bytes]:
    folder = run / LOGGERS / name
    folder.mkdir(parents=True, exist_ok=True)
    code, path = f"from {__name__} import main; main()", os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    with (folder / OUTPUT).open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", code, name, str(run)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # Ctrl-C is for the run, which then ends its loggers
        )
