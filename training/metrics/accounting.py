"""Accounting: check from the files of a run alone that every step adds up.

The counts of `metrics.jsonl` are compared with a second count of the journals in `trees/`, the failed paths against
`incidents.jsonl`, and both with what `config.toml` asked for.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isnan
from pathlib import Path
from typing import Any

from ...agents.journal.trees import read_trees
from ...agents.trajectory import Tree
from ...envs import Outcome, StopReason, outcome_of
from ...tools.files import list_names, read_bytes
from ...tools.progress import track
from ..runs.config import TrainConfig, from_run

MOST, LARGEST, NOTED = 10**6, 1 << 30, 9  # steps of a run, bytes of its metrics, notes on a check
_JOURNAL = re.compile(r"step-(\d{1,12})\.jsonl")
CHECKS = {  # what every step must have
    "steps": "one line of metrics and one whole journal",
    "groups": "a whole group for each prompt, every branch once",
    "paths": "prompts x group paths: rewarded + failed by type",
    "tokens": "every token on a path, in one span and in the metrics",
    "failures": "no failed path with a score, and an incident for each",
}


@dataclass(frozen=True)
class Discrepancy:
    """Something of a step that does not add up; `check` is a name of `CHECKS`."""

    check: str
    step: int
    what: str

    def __str__(self) -> str:
        return f"step {self.step}: {self.what}"


@dataclass
class Accounts:
    """What was counted: steps 1 to `steps`, totals over all of them, and what does not add up."""

    steps: int
    totals: Counter[str]
    problems: list[Discrepancy]

    def held(self, check: str) -> tuple[int, int]:
        """Return for how many of how many steps `check` holds. None does without its files; step 0 has but a line."""
        bad = {problem.step for problem in self.problems if problem.check in (check, "steps")}
        steps = range(0 if check == "steps" else 1, self.steps + 1)
        return len(set(steps) - bad), len(steps)


@dataclass(frozen=True)
class _Step:
    number: int
    line: dict[str, Any]  # of metrics
    trees: list[Tree]
    config: TrainConfig
    reported: frozenset[
        tuple[int, ...]
    ]  # keys of paths, or of whole groups, that incidents call failed


def checks(folder: Path) -> Iterator[tuple[str, int, int, str]]:
    """Yield what must add up, in how many steps it does, of how many, and notes on problems, or totals; as `audit`."""
    found = audit(folder)
    for check, what in CHECKS.items():
        notes = [str(problem) for problem in found.problems if problem.check == check]
        notes = notes or [
            f"{n} {name}" for name, n in sorted(found.totals.items()) if name.startswith(check)
        ]
        more = f" (+{len(notes) - NOTED} more)" if len(notes) > NOTED else ""
        yield what, *found.held(check), ", ".join(notes[:NOTED]) + more


def audit(folder: Path) -> Accounts:
    """Count every step of a run. Raises FileNotFoundError where there is none, ValueError that names a damaged line."""
    config, lines = from_run(folder, None), _json_lines(folder / "metrics.jsonl")
    has = os.path.lexists
    incidents = _json_lines(folder / "incidents.jsonl") if has(folder / "incidents.jsonl") else []
    reported = frozenset(
        tuple(row.get("key", ())) for row in incidents if row.get("kind") == "failed"
    )
    names = map(_JOURNAL.fullmatch, list_names(folder / "trees", folder))
    journals = {int(name[1]): folder / "trees" / name[0] for name in names if name}
    numbers, path = (
        [line["step"] for line in lines],
        folder / "summary.json",
    )  # the summary is there after the end
    summary = _object(read_bytes(path).decode(), "steps", str(path)) if has(path) else {}
    if (last := max((*numbers, *journals, summary.get("steps", 0)))) > MOST:
        raise ValueError(
            f"{folder} names the step {last}; no run is that long, so one of its files is damaged"
        )
    found = Accounts(last, Counter(), list(_order(last, numbers, journals)))
    tokens = sum(line.get("tokens", 0) for line in lines if line["step"] <= summary.get("steps", 0))
    if summary and tokens != summary["tokens"]:
        what = f"summary.json says {summary['tokens']} tokens up to here, the lines of metrics.jsonl {tokens}"
        found.problems.append(Discrepancy("tokens", summary["steps"], what))
    times, line_of = Counter(numbers), dict(zip(numbers, lines))
    looks = {"groups": _groups, "paths": _paths, "tokens": _tokens, "failures": _failures}
    for number in track(range(1, last + 1), "steps", last):
        if times[number] == 1 and number in journals:
            try:
                trees = list(read_trees(journals[number], folder))
            except ValueError as error:
                found.problems.append(Discrepancy("steps", number, str(error)))
                continue
            step = _Step(number, line_of[number], trees, config, reported)
            found.totals += _count(trees)
            found.problems.extend(
                Discrepancy(check, number, what) for check in looks for what in looks[check](step)
            )
    return found


def _order(steps: int, numbers: Sequence[int], journals: dict[int, Path]) -> Iterator[Discrepancy]:
    times = Counter(numbers)
    for number in range(steps + 1):
        if times[number] != 1:
            yield Discrepancy("steps", number, f"metrics.jsonl has {times[number]} lines of it")
        if number and number not in journals:
            yield Discrepancy("steps", number, f"trees has no journal step-{number:06d}.jsonl")
    for before, after in pairwise(numbers):
        if after < before:
            yield Discrepancy(
                "steps", after, f"its line in metrics.jsonl comes after that of step {before}"
            )


def _groups(step: _Step) -> Iterator[str]:
    for tree in step.trees:
        expected = (step.config.seed, step.number - 1, tree.task)
        if tree.key != expected:
            yield f"the key of {tree.task_id} is {tree.key} and not {expected}"
        branches = Counter(leaf.branch for leaf in tree.leaves)
        asked = range(step.config.group + sum(not leaf.trained for leaf in tree.leaves))
        for branch in sorted({*branches, *asked}):
            if branches[branch] != 1 or branch not in asked:
                yield f"branch {branch} of {tree.task_id} is there {branches[branch]} times"


def _paths(step: _Step) -> Iterator[str]:
    prompts, group = step.config.prompts + step.line.get("refilled", 0), step.config.group
    leaves = [leaf for tree in step.trees for leaf in tree.leaves]
    ends = Counter(leaf.outcome for leaf in leaves)
    asked = {"groups": prompts, "paths": prompts * group + sum(not leaf.trained for leaf in leaves)}
    counted = {"groups": len(step.trees), "paths": len(leaves)}
    for name in (name for name in asked if counted[name] != asked[name]):
        yield f"{prompts} prompts x {group} branches ask for {asked[name]} {name}, the journal has {counted[name]}"
    yield from _compare(step, counted | {f"paths/{end}": ends[end] for end in Outcome})


def _tokens(step: _Step) -> Iterator[str]:
    for tree in step.trees:
        on_paths = {node for leaf in tree.leaves for node in tree.path(leaf)}
        for node, turn in enumerate(tree.turns):
            where = f"turn {node} of {tree.task_id}"
            if node not in on_paths:
                yield f"{where} is on no path"
            if turn.role != "assistant" and turn.sampled.any():
                yield f"{where} was drawn, but its role is {turn.role}"
    counted = _count(step.trees)
    spans = {
        name
        for name in (*counted, *step.line)
        if name.partition("/")[0] in ("tokens", "tokens_given")
    }
    yield from _compare(step, {name: counted[name] for name in sorted(spans)})


def _failures(step: _Step) -> Iterator[str]:
    for tree in step.trees:
        for leaf in tree.leaves:
            key = (*tree.key, leaf.branch)
            where, reported = f"path {key}, {leaf.outcome},", bool({key, tree.key} & step.reported)
            if leaf.outcome != outcome_of(StopReason(leaf.stop)):
                yield f"{where} stopped with {leaf.stop}"
            if leaf.rewarded == isnan(leaf.score):
                yield f"{where} has the score {leaf.score}"
            # The reverse need not hold: there are also incidents of a step that was repeated after a crash.
            if not leaf.rewarded and not reported:
                yield f"{where} is no incident"


def _compare(step: _Step, counted: dict[str, int]) -> Iterator[str]:
    for name, count in counted.items():
        if (written := step.line.get(name, "nothing")) != count:
            yield f"{name} is {written} in metrics.jsonl and {count} in the journal"


def _count(trees: Sequence[Tree]) -> Counter[str]:
    count = Counter(f"paths/{leaf.outcome}" for tree in trees for leaf in tree.leaves)
    for tree in trees:
        for turn in tree.turns:
            new = turn.sampled[turn.copied :]
            count["tokens"] += int(new.sum())
            count[f"tokens_given/{'prompt' if turn.parent < 0 else turn.role}"] += int((~new).sum())
    return count


def _json_lines(path: Path) -> list[dict[str, Any]]:
    *lines, _ = (
        read_bytes(path, LARGEST).decode().split("\n")
    )  # a last one that was not finished was never written
    return [_object(line, "step", f"{path}, line {number}") for number, line in enumerate(lines, 1)]


def _object(text: str, key: str, where: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or type(data.get(key)) is not int:
            raise ValueError(f"it is no object with {key}")
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{where}: damaged ({error}); what a run wrote must not be changed"
        ) from error
    return data
