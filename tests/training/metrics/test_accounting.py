"""Accounting: a run that adds up, and every way in which one may not, planted in what it wrote."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from turngym.agents.engines.torch import TorchEngine
from turngym.agents.journal.trees import Incident, Origin, read_trees, write_trees
from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome, StopReason
from turngym.training.metrics.accounting import CHECKS, _order, audit
from turngym.training.metrics.telemetry import counts
from turngym.training.runs.config import TrainConfig, to_toml
from turngym.training.runs.run import execute, prepare

CONFIG = TrainConfig().changed(steps=3, prompts=2, group=3, seed=4)
ORIGIN = Origin("turngym/MathPython-v0", {})


def said(parent: int, n: int, **values: Any) -> Turn:
    columns = (np.full(n, value, np.float32) for value in (-0.5, 1.0))
    return Turn(
        parent,
        "assistant",
        "a",
        np.arange(n, dtype=np.int32),
        np.ones(n, np.bool_),
        *columns,
        **values,
    )


def told(parent: int, role: str, n: int) -> Turn:
    return Turn.unsampled(parent, role, role, np.arange(n, dtype=np.int32))


def tree(step: int, task: int) -> Tree:
    """Three branches: one with a tool, one cut, one that fails at the second step's second task."""
    grown = Tree(
        (4, step - 1, task), task, f"t{task}", [told(-1, "user", 5), said(0, 3), told(1, "tool", 4)]
    )
    grown.turns += [said(2, 2), said(0, 1), told(4, "user", 2), said(5, 6), said(0, 7)]
    last = StopReason.INFRA_ERROR if (step, task) == (2, 21) else StopReason.ANSWERED
    grown.leaves = [
        Leaf.ended(3, 0, StopReason.ANSWERED, 1.0, {}),
        Leaf.ended(6, 1, StopReason.MAX_TURNS, 0.0, {}),
        Leaf.ended(7, 2, last, 0.0, {}),
    ]
    return grown


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The logs of three steps."""
    (tmp_path / "config.toml").write_text(to_toml(CONFIG, {}))
    (tmp_path / "trees").mkdir()
    lines: list[dict[str, Any]] = [{"step": 0, "valid/success": 0.5}]
    for step in (1, 2, 3):
        trees = [tree(step, 10 * step), tree(step, 10 * step + 1)]
        write_trees(tmp_path / "trees" / f"step-{step:06d}.jsonl", trees, ORIGIN)
        lines.append({"step": step, "reward": 0.5, **counts(trees), "seconds": 1.0})
    put_lines(tmp_path, lines)
    failed = Incident("failed", "OSError: lost", (4, 1, 21, 2)).to_json()
    retry = Incident("retry", "OSError: lost", (4, 0, 10, 1)).to_json()
    (tmp_path / "incidents.jsonl").write_text(
        "".join(json.dumps({"step": 2, **row}) + "\n" for row in (retry, failed))
    )
    tokens = sum(line.get("tokens", 0) for line in lines)
    (tmp_path / "summary.json").write_text(json.dumps({"steps": 3, "tokens": tokens}))
    return tmp_path


def get_lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def put_lines(run: Path, lines: list[dict[str, Any]]) -> None:
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def journal(run: Path, step: int) -> Path:
    return run / "trees" / f"step-{step:06d}.jsonl"


def in_line(step: int, **changes: Any) -> Callable[[Path], None]:
    def plant(run: Path) -> None:
        lines = get_lines(run)
        for name, change in changes.items():
            lines[step][name.replace("__", "/")] += change
        put_lines(run, lines)

    return plant


def in_lines(change: Callable[[list[dict[str, Any]]], Any]) -> Callable[[Path], None]:
    def plant(run: Path) -> None:
        lines = get_lines(run)
        change(lines)
        put_lines(run, lines)

    return plant


def in_trees(
    step: int, change: Callable[[list[Tree]], Any], recount: bool = False
) -> Callable[[Path], None]:
    """Change a journal, which stays whole; with `recount` the metrics agree with what it says then."""

    def plant(run: Path) -> None:
        trees = list(read_trees(journal(run, step)))
        change(trees)
        write_trees(journal(run, step), trees, ORIGIN)
        if recount:
            lines = get_lines(run)
            lines[step] |= counts(trees)
            put_lines(run, lines)

    return plant


def more_drawn(trees: list[Tree]) -> None:
    trees[0].turns[1] = said(0, 4)


def more_given(trees: list[Tree]) -> None:
    trees[0].turns[2] = told(1, "tool", 5)


def drawn_words(trees: list[Tree]) -> None:
    trees[0].turns[2] = replace(said(1, 4), role="tool")


def other_span(trees: list[Tree]) -> None:
    trees[0].turns[2] = told(1, "user", 4)


def leaf(branch: int, **changes: Any) -> Callable[[list[Tree]], None]:
    def change(trees: list[Tree]) -> None:
        trees[1].leaves[branch] = replace(trees[1].leaves[branch], **changes)

    return change


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


FAULTS: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "a missing journal": (
        lambda run: journal(run, 2).unlink(),
        "steps",
        "step 2: trees has no journal step-000002",
    ),
    "a missing line": (
        in_lines(lambda lines: lines.pop(2)),
        "steps",
        "step 2: metrics.jsonl has 0 lines of it",
    ),
    "a doubled line": (
        in_lines(lambda lines: lines.insert(2, lines[2])),
        "steps",
        "step 2: metrics.jsonl has 2 lines",
    ),
    "no line of step 0": (
        in_lines(lambda lines: lines.pop(0)),
        "steps",
        "step 0: metrics.jsonl has 0 lines of it",
    ),
    "lines out of order": (
        in_lines(lambda lines: lines.insert(1, lines.pop(2))),
        "steps",
        "step 1: its line in metrics.jsonl comes after that of step 2",
    ),
    "a lost last step": (
        lambda run: (in_lines(lambda lines: lines.pop())(run), journal(run, 3).unlink()),
        "steps",
        "step 3: metrics.jsonl has 0 lines of it",
    ),
    "a line cut short": (
        lambda run: cut(run / "metrics.jsonl", -9),
        "steps",
        "step 3: metrics.jsonl has 0 lines of it",
    ),
    "a journal cut short": (lambda run: cut(journal(run, 1), -9), "steps", "step 1: "),
    "a lost path": (
        in_trees(1, lambda trees: trees[0].leaves.pop()),
        "groups",
        "step 1: branch 2 of t10 is there 0",
    ),
    "a lost path, counted so": (
        in_trees(1, lambda trees: (trees[0].leaves.pop(), trees[0].turns.pop()), recount=True),
        "paths",
        "step 1: 2 prompts x 3 branches ask for 6 paths, the journal has 5",
    ),
    "a path counted twice": (
        in_trees(1, lambda trees: trees[0].leaves.append(trees[0].leaves[1]), recount=True),
        "groups",
        "step 1: branch 1 of t10 is there 2 times",
    ),
    "a path too many": (
        in_trees(
            1,
            lambda trees: trees[0].leaves.append(replace(trees[0].leaves[1], branch=3)),
            recount=True,
        ),
        "groups",
        "step 1: branch 3 of t10 is there 1 times",
    ),
    "a lost group": (
        in_trees(1, lambda trees: trees.pop(), recount=True),
        "paths",
        "step 1: 2 prompts x 3 branches ask for 2 groups, the journal has 1",
    ),
    "a group of another step": (
        in_trees(3, lambda trees: setattr(trees[0], "key", (4, 1, 30))),
        "groups",
        "step 3: the key of t30 is (4, 1, 30) and not (4, 2, 30)",
    ),
    "a group of another seed": (
        in_trees(3, lambda trees: setattr(trees[0], "key", (5, 2, 30))),
        "groups",
        "step 3: ",
    ),
    "paths miscounted": (
        in_line(2, paths=1),
        "paths",
        "step 2: paths is 7 in metrics.jsonl and 6 in the journal",
    ),
    "an outcome miscounted": (
        in_line(1, paths__done=-1),
        "paths",
        "step 1: paths/done is 3 in metrics.jsonl and 4",
    ),
    "a type of failure miscounted": (
        in_line(2, paths__tool_error=1, paths__infra_error=-1),
        "paths",
        "step 2: paths/tool_error is 1 in metrics.jsonl and 0 in the journal",
    ),
    "an outcome left out": (
        in_lines(lambda lines: lines[2].pop("paths/infra_error")),
        "paths",
        "step 2: paths/infra_error is nothing in metrics.jsonl and 1 in the journal",
    ),
    "a token more drawn": (
        in_trees(1, more_drawn),
        "tokens",
        "step 1: tokens is 38 in metrics.jsonl and 39 in",
    ),
    "a token more given": (
        in_trees(1, more_given),
        "tokens",
        "step 1: tokens_given/tool is 8 in metrics.jsonl and 9 in the journal",
    ),
    "tokens of another speaker": (
        in_trees(1, other_span),
        "tokens",
        "step 1: tokens_given/tool is 8 in metrics.jsonl",
    ),
    "a span that there is not": (
        in_lines(lambda lines: lines[1].update({"tokens_given/thought": 2})),
        "tokens",
        "step 1: tokens_given/thought is 2 in metrics.jsonl and 0 in the journal",
    ),
    "a turn on no path": (
        in_trees(1, lambda trees: trees[0].add(told(3, "user", 0))),
        "tokens",
        "step 1: turn 8 of t10 is on no path",
    ),
    "the environment's words as drawn": (
        in_trees(1, drawn_words),
        "tokens",
        "step 1: turn 2 of t10 was drawn, but its role is tool",
    ),
    "a summary that says more": (
        lambda run: (run / "summary.json").write_text(json.dumps({"steps": 3, "tokens": 1})),
        "tokens",
        "step 3: summary.json says 1 tokens up to here, the lines of metrics.jsonl 114",
    ),
    "a failed path with score 0": (
        in_trees(2, leaf(2, score=0.0)),
        "failures",
        "step 2: path (4, 1, 21, 2), infra_error, has the score 0.0",
    ),
    "a rewarded path without a score": (
        in_trees(1, leaf(1, score=math.nan)),
        "failures",
        "step 1: path (4, 0, 11, 1), truncated, has the score nan",
    ),
    "a failure taken for an answer": (
        in_trees(2, leaf(2, outcome=Outcome.DONE, score=0.0), recount=True),
        "failures",
        "step 2: path (4, 1, 21, 2), done, stopped with infra_error",
    ),
    "a failure that was only tried again": (
        lambda run: (run / "incidents.jsonl").write_text(
            (run / "incidents.jsonl").read_text().replace('"failed"', '"retry"')
        ),
        "failures",
        "step 2: path (4, 1, 21, 2), infra_error, is no incident",
    ),
    "a failure that is no incident": (
        lambda run: (run / "incidents.jsonl").unlink(),
        "failures",
        "step 2: path (4, 1, 21, 2), infra_error, is no incident",
    ),
}


def test_a_run_that_adds_up_has_no_problem(run):
    found = audit(run)
    assert found.problems == [] and found.steps == 3
    assert {check: found.held(check) for check in CHECKS} == dict.fromkeys(CHECKS, (3, 3)) | {
        "steps": (4, 4)
    }
    assert found.totals == {
        "paths/done": 11,
        "paths/truncated": 6,
        "paths/infra_error": 1,
        "tokens": 6 * 19,
        "tokens_given/prompt": 6 * 5,
        "tokens_given/tool": 6 * 4,
        "tokens_given/user": 6 * 2,
    }


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_and_named(run, name):
    plant, check, what = FAULTS[name]
    plant(run)
    found = audit(run)
    assert any(
        problem.check == check and str(problem).startswith(what) for problem in found.problems
    ), found.problems
    held, of = found.held(check)
    assert held == of - 1, found.problems


def test_of_a_step_without_its_files_nothing_holds(run):
    journal(run, 2).unlink()
    found = audit(run)
    assert {check: found.held(check) for check in CHECKS} == dict.fromkeys(CHECKS, (2, 3)) | {
        "steps": (3, 4)
    }


def test_groups_in_place_of_dropped_ones_are_counted_as_said(run):
    more = in_trees(1, lambda trees: trees.append(tree(1, 12)), recount=True)
    more(run)
    (run / "summary.json").unlink()
    assert [str(problem) for problem in audit(run).problems] == [
        "step 1: 2 prompts x 3 branches ask for 2 groups, the journal has 3",
        "step 1: 2 prompts x 3 branches ask for 6 paths, the journal has 9",
    ]
    in_lines(lambda lines: lines[1].update(refilled=1))(run)
    assert audit(run).problems == []


def test_a_group_that_never_began_has_failed_as_one(run):
    def lose(trees: list[Tree]) -> None:
        trees[0].turns = [told(-1, "user", 0)]
        trees[0].leaves = [
            Leaf.ended(0, branch, StopReason.INFRA_ERROR, 0.0, {}) for branch in range(3)
        ]

    in_trees(3, lose, recount=True)(run)
    (run / "summary.json").unlink()
    assert [problem.check for problem in audit(run).problems] == ["failures"] * 3
    with (run / "incidents.jsonl").open("a") as file:
        file.write(
            json.dumps({"step": 3, **Incident("failed", "no reset", (4, 2, 30)).to_json()}) + "\n"
        )
        file.write('{"step": 3, "kind": "fai')  # and died
    assert audit(run).problems == []


def test_an_incident_of_a_step_that_was_taken_again_is_no_problem(run):
    with (run / "incidents.jsonl").open("a") as file:
        file.write(
            json.dumps({"step": 3, **Incident("failed", "lost", (4, 2, 30, 1)).to_json()}) + "\n"
        )
    assert audit(run).problems == []


@pytest.mark.parametrize("name", ["metrics.jsonl", "incidents.jsonl", "summary.json"])
@pytest.mark.parametrize("text", ["{", "[3]", '{"steps": "2", "step": true}', "\ufffd"])
def test_what_cannot_be_read_is_named(run, name, text):
    lines = (run / name).read_text().split("\n")
    (run / name).write_text("\n".join([text, *lines[1:]]))
    line = "" if name == "summary.json" else ", line 1"
    with pytest.raises(ValueError) as caught:
        audit(run)
    assert str(caught.value).startswith(f"{run / name}{line}: damaged (")


class Counted(int):
    """A number that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


@pytest.mark.parametrize("steps", [50, 400])
def test_the_work_of_an_audit_grows_with_the_steps_and_not_with_their_square(steps):
    Counted.compared = 0
    numbers = [Counted(number) for number in range(steps + 1)]
    assert [
        str(one) for one in _order(steps, numbers, dict.fromkeys(range(1, steps + 1), Path()))
    ] == []
    assert Counted.compared <= 10 * steps


def test_a_journal_behind_a_link_is_not_counted(run, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "step.jsonl"
    (run / "trees" / "step-000002.jsonl").rename(elsewhere)
    (run / "trees" / "step-000002.jsonl").symlink_to(elsewhere)
    (found,) = audit(run).problems
    assert found.step == 2 and "is a link" in found.what


@pytest.mark.slow
def test_a_real_run_adds_up(tmp_path, monkeypatch):
    monkeypatch.setattr(TorchEngine, "mode_reason", "")
    threads = torch.get_num_threads()
    config = TrainConfig().changed(
        difficulty=(1,), steps=2, prompts=2, group=2, max_tokens=24, eval_tasks=1, eval_every=9
    )
    list(execute(prepare(config.changed(out=str(tmp_path / "run")))))
    torch.set_num_threads(threads)
    found = audit(tmp_path / "run")
    assert found.problems == [] and found.steps == 2
    assert found.totals["paths/done"] + found.totals["paths/truncated"] == 8
    assert found.totals["tokens"] > 8 and found.totals["tokens_given/prompt"] > 40
