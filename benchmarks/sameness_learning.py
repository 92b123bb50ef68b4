"""Items of `sameness.py` from training and the command line: methods on one batch, short runs, names of data, help."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from turngym.benchmarks.sameness_items import Item, Scope, to_text
from turngym.benchmarks.sameness_reach import reach

# --- methods: each on the same trees, batch and policy

VOCABULARY = 7
OBSERVE_STEPS = 3  # after which a method's state is compared


@dataclass(frozen=True)
class Policy:
    """Logits of a policy for each slot of a batch, and of the policies that the batch and the reference are of."""

    now: Any  # [s, v]
    old: Any  # [s, v]
    reference: Any  # [s, v]


def methods(scope: Scope) -> Iterator[Item]:
    """Yield what each method does with its defaults and with other values, one parameter changed at a time."""
    import torch

    torch.set_num_threads(1)
    for name in sorted(reach("METHODS")):
        for number, arguments in enumerate(argument_sets(name)):
            if scope.quick and number > 2:
                break
            label = ", ".join(f"{key}={value}" for key, value in arguments.items())
            yield Item(f"{name}({label})", "\n".join(method_lines(name, arguments)))


def argument_sets(name: str) -> Iterator[dict[str, Any]]:
    """Yield no arguments, then other values for each parameter of a method, one at a time."""
    yield {}
    for parameter in reach("method_parameters")(name).values():
        for value in other_values(parameter):
            yield {parameter.name: value}


def other_values(parameter: Any) -> list[Any]:
    """Return up to two allowed values of a parameter that are not its default."""
    default = parameter.default
    if parameter.kind is bool:
        return [not default]
    if parameter.kind is str:
        return [value for value in parameter.allowed if value != default]
    numbers = (
        [parameter.kind(value) for value in (default * 2, default / 2, default + 1, 0, 1, 2)]
        if finite(default)
        else [2]
    )
    allowed = [
        value for value in dict.fromkeys(numbers) if value != default and value in parameter.allowed
    ]
    return allowed[:2]


def finite(number: float) -> bool:
    """Return whether a number is finite."""
    return abs(number) < float("inf")


def method_lines(name: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a method sets, needs, samples, selects, plans, and makes of the batch, a line each."""
    try:
        control = reach("METHODS")[name](**arguments)
    except ValueError:
        yield "raises ValueError"
        return
    state = control.init()
    yield f"name: {control.name}"
    yield f"sets: {sorted(control.sets)}"
    yield f"needs: {needs_of(control)}"
    yield f"state: {to_text(state)}"
    yield f"sampling: {to_text(asdict(control.sample(reach('Sampling')(), state)))}"
    yield f"order: {attempt(order_of, control, state)}"
    for number, tree in enumerate(make_trees()):
        yield f"plans of tree {number}: {attempt(plans, control, tree, state)}"
    yield f"verdicts: {attempt(verdicts, control, state)}"
    yield from learning_lines(control, state, "at the start")
    for step in range(OBSERVE_STEPS):
        for phase in ("rollout", "update"):
            state, requests = attempt_state(control, stats_of(control, step, phase), state)
            yield f"state after {phase} {step}: {to_text(state)} {requests}"
    yield from learning_lines(control, state, "later")


def attempt(make: Callable[..., Any], *arguments: Any) -> str:
    """Return as text what is made; the type of the exception if the method cannot do it with this data."""
    try:
        return to_text(make(*arguments))
    except Exception as error:
        return f"raises {type(error).__name__}"


def verdicts(control: Any, state: Any) -> list[int]:
    """Return what a control says of each tree."""
    return [int(verdict) for verdict in control.select(make_trees(), state)]


def attempt_state(control: Any, stats: Any, state: Any) -> tuple[Any, str]:
    """Return the state and the requests after an observation; the old state and the exception's type if it fails."""
    try:
        state, requests = control.observe(stats, state)
    except Exception as error:
        return state, f"raises {type(error).__name__}"
    return state, str(sorted(request.value for request in requests))


def needs_of(control: Any) -> str:
    """Return what must be computed for a control: flags, and the names of functions."""
    needs = control.needs
    flags = [needs.logp_ref, needs.entropy_grad, needs.now, needs.temperature]
    return to_text([flags, sorted(needs.functionals), sorted(needs.modules), sorted(needs.columns)])


def order_of(control: Any, state: Any) -> list[int] | None:
    """Return the order of twenty tasks; None if the control does not change it."""
    if control.order is None:
        return None
    epoch = reach("Epoch")(tuple(range(20)), lambda task: f"What is {task} + {task % 3}?")
    return list(control.order(epoch, state))


def plans(control: Any, tree: Any, state: Any) -> list[Any] | None:
    """Return which paths a control asks for at each event of a tree; None if it never does."""
    if control.plan is None:
        return None
    asked = []
    for event in events_of(tree):
        # At an event a tree holds what was there before it: all turns up to the event's.
        last = event.node + 1 if event.kind != "idle" else len(tree.turns)
        grown = replace(tree, turns=tree.turns[:last])
        spawns = control.plan(grown, event, tree.key, state)
        asked.append([event.kind, event.node, [asdict(spawn) for spawn in spawns]])
    return asked


def events_of(tree: Any) -> Iterator[Any]:
    """Yield the events in the growth of a tree."""
    event = reach("Event")
    yield event("start", 0, -1, 16)
    for node, turn in enumerate(tree.turns):
        if turn.role == "tool":
            yield event("turn", node, 0, 8)
    for leaf in tree.leaves:
        yield event("end", leaf.node, leaf.branch, 8)
    for budget in (4, 8, 12, 14):
        yield event("idle", 0, -1, budget)


def stats_of(control: Any, step: int, phase: str) -> Any:
    """Return statistics of a step that a control observes."""
    trees = make_trees()
    batch = reach("pack")(trees, control.needs.columns).batch
    acted, _ = reach("acted")(trees, batch)
    keys = {
        (*tree.key, leaf.branch): leaf for tree in trees for leaf in tree.leaves if leaf.learned
    }
    measured = 0.6 - 0.15 * step
    return reach("Stats")(
        step=step,
        phase=phase,
        valid=0.3 + 0.1 * step,
        entropy=measured,
        entropy_turns=(measured, measured / 2, measured / 3),
        entropy_phases={"think": measured, "call": measured / 2, "answer": measured / 4},
        entropy_nested=0.9 * measured,
        entropy_sampled=1.1 * measured,
        reward=0.4 + 0.1 * step,
        success=0.4 + 0.1 * step,
        kl=0.02 * step,
        clip_low=0.01,
        clip_high=0.02,
        scores={key: leaf.score for key, leaf in keys.items()},
        acted=acted,
        columns={name: {key: 0.25 * key[-1] for key in keys} for name in control.needs.columns},
        extras={f"extras/{name}": measured / 2 for name in control.needs.functionals},
    )


def learning_lines(control: Any, state: Any, when: str) -> Iterator[str]:
    """Yield digests of the advantage, of the terms of the loss, of the loss and of its gradient."""
    import torch

    try:
        packed = reach("pack")(make_trees(), control.needs.columns)
        policy = make_policy(packed.batch.n_slots)
        batch, now = on_policy(control, packed, policy)
        advantage = reach("advantages")(control, batch, state)
        batch = reach("scored")(control, batch, state)
        terms = control.shape(reach("start_terms")(advantage), batch, now, state)
        logits = policy.now.clone().requires_grad_()
        loss = reach("objective")(
            current_of(control, logits, packed.token, batch.extras), batch, terms, batch.n_slots
        )
        loss.backward()
    except Exception as error:
        yield f"{when}: raises {type(error).__name__}"
        return
    yield f"{when}: score {tensor_text(batch.turns.score)}"
    yield f"{when}: credit {tensor_text(advantage)}"
    for name, value in sorted(vars(terms).items()):
        if isinstance(value, torch.Tensor):
            yield f"{when}: {name} {tensor_text(value)}"
    for penalty in terms.penalties:
        yield f"{when}: penalty {penalty.name} {tensor_text(penalty.coef)}"
    yield f"{when}: loss {tensor_text(loss.detach())}"
    yield f"{when}: gradient {tensor_text(torch.zeros_like(logits) if logits.grad is None else logits.grad)}"


def tensor_text(tensor: Any) -> str:
    """Return the type, the shape and a digest of the bits of a tensor, and its sum for people."""
    bits = tensor.detach().contiguous().numpy().tobytes()
    digest = hashlib.sha256(bits).hexdigest()[:16]
    return f"{tensor.dtype} {list(tensor.shape)} {digest} sum {float(tensor.double().nansum()):.9g}"


def make_policy(slots: int) -> Policy:
    """Return random logits, the older ones near those of now."""
    import torch

    random = torch.Generator().manual_seed(11)
    now, away, further = (torch.randn(slots, VOCABULARY, generator=random) for _ in range(3))
    return Policy(now, now + 0.3 * away, now + 0.3 * further)


def on_policy(control: Any, packed: Any, policy: Policy) -> tuple[Any, Any]:
    """Return the batch of a control as the old policy left it, and what the policy says now, without gradient."""
    old = current_of(control, policy.old, packed.token, None)
    reference = current_of(control, policy.reference, packed.token, None)
    batch = replace(
        packed.batch,
        logp_old=old.logp,
        entropy=old.entropy,
        logp_ref=reference.logp,
        extras=old.extras,
    )
    current = current_of(control, policy.now, packed.token, old.extras)
    return batch, reach("Now")(current.logp, current.entropy, current.extras)


def current_of(control: Any, logits: Any, token: Any, before: Mapping[str, Any] | None) -> Any:
    """Return what a policy of these logits says of the slots.

    Args:
        control: Its functionals are computed; a trained module gives the mean of the logits.
        logits: `[s, v]`.
        token: The token of each slot `[s]`, taken modulo the vocabulary.
        before: The results of the functionals at the start of the update; None at the start.
    """
    drawn = token % logits.shape[-1]
    logp = logits.log_softmax(-1)
    entropy = -(logp.exp() * logp).sum(-1)
    extras = {name: logits.mean(-1) for name in control.needs.modules}
    for name, functional in control.needs.functionals.items():
        extras[name] = functional(logits, drawn, None if before is None else before[name])
    return reach("Current")(logp.gather(-1, drawn[:, None])[:, 0], entropy, extras)


@cache
def make_trees() -> tuple[Any, ...]:
    """Return three trees: paths from the prompt, paths that fork behind a turn, and one that forks within a turn."""
    return tuple(TreeWriter(task).write() for task in range(3))


class TreeWriter:
    """Writes a tree of four paths with numbers that depend on its task only."""

    def __init__(self, task: int) -> None:
        self.random = np.random.default_rng(task)
        self.tree = reach("Tree")((5, 1, task), task, f"task-{task}")
        prompt = self.tokens(4)
        self.tree.add(reach("Turn").unsampled(-1, "user", f"question {task}", prompt))

    def write(self) -> Any:
        """Return the tree."""
        first = self.path(branch=0, turns=3, score=1.0, answer="4")
        self.path(branch=1, turns=1, score=0.0, answer="5")
        if self.tree.task == 0:
            self.path(branch=2, turns=2, score=0.5, answer="4", outcome="truncated")
            self.path(branch=3, turns=2, score=float("nan"), answer="", outcome="infra_error")
        elif self.tree.task == 1:
            self.path(branch=2, turns=1, score=0.0, answer="6", parent=first[1], origin=0)
            self.path(branch=3, turns=2, score=1.0, answer="4", parent=first[1], origin=0)
        else:
            self.path(branch=2, turns=1, score=1.0, answer="4", origin=0, within=first[0])
            self.path(branch=3, turns=1, score=0.0, answer="7", origin=0, within=first[0])
        return self.tree

    def path(
        self,
        *,
        branch: int,
        turns: int,
        score: float,
        answer: str,
        outcome: str = "done",
        parent: int = 0,
        origin: int = -1,
        within: int = -1,
    ) -> list[int]:
        """Add a path and return its turns.

        Args:
            branch: Its number.
            turns: How often the agent speaks; a tool answers in between.
            score: Of the whole path.
            answer: The last turn's; empty if it has none.
            outcome: How it ended.
            parent: The turn that it begins behind.
            origin: The path that it was forked from, -1 for none.
            within: A turn of the agent's whose first two tokens it begins with, -1 for none.
        """
        nodes = []
        fork = parent if within < 0 else within
        for number in range(turns):
            last = number == turns - 1
            twin = within if number == 0 else -1
            paid = score if last else 0.0
            parent = self.tree.add(self.reply(parent, number, answer if last else "", paid, twin))
            nodes.append(parent)
            if not last:
                result = reach("Turn").unsampled(
                    parent, "tool", f"result {number % 2}", self.tokens(3)
                )
                parent = self.tree.add(result)
                nodes.append(parent)
        stop = {"done": "answered", "truncated": "max_turns", "infra_error": "infra_error"}[outcome]
        leaf = reach("Leaf")(
            node=nodes[-1],
            branch=branch,
            outcome=type_of_outcome()(outcome),
            stop=stop,
            score=score,
            info={"answer": answer} if answer else {},
            parent=origin,
            fork=fork if origin >= 0 else 0,
            token=2 if within >= 0 else 0,
        )
        self.tree.leaves.append(leaf)
        return nodes

    def reply(self, parent: int, number: int, answer: str, reward: float, twin: int) -> Any:
        """Return a turn of the agent's."""
        count = 6 + number
        copied = 0 if twin < 0 else 2
        tokens = self.tokens(count)
        sampled = np.full(count, True)
        logp = -self.random.random(count, np.float32)
        entropy = 2 * self.random.random(count, np.float32)
        if copied:
            original = self.tree.turns[twin]
            tokens[:copied] = original.tokens[:copied]
            logp[:copied] = original.logp_roll[:copied]
            entropy[:copied] = original.entropy[:copied]
        info = (
            {"answer": answer, "valid": True}
            if answer
            else {"valid": number % 2 == 0, "tool": "python"}
        )
        return reach("Turn")(
            parent=parent,
            role="assistant",
            text=f"<think>{number}</think> {answer or 'call'}",
            tokens=tokens,
            sampled=sampled,
            logp_roll=logp,
            entropy=entropy,
            ended="end",
            reward=reward,
            thought=2,
            values=(3, 5),
            twin=twin,
            copied=copied,
            info=info,
        )

    def tokens(self, count: int) -> Any:
        """Return random token ids."""
        return self.random.integers(0, 50, count).astype(np.int32)


def type_of_outcome() -> Any:
    """Return the enumeration of outcomes."""
    from turngym import Outcome

    return Outcome


# --- runs

SHORT = "--steps 3 --prompts 4 --group 4 --eval-every 2 --eval-tasks 16 --out run"
WARM = "--episodes 200 --steps 8 --batch 8 --out warm"
RUNS: dict[str, list[str]] = {
    "math-python": [f"train math-python {SHORT}"],
    "aepo": [f"train aepo {SHORT}"],
    "ppo": [f"train ppo {SHORT}"],
    "turn-floor": [f"train turn-floor {SHORT}"],
    "household": [
        f"warmup turngym/Household-v0 {WARM} --option size=tiny max_turns=8",
        f"train household {SHORT} --policy warm",
    ],
    "search": [
        f"warmup turngym/Search-v0 {WARM} --option size=tiny hops=1 k=1",
        f"train search {SHORT} --policy warm",
    ],
    "evaluation": ["eval turngym/MathPython-v0 --episodes 8 --samples 2 --out evaluation"],
}
QUICK_RUNS = ("math-python",)
COMPARED = ("*.jsonl", "*.safetensors")
TIMED = ("metrics.jsonl", "timings.jsonl", "incidents.jsonl")  # files that hold seconds
NAMED = ("config.toml", "*.json", "*.jsonl", "*.safetensors")  # files whose keys are compared


@cache
def files_of_run(name: str) -> dict[str, bytes]:
    """Run a case in a temporary folder and return the contents of the files that it left, by their paths in it."""
    with tempfile.TemporaryDirectory() as folder:
        for line in RUNS[name]:
            done = subprocess.run(
                [sys.executable, "-m", "turngym", *line.split()],
                cwd=folder,
                capture_output=True,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"},
            )
            if done.returncode:
                raise RuntimeError(
                    f"turngym {line} ends with status {done.returncode}\n{done.stdout}\n{done.stderr}"
                )
        root = Path(folder)
        files = (path for path in sorted(root.rglob("*")) if path.is_file())
        return {str(path.relative_to(root)): path.read_bytes() for path in files}


def runs(scope: Scope) -> Iterator[Item]:
    """Yield digests of the journals, adapters and optimizer states of short runs."""
    for run in QUICK_RUNS if scope.quick else RUNS:
        for path, content in files_of_run(run).items():
            if matches(path, COMPARED) and Path(path).name not in TIMED:
                yield Item(f"{run}: {path}", content_text(path, content))


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    """Return whether the name of a file matches one of the patterns."""
    return any(Path(path).match(pattern) for pattern in patterns)


def content_text(path: str, content: bytes) -> str:
    """Return a journal as its text, and other files as a digest."""
    if path.endswith(".jsonl"):
        return content.decode("utf-8")
    return hashlib.sha256(content).hexdigest()


def keys(scope: Scope) -> Iterator[Item]:
    """Yield the names that short runs write: keys of JSON, JSONL and TOML, tensors with their shapes."""
    for run in QUICK_RUNS if scope.quick else RUNS:
        for path, content in files_of_run(run).items():
            if (
                matches(path, NAMED) and Path(path).name != "incidents.jsonl"
            ):  # which a busy machine may cause
                yield Item(f"{run}: {path}", "\n".join(sorted(names_in(path, content))))


def names_in(path: str, content: bytes) -> set[str]:
    """Return the names in a file of a run."""
    if path.endswith(".safetensors"):
        return tensor_names(content)
    text = content.decode("utf-8")
    if path.endswith(".toml"):
        return key_paths(tomllib.loads(text))
    if path.endswith(".jsonl"):
        rows = [json.loads(line) for line in text.split("\n") if line]
        return set().union(*map(key_paths, rows))
    return key_paths(json.loads(text))


def tensor_names(content: bytes) -> set[str]:
    """Return names, types and shapes of the tensors of a safetensors file, from its header."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    return {f"{name} {tensor['dtype']} {tensor['shape']}" for name, tensor in header.items()}


def key_paths(value: Any, path: str = "") -> set[str]:
    """Return the paths of all keys in JSON data, such as `leaves[].score`, each with the type of its value."""
    if isinstance(value, dict):
        return {path}.union(*(key_paths(inner, f"{path}.{key}") for key, inner in value.items()))
    if isinstance(value, list):
        return {path}.union(*(key_paths(inner, f"{path}[]") for inner in value))
    kind = (
        "number"
        if isinstance(value, int | float) and not isinstance(value, bool)
        else type(value).__name__
    )
    return {f"{path}: {kind}"}


# --- the command line


def help_of_commands(scope: Scope) -> Iterator[Item]:
    """Yield what each command prints for `--help`, 100 columns wide."""
    os.environ.update(COLUMNS="100", NO_COLOR="1", TERM="dumb")
    for command in ["", *reach("COMMANDS")]:
        printed = StringIO()
        with redirect_stdout(printed), redirect_stderr(printed), suppress(SystemExit):
            reach("main")([*filter(None, [command]), "--help"])
        yield Item(f"turngym {command}".strip(), without_padding(printed.getvalue()))


def without_padding(text: str) -> str:
    """Return a text without blanks at the ends of its lines."""
    return "\n".join(line.rstrip() for line in text.splitlines())
