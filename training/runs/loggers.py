"""Loggers: TensorBoard, Weights & Biases, trackio and MLflow get the lines of `metrics.jsonl` as they are written.

Each is a process of its own that reads what the run writes, so a run neither waits for a logger nor depends on one, and
the steps before a kill arrive as well. RUN/loggers/NAME keeps its output and which step it was given last, written down
before the step is sent: a step that is taken again, or whose sending was cut off, is not sent twice.
"""

import json
import logging
import math
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

from ...agents.journal.trees import Incident, read_trees
from ...agents.trajectory import Leaf, Tree
from ...tools.files import (
    LinkRefused,
    lock_folder,
    make_folder,
    open_plain,
    open_to_append,
    read_text,
    read_toml,
    refuse_links_out_of,
    remove_temporary_files,
    write_file,
)
from ...tools.progress import Progress
from .folder import CONFIG, METRICS

log = logging.getLogger(__name__)
OUTPUT = "output.txt"
ENDED, CUT = "ended", "cut"
POLL = 0.5  # seconds between two looks at the file
PATIENCE, HASTE = (
    60.0,
    5.0,
)  # seconds in which a logger must be done when the run is over, and when it is interrupted
PROJECT, LOGGERS = "turngym", "loggers"
STATE = "state.json"  # how far a logger is
SAMPLED = 4  # tasks of a step of which the first episode is sent


@dataclass(frozen=True)
class LoggedRun:
    """What a logger knows of its run: `id` is its own, and `resumed` says whether it had the run before."""

    run: Path
    id: str
    resumed: bool

    @property
    def name(self) -> str:
        return "-".join(self.run.resolve().parts[-2:])


class TensorBoard:
    """Event files in RUN/loggers/tensorboard, by the writer of the `tensorboard` package."""

    def __init__(self, place: LoggedRun, settings: Mapping[str, Any]) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.id, self.writer = place.id, EventFileWriter(str(place.run / LOGGERS / "tensorboard"))

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self.writer.add_event(
            Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        )
        self.writer.flush()

    def close(self, finished: bool) -> None:
        self.writer.close()


class Wandb:
    """A run of Weights & Biases; WANDB_MODE=offline keeps it in RUN/loggers/wandb."""

    def __init__(self, place: LoggedRun, settings: Mapping[str, Any]) -> None:
        import wandb

        self.id, quiet = place.id, wandb.Settings(silent=True, console="off")
        about = {
            "name": place.name,
            "config": dict(settings),
            "dir": str(place.run / LOGGERS),
            "settings": quiet,
        }
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT), id=self.id, resume="allow", **about
        )
        # A run folder with a link that leads out of it is not resumed. wandb links its core's log, which is in a cache.
        for path in (Path(self.run.dir).parent / "logs").glob("*"):
            if path.is_symlink():
                path.unlink()

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        self.run.log(dict(metrics), step=step)

    def close(self, finished: bool) -> None:
        self.run.finish(exit_code=0 if finished else 1)


class Trackio:
    """A run of trackio, in TRACKIO_DIR or a Space, with a trace of a few episodes of each step."""

    def __init__(self, place: LoggedRun, settings: Mapping[str, Any]) -> None:
        import trackio

        self.trackio, self.folder, self.trees, self.id = (
            trackio,
            place.run,
            place.run / "trees",
            place.id,
        )
        resume = "allow" if place.resumed else "never"
        about = {
            "config": dict(settings),
            "auto_log_gpu": False,
            "auto_log_cpu": False,
            "embed": False,
        }
        self.run = trackio.init(
            project=PROJECT, name=f"{place.name}-{self.id[:8]}", resume=resume, **about
        )

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        journal = self.trees / f"step-{step:06d}.jsonl"
        found = read_trees(journal, self.folder) if os.path.lexists(journal) else ()
        trees = list(islice(found, SAMPLED))
        episodes = [traced(step, tree, leaf) for tree in trees for leaf in tree.leaves[:1]]
        traces = {
            f"episode/{number}": self.trackio.Trace(**one) for number, one in enumerate(episodes)
        }
        self.run.log({**metrics, **traces}, step=step)

    def close(self, finished: bool) -> None:
        self.run.finish()


class MLflow:
    """A run of MLflow, where MLFLOW_TRACKING_URI says, or else where MLflow does by default."""

    def __init__(self, place: LoggedRun, settings: Mapping[str, Any]) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self.client, self.id = MlflowClient(), place.id
        if not place.resumed:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            found = self.client.get_experiment_by_name(name)
            experiment = found.experiment_id if found else self.client.create_experiment(name)
            self.id = self.client.create_run(experiment, run_name=place.name).info.run_id
            params = [Param(key, f"{value}"[:500]) for key, value in settings.items()]
            self.client.log_batch(self.id, params=params[:100])

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        found = [Metric(name, value, now, step) for name, value in metrics.items()]
        for start in range(0, len(found), 1000):  # the most of one request
            self.client.log_batch(self.id, metrics=found[start : start + 1000])

    def close(self, finished: bool) -> None:
        self.client.set_terminated(self.id, "FINISHED" if finished else "KILLED")


# Each has the `id` by which it finds its run again, and is closed with whether the run came to its end.
SINKS: dict[str, Callable[[LoggedRun, Mapping[str, Any]], TensorBoard | Wandb | Trackio | MLflow]]
SINKS = {"tensorboard": TensorBoard, "wandb": Wandb, "trackio": Trackio, "mlflow": MLflow}


def traced(step: int, tree: Tree, leaf: Leaf) -> dict[str, Any]:
    """Return an episode as messages, metadata and spans: one for each turn of the agent, and for each call it made."""
    nodes = tree.path(leaf)
    opening = tree.turns[nodes[0]].info.get("messages") or [
        {"role": "user", "content": tree.turns[nodes[0]].text}
    ]
    messages = [{"role": str(one["role"]), "content": str(one["content"])} for one in opening]
    spans: list[dict[str, Any]] = []
    for number, turn in enumerate(tree.turns[node] for node in nodes[1:]):
        messages.append({"role": turn.role, "content": turn.text})
        if turn.role == "assistant":
            drawn = turn.entropy[turn.sampled]
            about = {
                "tokens": len(drawn),
                "entropy": float(drawn.mean()) if len(drawn) else None,
                "ended": turn.ended,
            }
            spans.append(
                {"id": f"{number}", "name": "turn", "kind": "generation", "metadata": about}
            )
            if tool := turn.info.get("tool"):
                call = {
                    "id": f"{number}-call",
                    "parent_id": f"{number}",
                    "name": f"{tool}",
                    "kind": "tool",
                }
                spans.append({**call, "status": f"{turn.info.get('tool_status')}"})
    metadata = {"step": step, "task": tree.task, "task_id": tree.task_id, "branch": leaf.branch}
    score = None if math.isnan(leaf.score) else leaf.score
    metadata |= {"score": score, "outcome": str(leaf.outcome), "stop": leaf.stop}
    return {"messages": messages, "metadata": metadata, "spans": spans}


def parse_loggers(names: str) -> list[str]:
    """Return the loggers in `names`. Raises ValueError for one that is unknown, twice there or not installed."""
    found = [name.strip() for name in names.split(",") if name.strip()]
    for name in found:
        if name not in SINKS:
            raise ValueError(
                f"log names {name!r}, which is no logger; loggers are {', '.join(SINKS)}"
            )
        if found.count(name) > 1:
            raise ValueError(f"log names {name} twice; name it once")
        if find_spec(name) is None:
            raise ValueError(
                f"log names {name}, which is not installed: pip install 'turngym[{name}]'"
            )
    return found


def follow(
    kind: Callable[[LoggedRun, Mapping[str, Any]], Any],
    run: Path,
    name: str,
    over: Callable[[], str],
) -> None:
    """Send the steps that were not sent before to a logger, until `over` says how the run ended: `ENDED` or `CUT`."""
    state = run / LOGGERS / name / STATE
    known = json.loads(read_text(state, root=run)) if os.path.lexists(state) else {}
    settings = read_toml(run / CONFIG)["train"]
    sink = kind(LoggedRun(run, known.get("id") or uuid4().hex, bool(known)), settings)
    sent, offset, end = int(known.get("step", -1)), 0, ""
    while not end:
        end = over()  # and if so, all lines have been written
        found, offset = _lines(run / METRICS, offset)
        for line in found:
            if (step := line["step"]) > sent:
                write_file(state, json.dumps({"id": sink.id, "step": step}) + "\n", run)
                sent = step
                numbers = {
                    name: float(value)
                    for name, value in line.items()
                    if isinstance(value, int | float)
                }
                sink.send(step, {name: value for name, value in numbers.items() if name != "step"})
    sink.close(end == ENDED)


def _lines(path: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """Return the complete lines of a file from `offset` on, and where the next begins."""
    if not os.path.lexists(path):
        return [], offset
    with open_plain(path) as file:
        file.seek(offset)
        whole = file.read()
    whole = whole[: whole.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], offset + len(whole)


def main() -> None:
    """Be the logger that the arguments name, until standard input says that the run is over, or ends with it."""
    name, run = sys.argv[1], Path(sys.argv[2])
    with ExitStack() as stack:
        for left in reversed(
            range(int(PATIENCE / POLL))
        ):  # that of a run that was killed may be about to end
            try:
                stack.enter_context(lock_folder(run / LOGGERS / name, run))
                break
            except BlockingIOError:
                if not left:
                    raise
                time.sleep(POLL)

        def heard() -> str:  # what standard input says; it is closed where the run died
            return (sys.stdin.read() or CUT) if select.select([sys.stdin], [], [], POLL)[0] else ""

        remove_temporary_files(run / LOGGERS / name, (STATE,), run)
        follow(SINKS[name], run, name, heard)


@contextmanager
def following(
    names: Sequence[str], run: Path, say: Callable[[int, Incident], None]
) -> Iterator[Callable[[int], None]]:
    """Have loggers follow a run; what is yielded takes each step written, begins them, and reports those that fail."""
    at, patience = 0, HASTE
    children, failed = dict[str, subprocess.Popen[bytes]](), set[str]()

    def fail(name: str, why: str) -> None:
        failed.add(name)
        log.warning("%s takes no more steps, and the run goes on: %s", name, why)
        say(at, Incident("log", f"{name} takes no more steps: {why}"))

    def poll(step: int) -> None:
        nonlocal at
        at = step
        for name in sorted({*names} - failed):
            if name in children and children[name].poll():
                said = _last(run / LOGGERS / name / OUTPUT, run)
                last = next(
                    (line for line in reversed(said) if line.strip()), "it wrote no error message"
                )
                fail(name, " ".join(last.split())[:300])
            elif name not in children:
                try:
                    children[name] = _begin(name, run)
                except (OSError, LinkRefused) as error:
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
            with Progress(f"waiting for {name}"):
                try:
                    child.wait(max(until - time.monotonic(), 0.1))
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
                    fail(name, f"it was not done {patience:g} s after the run")
        if children:
            poll(at)


def _last(output: Path, run: Path) -> list[str]:
    """Return the last lines of what a logger has printed."""
    try:
        with open_plain(output, run) as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 4096, 0))
            return file.read().decode("utf-8", "replace").split("\n")
    except (OSError, ValueError):
        return []


def _begin(name: str, run: Path) -> subprocess.Popen[bytes]:
    folder = run / LOGGERS / name
    make_folder(run / LOGGERS, run)
    make_folder(folder, run)
    refuse_links_out_of(run / LOGGERS)  # its library writes there as it likes
    code, path = (
        f"from {__name__} import main; main()",
        os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path),
    )
    with open_to_append(folder / OUTPUT, run) as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", code, name, str(run)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # Ctrl-C is for the run, which then ends its loggers
        )
