"""What each logger is given, by the interface of its own package: TensorBoard, Weights & Biases, trackio and MLflow."""

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from ..agents.journal import read_trees
from ..agents.trajectory import Leaf, Tree

PROJECT, LOGGERS = "turngym", "loggers"
SAMPLED = 4  # tasks of a step of which the first episode is sent


@dataclass(frozen=True)
class Place:
    """What a logger knows of its run: `id` is its own, and `resumed` says whether it had the run before."""

    run: Path
    id: str
    resumed: bool

    @property
    def name(self) -> str:
        return "-".join(self.run.resolve().parts[-2:])


class Sink(Protocol):
    """What takes the numbers of each step."""

    id: str  # by which the logger finds the run again

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take a step."""

    def close(self, finished: bool) -> None:
        """Send what is left; `finished` says whether the run came to its end."""


class TensorBoard:
    """Event files in RUN/loggers/tensorboard, by the writer of the `tensorboard` package."""

    def __init__(self, place: Place, settings: Mapping[str, Any]) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.id, self.writer = place.id, EventFileWriter(str(place.run / LOGGERS / "tensorboard"))

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self.writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
        self.writer.flush()

    def close(self, finished: bool) -> None:
        self.writer.close()


class Wandb:
    """A run of Weights & Biases; WANDB_MODE=offline keeps it in RUN/loggers/wandb."""

    def __init__(self, place: Place, settings: Mapping[str, Any]) -> None:
        import wandb

        self.id, quiet = place.id, wandb.Settings(silent=True, console="off")
        about = {"name": place.name, "config": dict(settings), "dir": str(place.run / LOGGERS), "settings": quiet}
        self.run = wandb.init(project=os.environ.get("WANDB_PROJECT", PROJECT), id=self.id, resume="allow", **about)

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        self.run.log(dict(metrics), step=step)

    def close(self, finished: bool) -> None:
        self.run.finish(exit_code=0 if finished else 1)


class Trackio:
    """A run of trackio, in TRACKIO_DIR or a Space, with a trace of a few episodes of each step."""

    def __init__(self, place: Place, settings: Mapping[str, Any]) -> None:
        import trackio

        self.trackio, self.trees, self.id = trackio, place.run / "trees", place.id
        resume = "allow" if place.resumed else "never"
        about = {"config": dict(settings), "auto_log_gpu": False, "auto_log_cpu": False, "embed": False}
        self.run = trackio.init(project=PROJECT, name=f"{place.name}-{self.id[:8]}", resume=resume, **about)

    def send(self, step: int, metrics: Mapping[str, float]) -> None:
        journal = self.trees / f"step-{step:06d}.jsonl"
        trees = list(islice(read_trees(journal), SAMPLED)) if journal.exists() else []
        episodes = [traced(step, tree, leaf) for tree in trees for leaf in tree.leaves[:1]]
        traces = {f"episode/{number}": self.trackio.Trace(**one) for number, one in enumerate(episodes)}
        self.run.log({**metrics, **traces}, step=step)

    def close(self, finished: bool) -> None:
        self.run.finish()


class MLflow:
    """A run of MLflow, where MLFLOW_TRACKING_URI says, or else where MLflow does by default."""

    def __init__(self, place: Place, settings: Mapping[str, Any]) -> None:
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


SINKS: dict[str, Callable[[Place, Mapping[str, Any]], Sink]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "trackio": Trackio,
    "mlflow": MLflow,
}


def traced(step: int, tree: Tree, leaf: Leaf) -> dict[str, Any]:
    """Return an episode as messages, metadata and spans: one for each turn of the agent, and for each call it made."""
    nodes = tree.path(leaf)
    opening = tree.turns[nodes[0]].info.get("messages") or [{"role": "user", "content": tree.turns[nodes[0]].text}]
    messages = [{"role": str(one["role"]), "content": str(one["content"])} for one in opening]
    spans: list[dict[str, Any]] = []
    for number, turn in enumerate(tree.turns[node] for node in nodes[1:]):
        messages.append({"role": turn.role, "content": turn.text})
        if turn.role == "assistant":
            drawn = turn.entropy[turn.sampled]
            about = {"tokens": len(drawn), "entropy": float(drawn.mean()) if len(drawn) else None, "ended": turn.ended}
            spans.append({"id": f"{number}", "name": "turn", "kind": "generation", "metadata": about})
            if tool := turn.info.get("tool"):
                call = {"id": f"{number}-call", "parent_id": f"{number}", "name": f"{tool}", "kind": "tool"}
                spans.append({**call, "status": f"{turn.info.get('tool_status')}"})
    metadata = {"step": step, "task": tree.task, "task_id": tree.task_id, "branch": leaf.branch}
    metadata |= {"score": None if math.isnan(leaf.score) else leaf.score}
    metadata |= {"outcome": str(leaf.outcome), "stop": leaf.stop}
    return {"messages": messages, "metadata": metadata, "spans": spans}
