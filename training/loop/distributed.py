"""The processes that train together: each holds the whole model, and they share out tasks and paths.

A process grows the trees of its tasks and computes the gradient of its paths; trees, log-probabilities and gradients
are then the same on all. Everything else each does for itself, in the same order on the same numbers, and so all take
the same optimizer steps. Invariant: all processes call the methods of their teams in the same order. They exchange
JSON, safetensors and tensors.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from itertools import count
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Bool
from safetensors.torch import load, save
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn import Parameter

from ...agents.cli.terminal import shield
from ...agents.journal.trees import Incident, OnIncident, from_json, to_json
from ...agents.trajectory import Tree
from ..data.packing import Packed
from ..loss.objective import BadUpdate
from ..runs.launch import Launch

PATIENCE = 1800.0  # seconds that the others may take longer than the longest rollout
Collect = Callable[..., list[Tree]]  # of tasks, and `on_incident`
_meetings = count()


class PeerLost(ConnectionError):
    """Another process of the run has ended, or does not answer."""


class Disagreement(ValueError):
    """The processes of a run differ in what must be the same."""


class Team:
    """The processes of a run, as one of them sees them; the first `growers` grow trees. One alone talks to nobody."""

    def __init__(self, launch: Launch, growers: int, deadline: float) -> None:
        self.rank, self.size, self.first = launch.rank, launch.size, launch.first
        self.growers, self.deadline = growers, deadline

    def grow(self, collect: Collect, tasks: Sequence[int], report: OnIncident) -> list[Tree]:
        """Return the trees that `collect` grows of `tasks`, in their order; report what goes wrong, one's own first."""
        if self.size == 1:
            return collect(tasks, on_incident=report)
        seen: list[Incident] = []
        mine = tasks[self.rank :: self.growers] if self.rank < self.growers else ()
        trees = collect(mine, on_incident=report if self.first else seen.append) if mine else []
        answers = self._exchange(json.dumps([one.to_json() for one in seen]), *map(_line, trees))
        for row in (row for incidents, *_ in answers for row in incidents):
            report(Incident(row["kind"], row["what"], tuple(row["key"])))
        by_task = {tree["task"]: from_json(tree) for _, *grown in answers for tree in grown}
        return [by_task[task] for task in tasks]

    def paths(self, packed: Packed, keep: Bool[Tensor, "p"]) -> range:
        """Return the paths that this process computes, neighbours, which share tokens; those in `keep` are work."""
        return shares(packed, keep, self.size)[self.rank]

    def columns(self, mine: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return columns of all slots: those of each process's `paths`, if it has any, concatenated."""
        if self.size == 1:
            return dict(mine)
        answers = self._gather(save({name: column.contiguous() for name, column in mine.items()}))
        parts = [part for data in answers if (part := load(data))]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def total(self, work: Callable[[], float]) -> float:
        """Return the sum of the results of `work`; raise the first process's BadUpdate, naming the first sample."""
        try:
            mine: tuple[Any, ...] = (work(), "", ())
        except BadUpdate as refused:
            mine = (0.0, str(refused), refused.key)
        answers = self._exchange(*map(json.dumps, mine))
        for _, why, key in answers:
            if why:
                raise BadUpdate(why, tuple(key))
        return float(sum(value for value, _, _ in answers))

    def add_gradients(self, parameters: Iterable[Parameter]) -> None:
        """Make each gradient the sum over all processes; a parameter without one on any keeps none and is skipped."""
        if self.size == 1:
            return
        mine = list(parameters)
        has = self._gather(bytes(parameter.grad is not None for parameter in mine))
        moved = [parameter for parameter, *flags in zip(mine, *has, strict=True) if any(flags)]
        if not moved:
            return
        grads = [torch.zeros_like(one) if one.grad is None else one.grad for one in moved]
        flat = torch.cat([grad.detach().reshape(-1).float() for grad in grads])
        with self._answering():
            dist.all_reduce(flat)
        for parameter, part in zip(
            moved, torch.split(flat, [one.numel() for one in moved]), strict=True
        ):
            parameter.grad = part.view_as(parameter).to(parameter.dtype)

    def decide(self, choose: Callable[[], bool]) -> bool:
        """Return what `choose`, called on the first process alone, returns there."""
        return bool(self._exchange(json.dumps(self.first and choose()))[0][0])

    def agree(self, what: str, text: Callable[[], str]) -> None:
        """Raise Disagreement unless `text` is the same on all processes; `what` names it in the message."""
        if self.size == 1:
            return
        first, *others = (part.decode().splitlines() for part in self._gather(text().encode()))
        for rank, lines in enumerate(others, 1):
            for ours, theirs in zip(first, lines, strict=False):
                if ours != theirs:
                    raise Disagreement(f"{what}: process 0 has {ours}, process {rank} has {theirs}")
            if len(first) != len(lines):
                raise Disagreement(
                    f"{what}: process 0 has {len(first)} lines, process {rank} has {len(lines)}"
                )

    def steady(self) -> AbstractContextManager[None]:
        """Inside, a signal ends the first process alone; the others wait until it has ended."""
        return nullcontext() if self.first else shield()

    def _exchange(self, *lines: str) -> list[list[Any]]:
        """Return the lines of every process, which are JSON, by rank."""
        answers = self._gather("\n".join(lines).encode("utf-8", "surrogatepass"))
        return [
            [json.loads(line) for line in part.decode("utf-8", "surrogatepass").split("\n")]
            for part in answers
        ]

    def _gather(self, data: bytes) -> list[bytes]:
        """Return the bytes of every process, by rank. Those of the slowest are waited for."""
        if self.size == 1:
            return [data]
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        with self._answering():
            dist.all_gather(sizes, torch.tensor([len(data)]))
            widest = max(int(size) for size in sizes)
            parts = [torch.empty(widest, dtype=torch.uint8) for _ in sizes]
            dist.all_gather(
                parts, torch.from_numpy(np.frombuffer(data.ljust(widest, b"\0"), np.uint8).copy())
            )
        return [
            part[: int(size)].numpy().tobytes() for part, size in zip(parts, sizes, strict=True)
        ]

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            what = f"process {self.rank} of {self.size} has lost another, which has ended or has not answered"
            why = (
                f"for {self.deadline:g} s ({str(error).splitlines()[0]}); its own message says why"
            )
            raise PeerLost(f"{what} {why}; continue with --resume") from error


SOLO = Team(Launch(), 1, 0.0)


@contextmanager
def joined(launch: Launch, device: str, longest: float, growers: int) -> Iterator[Team]:
    """Connect to the other processes of the run, of which `growers` grow trees, and disconnect at the end.

    Gradients are summed on `device`, that of this process's model. A rollout may take `longest` seconds; `PATIENCE`
    longer without an answer, and another process is lost. Raises PeerLost where one is not there, or not any more.
    """
    if launch.size == 1:
        yield SOLO
        return
    team = Team(launch, growers, longest + PATIENCE)
    wait, where = timedelta(seconds=team.deadline), torch.device(device)
    with team._answering():
        store, rank, size = next(rendezvous("env://", timeout=wait))
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if where.type == "cuda" else "gloo",
            # A store may outlive a run, and what an earlier one left in it must not be taken for that of this one.
            store=PrefixStore(f"turngym-{next(_meetings)}", store),
            rank=rank,
            world_size=size,
            timeout=wait,
            device_id=where if where.type == "cuda" else None,
        )
    try:
        yield team
        team.decide(lambda: True)  # the first has written what the others may read now
    finally:
        dist.destroy_process_group()


def shares(packed: Packed, keep: Bool[Tensor, "p"], size: int) -> list[range]:
    """Cut the paths into `size` ranges that have about as many different tokens of paths in `keep` each."""
    lengths = [
        len(shared) if kept else 0
        for shared, kept in zip(packed.shared, keep.tolist(), strict=True)
    ]
    kept = [shared.numpy() for shared, length in zip(packed.shared, lengths, strict=True) if length]
    path = np.repeat(np.arange(len(lengths)), lengths)
    _, first = np.unique(np.concatenate([*kept, np.zeros(0, np.int64)]), return_index=True)
    cost = np.bincount(path[first], minlength=len(lengths))
    middle = np.cumsum(cost) - cost / 2
    cuts = np.searchsorted(middle, cost.sum() * np.arange(1, size) / size).tolist()
    return [
        range(start, stop) for start, stop in zip([0, *cuts], [*cuts, len(lengths)], strict=True)
    ]


def _line(tree: Tree) -> str:
    try:
        return json.dumps(to_json(tree), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        rule = "statistics must be finite, and the info of an environment must be JSON data"
        raise ValueError(
            f"tree {tree.key} cannot be sent to the other processes ({error}): {rule}"
        ) from error
